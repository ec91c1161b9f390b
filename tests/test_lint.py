"""What `sojourn lint` sees in the source, and what it leaves alone."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sojourn.audit.lint import Settings, check_paths, check_source
from sojourn.audit.lint.settings import SettingsError, read_settings, simple_table

CASES = Path(__file__).parent / "lint_cases"
HEAD = "import tensorflow.compat.v1 as tf\n"


def codes(source: str) -> list[str]:
    return [p.code for p in check_source(HEAD + textwrap.dedent(source))]


def expected(file: Path) -> set[tuple[str, int, str]]:
    return {
        (file.name, number, code)
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for code in re.findall(r"SOJ\d+", line.partition("# expect:")[2])
    }


@pytest.mark.parametrize("file", sorted(CASES.glob("*.py")), ids=lambda file: file.stem)
@pytest.mark.quick
def test_a_case_file_has_the_findings_that_its_comments_expect_and_no_others(file: Path) -> None:
    found = {(file.name, p.line, p.code) for p in check_source(file.read_text(), str(file))}
    assert found == expected(file)


@pytest.mark.parametrize("folder", sorted(CASES.glob("programs/*")), ids=lambda folder: folder.name)
@pytest.mark.quick
def test_calls_are_followed_through_the_files_of_a_program(folder: Path) -> None:
    outcome = check_paths([folder], Settings())
    found = {(Path(p.path).name, p.line, p.code) for p in outcome.problems}
    assert found == {item for file in folder.rglob("*.py") for item in expected(file)}


def labelled() -> dict[str, str]:
    """Small programs in the ways people write them, by title; comments say what is wrong."""
    text = (CASES / "labelled" / "programs.txt").read_text()
    parts = (part.partition("\n") for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:])
    return {title: HEAD + source for title, _, source in parts}


# What the source does not show, or where its author may have meant it.
MISSED = {
    "one branch closes it": {"SOJ001"},
    "replaced on self": {"SOJ008"},
}


def test_labelled_programs_are_judged_as_the_documentation_says() -> None:
    wanted = found = right = 0
    for title, source in labelled().items():
        labels = {
            (number, code)
            for number, line in enumerate(source.splitlines(), 1)
            for code in re.findall(r"SOJ\d+", line.partition("# expect:")[2])
        }
        seen = {(p.line, p.code) for p in check_source(source)}
        assert seen <= labels, f"{title}: a false finding"
        assert {code for _, code in labels - seen} == MISSED.get(title, set()), title
        wanted, found, right = wanted + len(labels), found + len(seen), right + len(labels & seen)
    said = f"{right} of {wanted} labelled faults in {len(labelled())} small programs"
    docs = (Path(__file__).parents[1] / "docs" / "lint.md").read_text()
    assert said in " ".join(docs.split())
    assert found == right


def test_weights_that_are_loaded_one_by_one_get_a_way_that_adds_no_ops() -> None:
    [loaded, halved] = check_source(
        HEAD
        + textwrap.dedent(
            """
            def load(sess, weights):
                for variable, value in weights:
                    sess.run(variable.assign(value))

            def halve(sess, variables):
                for variable in variables:
                    sess.run(tf.assign(variable, tf.divide(variable, 2.0)))
            """
        )
    )
    assert loaded.detail.endswith("line 4; `variable.load(value, session)` adds none")
    assert halved.detail.endswith("line 8")


def test_linting_needs_neither_tensorflow_nor_libcst() -> None:
    program = (
        "import sys; from sojourn.cli.lint import command\n"
        "try: command([sys.argv[1], '--isolated'])\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, [m for m in ('tensorflow', 'libcst') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(CASES / "left_open.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "1 []"


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("", ["SOJ001"]),
        ("# noqa", []),
        ("# noqa: SOJ001", []),
        ("# NOQA:E501,soj001", []),
        ("# noqa: E501", ["SOJ001"]),
        ("# a word on noqa", ["SOJ001"]),
    ],
)
def test_noqa_silences_its_line_and_only_the_codes_it_names(comment: str, left: list[str]) -> None:
    assert codes(f"sess = tf.Session()  {comment}\nsess.run('x:0')\n") == left


def test_noqa_may_stand_on_any_line_of_a_call() -> None:
    assert codes("sess = tf.Session(\n    config=None,\n)  # noqa: SOJ001\n") == []


def test_a_text_that_says_noqa_silences_nothing() -> None:
    assert codes("sess = tf.Session('# noqa')\nsess.run('x:0')\n") == ["SOJ001"]


@pytest.mark.parametrize(
    "head",
    [
        "import tensorflow as tf\ntf = tf.compat.v1",
        "import tensorflow.compat.v1 as tf",
        "from tensorflow.compat import v1 as tf",
        "from tensorflow import compat\ntf = compat.v1",
        "import tensorflow\ntf = tensorflow",
        "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    tf = None",
        "from common import *",
        "from package.env import tf",
        "import package.compat as tf",
        "import sojourn\ntf = sojourn.compat.v1",
    ],
)
def test_every_way_to_import_it_means_the_same(head: str) -> None:
    found = check_source(f"{head}\nsess = tf.Session()\nprint(sess.run('x:0'))\n")
    assert [p.code for p in found] == ["SOJ001"]


@pytest.mark.parametrize(
    "head", ["from torch_like import rf as tf", "import other as tf", "from . import tf"]
)
def test_a_tf_that_is_imported_from_elsewhere_is_not_tensorflow(head: str) -> None:
    assert check_source(f"{head}\nsess = tf.Session()\n") == []


def test_a_star_import_brings_the_session_classes() -> None:
    found = check_source("from tensorflow.compat.v1 import *\nInteractiveSession()\n")
    assert [p.code for p in found] == ["SOJ009"]


def test_a_finding_names_the_place_of_the_call() -> None:
    (found,) = check_source(HEAD + "a = 1; sess = tf.Session()\nsess.run(a)\n", "prog.py")
    assert (found.path, found.line, found.column, found.end_column) == ("prog.py", 2, 15, 27)
    assert found.message == "session never closed: nothing closes `sess`"
    assert found.about.docs == "docs/codes.md#soj001"


def test_what_one_file_keeps_another_may_close(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        HEAD + "class Agent:\n    def __init__(self):\n        self.sess = tf.Session()\n"
    )
    alone = check_paths([tmp_path], Settings())
    assert [p.code for p in alone.problems] == ["SOJ001"]
    (tmp_path / "main.py").write_text("import agent\na = agent.Agent()\na.sess.close()\n")
    assert check_paths([tmp_path], Settings()).problems == []


def test_a_python_2_program_is_named_as_one_and_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\nprint tf.Session().run(x)\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0\n")
    outcome = check_paths([tmp_path], Settings())
    assert outcome.problems == []
    reasons = {Path(n.path).name: n.reason for n in outcome.notes}
    assert reasons["old.py"].startswith("Python 2 program, not checked")
    assert reasons["torn.py"].startswith("not Python 3, not checked")
    assert set(reasons) == {"old.py", "torn.py", "null.py"}


def test_folders_are_walked_without_what_is_not_the_users(tmp_path: Path) -> None:
    for name in ("a.py", "deep/er/b.py", ".venv/c.py", "__pycache__/d.py", "gen/e.py", "f.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD + "tf.Session()\n")
    outcome = check_paths([tmp_path], Settings(exclude=("gen",)))
    assert [Path(p.path).name for p in outcome.problems] == ["a.py", "b.py"]
    assert outcome.checked == 2


def test_a_file_that_is_named_is_checked_once_wherever_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "build" / "a.py"
    file.parent.mkdir()
    file.write_text(HEAD + "tf.Session()\n")
    assert len(check_paths([file, file], Settings()).problems) == 1


TOML = """
[tool.other]
select = ["X"]

