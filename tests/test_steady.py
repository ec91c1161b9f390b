"""`make test` runs what failed once more, alone: unsteady is not broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEADY = Path(__file__).with_name("steady.py")
TESTS = {
    "passes": "def test_passes(): pass\n",
    "broken": "def test_broken(): assert False, 'it is broken'\n",
    "unsteady": (
        "import pathlib\n"
        "def test_unsteady():\n"
        "    marker = pathlib.Path('was-here')\n"
        "    if not marker.exists():\n"
        "        marker.touch()\n"
        "        assert False, 'the machine was busy'\n"
    ),
    "unreadable": "import nothing_of_this_name\n",
    "many": "import pytest\n@pytest.mark.parametrize('n', range(21))\ndef test_many(n): assert 0\n",
}


def run(folder: Path, *names: str, arguments: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code and the output of the tests of these names."""
    for name in names:
        (folder / f"test_{name}.py").write_text(TESTS[name])
    done = subprocess.run(
        [sys.executable, str(STEADY), *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_passes_runs_once(tmp_path: Path) -> None:
    code, said = run(tmp_path, "passes")
    assert (code, said.count("1 passed")) == (0, 1)
    assert "once more" not in said


def test_what_passes_the_second_time_is_called_unsteady(tmp_path: Path) -> None:
    beside = ("-n", "2", "--dist", "loadfile")
    code, said = run(tmp_path, "passes", "unsteady", arguments=beside)
    assert code == 0
    assert "the machine was busy" in said
    assert "unsteady: test_unsteady.py::test_unsteady failed first and passed alone" in said
    assert "1 passed" in said.partition("once more, alone")[2]  # and nothing but what had failed


def test_what_fails_twice_fails_the_run_and_is_forgotten_by_the_next(tmp_path: Path) -> None:
    code, said = run(tmp_path, "broken")
    assert code == 1
    assert said.count("AssertionError: it is broken") >= 2
    assert "unsteady" not in said
    code, said = run(tmp_path, "unsteady", arguments=("test_unsteady.py",))
    assert code == 0
    assert "broken" not in said


@pytest.mark.parametrize(("name", "code"), [("unreadable", 2), ("many", 1)])
def test_a_machine_is_not_blamed_for_everything(tmp_path: Path, name: str, code: int) -> None:
    exited, said = run(tmp_path, name)
    assert exited == code
    assert "once more" not in said
