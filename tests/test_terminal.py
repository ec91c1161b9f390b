"""What commands show on a terminal, and who may ask them for less."""

from __future__ import annotations

import io

import pytest

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
