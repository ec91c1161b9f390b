"""What a request on a lane says: run a prepared step, or some of one plan, or carry out a named
operation.

Pure, so that it can be imported on systems without worker processes.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from sojourn.errors import SessionBroken

OK, FAILED, SOME_FAILED = 0, 1, 2
STEP, CALL, BUNDLE = b"s"[0], b"c"[0], b"b"[0]

LAST_WORDS = "\nIts last words:\n"  # between what is known of a death and what the worker said

_NUMBER = struct.Struct("<I")


class WorkerDied(Exception):
    """The worker ended while it was needed. `how` is a sentence without a full stop.

    `begun`: it may have carried out some of what was asked. If not, it has never seen it.
    `kind` is the error that those who needed it get.
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
        """How, what follows from it, and what it said last."""
        words = f"{LAST_WORDS}{self.last_words}" if self.last_words else ""
        return f"{self.how}{consequence}{words}"


class NoAnswer(TimeoutError):
    """The deadline came before the answer. What the engine itself raises is never one of these.

    `sent`: the worker may carry it out all the same. If not, it will never see it.
    """

    def __init__(self, sent: bool = True) -> None:
        super().__init__()
        self.sent = sent


class Call(msgspec.Struct, frozen=True):
    """A named operation of the engine's."""

    name: str
    arguments: Any


class PreparedStep:
    """A plan that the engine has made, and what must be known to send a step of it."""

    __slots__ = ("adoptable", "may_wait", "meta", "number", "prints")

    def __init__(
        self, number: int, *, adoptable: bool = False, prints: bool = True, may_wait: bool = True
    ) -> None:
        self.number = number
        self.adoptable = adoptable  # no op can keep a fed buffer, so that it may be read in place
        self.prints = prints  # it may write to standard output or error
        self.may_wait = may_wait  # for another step, which then needs a lane of its own
        # The same every time, so that the layout is reused.
        self.meta = b"s" + _NUMBER.pack(number)


def plan_number(meta: bytes) -> int:
    """The number of the prepared step that these bytes ask for."""
    number: int = _NUMBER.unpack_from(meta, 1)[0]
    return number


def bundle_meta(step: bytes, count: int) -> bytes:
    """The meta bytes of several steps of one plan, from those of one. Up to 255."""
    return b"b" + step[1:] + bytes([count])


def bundled(meta: bytes) -> int:
    """How many steps these bytes ask for."""
    return meta[-1]


def call_meta(name: str, arguments: Any) -> bytes:
    """The meta bytes of a named operation."""
    return b"c" + msgspec.msgpack.encode(Call(name, arguments))


def forget_frames(error: Exception) -> None:
    """An error that is kept would keep our lanes, which are in its frames, and their memory."""
    error.__traceback__ = error.__context__ = None
