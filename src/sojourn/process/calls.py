"""The requests on a lane: run a prepared step, run several steps of one plan, or carry out a named
operation.

This module imports nothing system-specific, so it loads on systems without worker processes.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from sojourn.errors import SessionBroken

OK, FAILED, SOME_FAILED = 0, 1, 2
STEP, CALL, BUNDLE = b"s"[0], b"c"[0], b"b"[0]

LAST_WORDS = "\nIts last words:\n"  # between how the worker died and its last output

_NUMBER = struct.Struct("<I")


class WorkerDied(Exception):
    """The worker ended while it was needed. `how` is a sentence without a full stop.

    `begun`: the worker may have carried out part of the request. If False, it never saw it.
    `kind` is the type of error that its callers get.
    """

    def __init__(
        self,
        how: str,
        last_words: str,
        begun: bool = True,
        kind: type[SessionBroken] = SessionBroken,
    ) -> None:
        super().__init__(how)
        self.how = how
        self.last_words = last_words
        self.begun = begun
        self.kind = kind

    def describe(self, consequence: str = "") -> str:
        """Return how it ended, the consequence, and the worker's last output."""
        words = f"{LAST_WORDS}{self.last_words}" if self.last_words else ""
        return f"{self.how}{consequence}{words}"


class NoAnswer(TimeoutError):
    """The deadline passed before the answer arrived. An engine never raises this itself.

    `sent`: the worker may still carry the request out. If False, it will never see it.
    """

    def __init__(self, sent: bool = True) -> None:
        super().__init__()
        self.sent = sent


class Call(msgspec.Struct, frozen=True):
    """A request for a named operation of the engine."""

    name: str
    arguments: Any


class PreparedStep:
    """A plan that the engine has made, with the facts that sending a step of it requires."""

    __slots__ = ("adoptable", "may_wait", "meta", "number", "prints")

    def __init__(
        self, number: int, *, adoptable: bool = False, prints: bool = True, may_wait: bool = True
    ) -> None:
        self.number = number
        self.adoptable = adoptable  # no op can keep a fed buffer, so it may be read in place
        self.prints = prints  # it may write to standard output or error
        self.may_wait = may_wait  # for another step, which then needs a lane of its own
        # The same bytes every time, so that the layout is reused.
        self.meta = b"s" + _NUMBER.pack(number)


def plan_number(meta: bytes) -> int:
    """Return the number of the prepared step that these meta bytes request."""
    number: int = _NUMBER.unpack_from(meta, 1)[0]
    return number


def bundle_meta(step: bytes, count: int) -> bytes:
    """Return the meta bytes of `count` steps of one plan (at most 255), from those of one step."""
    return b"b" + step[1:] + bytes([count])


def bundled(meta: bytes) -> int:
    """Return how many steps these meta bytes request."""
    return meta[-1]


def call_meta(name: str, arguments: Any) -> bytes:
    """Return the meta bytes of a named operation."""
    return b"c" + msgspec.msgpack.encode(Call(name, arguments))


def forget_frames(error: Exception) -> None:
    """Drop an error's traceback: its frames would keep our lanes and their memory alive."""
    error.__traceback__ = error.__context__ = None
