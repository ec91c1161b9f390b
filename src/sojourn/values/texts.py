"""Texts of any length, made short enough to be sent, logged and read."""

from __future__ import annotations

MOST_OF_AN_ERROR = 100_000  # characters of an error's text, and of its traceback


def shortened(text: str, most: int = MOST_OF_AN_ERROR) -> str:
    """Its beginning and its end if it is longer than `most`, with what was left out said."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    end = text[len(text) - (most - half) :]
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{end}"


def sendable(text: str) -> str:
    """The text of an error as it can be sent: not without end, and without the halves of characters
    that stand for undecodable bytes, in file names say."""
    return shortened(text).encode(errors="backslashreplace").decode()
