"""`sojourn demo` tells its story in plain lines where nobody watches, and ends what it began."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sojourn.cli.main import main
from sojourn.demo import sides


def test_the_demo_compares_both_programs_in_lines_that_a_file_can_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sides, "HIDDEN_UNITS", (2000, 3000))
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert all(character.isprintable() for line in lines for character in line)
    for units in (2000, 3000):
        at = lines.index(f"{units} hidden units")
        assert lines[at + 1].startswith("  raw ")
        assert lines[at + 2].startswith("  sojourn ")
        assert sum(line.startswith(f"│ {units} units ") for line in lines) == 1
    assert "hidden units ━" not in done.output  # no half of a bar
    assert "Next: sojourn bench" in done.output


def test_a_program_of_the_demo_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "HIDDEN_UNITS", ("many",))
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 1
    assert "the raw program ended with code 1" in done.output
    assert "invalid literal for int() with base 10: 'many'" in done.output
