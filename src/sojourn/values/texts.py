"""Shortening of long texts, so that they can be sent, logged and read."""

from __future__ import annotations

MOST_OF_AN_ERROR = 100_000  # characters of an error's text, and of its traceback


def shortened(text: str, most: int = MOST_OF_AN_ERROR) -> str:
    """Keep the beginning and the end of a text longer than `most`; say how much was left out."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    end = text[len(text) - (most - half) :]
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{end}"


def sendable(text: str) -> str:
    """Return an error's text in a form that can be sent: shortened, and with lone surrogates (which
    stand for undecodable bytes, for example in file names) escaped."""
    return shortened(text).encode(errors="backslashreplace").decode()
