"""What commands show on a terminal, and who may ask them for less."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from sojourn.cli.main import main
from sojourn.cli.terminal import plain, wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("value", "colour"), [(None, True), ("", True), ("1", False), ("0", False)]
)
def test_no_color_counts_if_it_is_there_and_not_empty(monkeypatch, value, colour):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if value is not None:
        monkeypatch.setenv("NO_COLOR", value)
    assert wants_colour(Terminal()) is colour
    assert not wants_colour(io.StringIO())


def test_a_name_cannot_steer_the_terminal_or_fake_a_line():
    assert plain("a\x1b[31mb\nc\u202ed\tä") == "a\\x1b[31mb\\nc\\u202ed\\tä"


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "━.py"
    path.write_text("import tensorflow as tf\nsess = tf.compat.v1.Session()\n")
    return str(path)


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_character_that_a_stream_lacks_is_shown_in_another_way(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "latin-1", write_through=True))
    assert exit_code("lint", "--isolated", program) == 1
    assert rb"\u2501.py" in shown.getvalue()


def test_a_command_without_standard_output_does_its_work(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    try:
        assert exit_code("lint", "--isolated", program) == 1
    finally:
        sys.stdout.close()


def test_output_that_cannot_be_written_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        assert exit_code("lint", "--isolated", program) == 1
        sys.stdout.detach()
    assert "Error: [Errno 28]" in capsys.readouterr().err
