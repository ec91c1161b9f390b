"""Limits on what one client may use of the server: bytes, connections and time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sojourn.service.failures import Refused, Status


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits beyond which a client is refused or cut off. Sizes in bytes, times in seconds."""

    body_bytes: int = 256 * 2**20  # one body, also after decompression
    # All requests that are being read or wait for their answer, plus answers not yet read.
    bodies_bytes: int = 2 * 2**30
    header_bytes: int = 32 * 2**10
    headers: int = 100
    connections: int = 4096
    pipelined: int = 32  # waiting requests of one connection; at this number reading pauses
    idle_seconds: float = 75.0  # a connection without a request
    header_seconds: float = 10.0  # from the first byte of a request to the end of its head
    stall_seconds: float = 20.0  # how long a body or an answer may be below the slowest rate
    slowest_bytes: int = 1024  # lowest rate of an incoming body or an outgoing answer, per second


class Common:
    """State shared by all connections of a door: limits, time, and bytes held."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held_bytes = 0  # of requests that are being read or wait for their answer
        self.unread_bytes = 0  # of answers, at the last periodic check
        self.now = time.monotonic()  # coarse: updated by the periodic check of the connections

    def hold(self, count: int, besides: int = 0) -> None:
        """Count `count` more bytes as held. Raises Refused if the total is too large; the bytes
        count even then, until they are given back. The bytes `besides`, which the same request
        holds already, are left out of the comparison."""
        self.held_bytes += count
        most = max(self.limits.bodies_bytes, self.limits.body_bytes)
        if self.held_bytes + self.unread_bytes - besides > most:
            raise Refused(Status.UNAVAILABLE, "the server holds as many requests as it can", 1.0)

    def give_back(self, count: int) -> None:
        """Count `count` bytes as no longer held."""
        self.held_bytes -= count


class Pace:
    """Measures whether bytes move at the required rate; checked periodically."""

    __slots__ = ("_count", "_since")

    def __init__(self, now: float, count: int = 0) -> None:
        self._since = now
        self._count = count

    def is_too_slow(self, now: float, count: int, limits: Limits) -> bool:
        """Whether the rate was too low for too long. `count` grows with the bytes that moved."""
        seconds = now - self._since
        if count - self._count >= limits.slowest_bytes * seconds:
            self._since, self._count = now, count
            return False
        return seconds > limits.stall_seconds
