"""What a connection waits for, and what all connections of a door have in common."""

from __future__ import annotations

import enum
import time

from sojourn.service.http.heads import KnownHeads


class Phase(enum.Enum):
    """What a connection waits for."""

    IDLE = enum.auto()  # a request
    HEAD = enum.auto()  # the rest of its head
    BODY = enum.auto()  # the rest of its body
    ANSWER = enum.auto()  # the answer, or the client to read it
    OVER = enum.auto()  # the client to go


class Common:
    """What all connections of a door have in common."""

    __slots__ = ("heads", "held_bytes", "now")

    def __init__(self) -> None:
        self.heads = KnownHeads()
        self.held_bytes = 0  # of all bodies
        self.now = time.monotonic()  # coarse: whoever looks at the connections looks at the clock
