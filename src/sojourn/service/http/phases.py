"""The phases of a connection."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """What a connection waits for."""

    IDLE = enum.auto()  # a request
    HEAD = enum.auto()  # the rest of its head
    BODY = enum.auto()  # the rest of its body
    ANSWER = enum.auto()  # the answer, or the client to read it
    OVER = enum.auto()  # the client to disconnect