[tool.sojourn.lint]   # what we look at
select = ["SOJ00"]
ignore = [
    "SOJ003",  # sweeps
    "SOJ004",
]
exclude = ['legacy/*', "gen"]

[tool.more]
ignore = ["Y"]
"""
TABLE = {
    "select": ["SOJ00"],
    "ignore": ["SOJ003", "SOJ004"],
    "exclude": ["legacy/*", "gen"],
}


def test_settings_come_from_the_nearest_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(TOML)
    below = tmp_path / "src" / "pkg"
    below.mkdir(parents=True)
    settings = read_settings(below)
    assert settings == Settings(("SOJ00",), ("SOJ003", "SOJ004"), ("legacy/*", "gen"))
    assert settings.wants("SOJ001")
    assert not settings.wants("SOJ003")
    assert settings.leaves_out(Path("src/legacy/old.py"))
    assert settings.leaves_out(Path("src/gen"))
    assert not settings.leaves_out(Path("src/generator.py"))


def test_the_small_reader_for_python_3_10_reads_the_same() -> None:
    assert simple_table(TOML) == TABLE


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[tool.sojourn.lint]\nselect = ["SOJ999"]', "'SOJ999' is not a code"),
        ('[tool.sojourn.lint]\nselct = ["SOJ001"]', "unknown setting 'selct'"),
        ("[tool.sojourn.lint]\nignore = 3", "ignore must be a list"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        read_settings(tmp_path)
