"""`sojourn lint` as it is called."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sojourn.audit.codes import CODES, page
from sojourn.cli import lint as lint_command
from sojourn.cli.main import main

ROOT = Path(__file__).parents[1]

LEAK = "import tensorflow.compat.v1 as tf\nsess = tf.Session()\nprint(sess.run('x:0'))\n"
CLEAN = (
    "import tensorflow.compat.v1 as tf\nwith tf.Session() as sess:\n    print(sess.run('x:0'))\n"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lint(*args: str) -> Result:
    return CliRunner().invoke(main, ["lint", *args])


def test_it_exits_with_0_1_and_2(here: Path) -> None:
    (here / "clean.py").write_text(CLEAN)
    assert lint("clean.py").exit_code == 0
    (here / "leak.py").write_text(LEAK)
    assert lint("leak.py").exit_code == 1
    assert lint("missing.py").exit_code == 2
    assert lint("--select", "SOJ999", "clean.py").exit_code == 2
    assert lint("--format", "xml").exit_code == 2


def test_a_python_2_program_alone_is_no_failure(here: Path) -> None:
    (here / "old.py").write_text("print 'TensorFlow'\n")
    result = lint()
    assert result.exit_code == 0
    assert "old.py:1: note Python 2 program, not checked" in result.output
    assert "no findings in 1 file, 1 not checked" in result.output


def test_text_shows_the_line_and_what_to_do(here: Path) -> None:
    (here / "leak.py").write_text("import tensorflow as tf\nif 1:\n\tä = 'ä'; s = tf.Session()\n")
    assert lint("leak.py").output.splitlines() == [
        "leak.py:3:15: SOJ001 session never closed: nothing closes `s`",
        "3 | \tä = 'ä'; s = tf.Session()",
        "  | \t             ^^^^^^^^^^^^",
        "  = Open it in a `with` block, or close it in `finally`.",
        "",
        "1 finding in 1 file",
    ]


def test_json_has_everything(here: Path) -> None:
    (here / "leak.py").write_text(LEAK)
    document = json.loads(lint("--json").output)
    assert document == json.loads(lint("--format", "json").output)
    (finding,) = document["findings"]
    assert finding["code"] == "SOJ001"
    assert (finding["path"], finding["line"], finding["column"]) == ("leak.py", 2, 8)
    assert finding["docs"] == "docs/codes.md#soj001"
    assert document["files"] == 1


def test_github_gets_workflow_commands(here: Path) -> None:
    (here / "a,b.py").write_text(LEAK)
    line = lint("--format", "github").output.strip()
    assert line.startswith("::error file=a%2Cb.py,line=2,endLine=2,col=8,title=SOJ001::session")
    (here / "a,b.py").write_text(CLEAN)
    assert lint("--format", "github").output == ""


def test_sarif_names_rules_and_places(here: Path) -> None:
    (here / "leak.py").write_text(LEAK)
    (here / "old.py").write_text("print 1\n")
    document = json.loads(lint("--format", "sarif").output)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    (result,) = run["results"]
    rules = run["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "SOJ001"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "leak.py"
    assert place["region"]["startLine"] == 2
    assert "Python 2" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_codes_are_chosen_on_the_command_line_and_in_pyproject(here: Path) -> None:
    (here / "leak.py").write_text(LEAK)
    assert lint("--ignore", "SOJ001").exit_code == 0
    assert lint("--select", "soj002,SOJ009").exit_code == 0
    assert lint("--exclude", "leak.py").exit_code == 0
    (here / "pyproject.toml").write_text('[tool.sojourn.lint]\nignore = ["SOJ001"]\n')
    assert lint().exit_code == 0
    assert lint("--isolated").exit_code == 1


def test_diff_shows_and_fix_writes(here: Path) -> None:
    (here / "leak.py").write_text(LEAK)
    shown = lint("--diff")
    assert shown.exit_code == 1
    assert "+with tf.Session() as sess:" in shown.output
    assert (here / "leak.py").read_text() == LEAK
    written = lint("--fix")
    assert written.exit_code == 0
    assert "no findings in 1 file, 1 file fixed" in written.output
    assert (here / "leak.py").read_text() == CLEAN
    again = lint("--fix", "--diff")
    assert (again.exit_code, again.output) == (0, "")


def test_diffs_are_data_like_the_findings(here: Path) -> None:
    (here / "leak.py").write_text(LEAK)
    shown = lint("--diff", "--json", "--output", "out.json")
    assert shown.exit_code == 1
    document = json.loads(shown.output)
    assert document == json.loads((here / "out.json").read_text())
    assert [f["code"] for f in document["findings"]] == ["SOJ001"]
    [change] = document["diffs"]
    assert change["path"] == "leak.py"
    assert change["diff"] == lint("--diff").output
    assert (here / "leak.py").read_text() == LEAK
    refused = lint("--diff", "--format", "sarif")
    assert refused.exit_code == 2
    assert "--diff goes with text or JSON, not with --format sarif" in refused.output


def test_fix_loses_nothing_that_was_saved_meanwhile(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "leak.py").write_text(LEAK)
    fix_source = lint_command.fix_source

    def saved_meanwhile(*args: Any) -> Any:
        (here / "leak.py").write_text(LEAK + "more = 1\n")
        return fix_source(*args)

    monkeypatch.setattr(lint_command, "fix_source", saved_meanwhile)
    refused = lint("--fix")
    assert refused.exit_code == 1
    assert "leak.py is as it was: it has changed meanwhile" in refused.output
    assert (here / "leak.py").read_text() == LEAK + "more = 1\n"


def test_fix_closes_a_session_where_it_is_used_though_another_file_opens_it(here: Path) -> None:
    (here / "making.py").write_text(
        "import tensorflow.compat.v1 as tf\n\n\ndef make():\n    return tf.Session()\n"
    )
    user = here / "main.py"
    user.write_text("import making\n\nsess = making.make()\nprint(sess.run('x:0'))\n")
    assert "making.py:5" in lint(".").output
    assert lint("--fix", ".").exit_code == 0
    assert "finally:\n    sess.close()" in user.read_text()
    assert lint(".").exit_code == 0


def test_without_libcst_fix_says_what_to_install(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "leak.py").write_text(LEAK)
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("libcst"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    result = lint("--fix")
    assert result.exit_code == 2
    assert "pip install 'sojourn[lint]'" in result.output
    assert lint().exit_code == 1


KEEPS = """import tensorflow.compat.v1 as tf
class Agent:
    def __init__(self):
        self.sess = tf.Session()
