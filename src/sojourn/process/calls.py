"""What a request on a lane says: run a prepared step, or carry out a named operation.

Pure, so that it can be imported on systems without worker processes.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from sojourn.errors import SessionBroken

OK, FAILED = 0, 1
STEP, CALL = b"s"[0], b"c"[0]

_NUMBER = struct.Struct("<I")


class WorkerDied(Exception):
    """The worker ended while it was needed. `how` is a sentence without a full stop."""

    def __init__(
        self, how: str, last_words: str, kind: type[SessionBroken] = SessionBroken
    ) -> None:
        """`kind` is the error that whoever needed it gets."""
        super().__init__(how)
        self.how = how
        self.last_words = last_words
        self.kind = kind

    def told(self, consequence: str = "") -> str:
        """How, what follows from it, and what it said last."""
        words = f"\nIts last words:\n{self.last_words}" if self.last_words else ""
        return f"{self.how}{consequence}{words}"


class NoAnswer(TimeoutError):
    """The deadline came before the answer. What the engine itself raises is never one of these."""


class Call(msgspec.Struct, frozen=True):
    """A named operation of the engine's."""

    name: str
    arguments: dict[str, Any]


def step_meta(number: int) -> bytes:
    """The meta bytes of "run plan `number`": the same every time, so the layout is reused."""
    return b"s" + _NUMBER.pack(number)


def plan_number(meta: bytes) -> int:
    """The plan that `step_meta` was made for."""
    number: int = _NUMBER.unpack_from(meta, 1)[0]
    return number


def call_meta(name: str, arguments: dict[str, Any]) -> bytes:
    """The meta bytes of a named operation."""
    return b"c" + msgspec.msgpack.encode(Call(name, arguments))
