"""The audit finds each kind of leak in a real program, at its line, and nothing in a good one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "audit_cases"
NAMES = [
    "never_closed",
    "used_after_close",
    "session_per_call",
    "graph_grows",
    "borrowed_default",
    "open_at_exit",
    "memory_kept",
    "replaced",
    "interactive_left",
    "innocent",
    "suite_of_tests",
    "of_the_time",
    "examples",
    "blocks",
]
Results = dict[str, dict[str, Any]]


def expected(case: str) -> list[tuple[str, int]]:
    """The codes that the case's own comments announce, with their lines."""
    lines = (CASES / f"{case}.py").read_text().splitlines()
    return [
        (code, number)
        for number, line in enumerate(lines, 1)
        for code in re.findall(r"# expect: (SOJ\d+)", line)
    ]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """The report of every case. TensorFlow is imported once for all of them."""
    folder = tmp_path_factory.mktemp("audited")
    done = subprocess.run(
        [sys.executable, str(CASES / "run_all.py"), str(folder), *NAMES],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        # Whether memory is kept depends on TensorFlow's allocator, and that on the processor.
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), folder


@pytest.mark.parametrize("case", [n for n in NAMES if n not in ("examples", "blocks")])
def test_exactly_the_announced_leaks_are_found(audited: tuple[Results, Path], case: str) -> None:
    found = audited[0][case]["report"]["findings"]
    assert [(f["code"], f["line"]) for f in found] == expected(case)
    assert all(f["file"] == str(CASES / f"{case}.py") for f in found)


def test_the_exit_code_says_whether_something_was_found(audited: tuple[Results, Path]) -> None:
    results = audited[0]
    clean = ("innocent", "examples", "blocks")
    assert results["innocent"]["exit"] == 0
    assert all(results[name]["exit"] == 1 for name in NAMES if name not in clean)


def test_a_session_made_by_a_library_is_the_line_of_the_user(audited: tuple[Results, Path]) -> None:
    sessions = audited[0]["innocent"]["report"]["sessions"]
    made = [s for s in sessions if s["library"] == "tensorflow"]
    assert len(made) == 2
    assert {s["file"] for s in made} == {str(CASES / "innocent.py")}


def test_kept_memory_is_reported_in_bytes(audited: tuple[Results, Path]) -> None:
    (finding,) = audited[0]["memory_kept"]["report"]["findings"]
    assert finding["bytes"] > 32 * 2**20


def test_the_lines_that_grow_the_graph_are_named(audited: tuple[Results, Path]) -> None:
    (finding,) = audited[0]["graph_grows"]["report"]["findings"]
    assert [line["line"] for line in finding["lines"]] == [finding["line"]]
    assert finding["lines"][0]["ops"] >= 8


def test_the_suite_names_the_test_that_leaked(audited: tuple[Results, Path]) -> None:
    findings = audited[0]["suite_of_tests"]["report"]["findings"]
    assert findings[0]["scope"].endswith("::test_a_session_is_forgotten")
    # The plugin inside pytest found them too, and failed a run whose tests all passed.
    assert audited[0]["suite_of_tests"]["report"]["exit_code"] == 1


def test_a_page_needs_nothing_but_itself(audited: tuple[Results, Path]) -> None:
    page = (audited[1] / "interactive_left.html").read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:|//)|url\((?!#)|@import", page)
    assert "default-src 'none'" in page
    assert page.count('<article class="panel card"') == 2
    assert "bar-leak" in page


def test_blocks_see_their_own_sessions_and_leave_tensorflow_as_it_was(
    audited: tuple[Results, Path],
) -> None:
    assert audited[0]["blocks"]["report"] == {
        "closed": [],
        "forgotten": ["SOJ001"],
        "left open": ["SOJ006"],
        "inner": ["SOJ001"],
        "outer": ["SOJ001", "SOJ001"],
        "failed": ["SOJ001"],
        "from before": [],
        "callable": True,
        "untouched": True,
        "threads": True,
    }


def test_tensorflow_is_wrapped_when_the_program_imports_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sojourn.cli.main", "audit", str(CASES / "open_at_exit.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == "42\n"
    assert f"{CASES / 'open_at_exit.py'}:6: SOJ006 session open at exit" in done.stderr
    assert "> session = tf.Session()" in done.stderr
    assert "cure: " in done.stderr
    assert "\x1b" not in done.stderr


def test_our_own_examples_pass_our_own_audit(audited: tuple[Results, Path]) -> None:
    result = audited[0]["examples"]
    assert (result["exit"], result["report"]["findings"]) == (0, [])