"""


def test_what_another_program_closes_says_nothing(here: Path) -> None:
    (here / "agent.py").write_text(KEEPS)
    (here / "main.py").write_text("import agent\na = agent.Agent()\na.sess.close()\n")
    (here / "other.py").write_text(KEEPS)
    found = json.loads(lint("--json", ".").stdout)["findings"]
    assert [(f["path"], f["code"]) for f in found] == [("other.py", "SOJ001")]


def test_files_are_of_one_program_by_way_of_a_third(here: Path) -> None:
    (here / "agent.py").write_text(KEEPS)
    (here / "ending.py").write_text("def end(agent):\n    agent.sess.close()\n")
    (here / "main.py").write_text("from agent import Agent\nimport ending\nending.end(Agent())\n")
    assert lint(".").exit_code == 0


def test_an_environment_inside_the_folder_is_not_walked(here: Path) -> None:
    library = here / ".venvs" / "one" / "lib"
    library.mkdir(parents=True)
    (here / ".venvs" / "one" / "pyvenv.cfg").write_text("home = /usr\n")
    (library / "leak.py").write_text(LEAK)
    assert lint(".").exit_code == 0


def test_every_code_is_explained_where_it_is_installed() -> None:
    for code in CODES:
        told = lint("--explain", code.lower())
        assert told.exit_code == 0
        assert told.stdout.startswith(code)
    assert lint("--explain", "SOJ999").exit_code == 2
    assert page() == (ROOT / "docs" / "codes.md").read_text()


def test_our_own_code_passes_our_own_lint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    told = lint("src", "examples", "benchmarks")
    assert told.exit_code == 0, told.stdout
