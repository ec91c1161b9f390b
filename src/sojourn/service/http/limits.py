"""What one client may take of the server: bytes, connections and time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sojourn.service.failures import Refused, Status


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond these a client is refused or cut off. Sizes in bytes, times in seconds."""

    body_bytes: int = 256 * 2**20  # also of what a compressed one unfolds to
    # Of all requests that are read or wait for their answer, and of answers that are not read.
    bodies_bytes: int = 2 * 2**30
    header_bytes: int = 32 * 2**10
    headers: int = 100
    connections: int = 4096
    pipelined: int = 32  # requests of one connection that wait; more are not read
    idle_seconds: float = 75.0  # a connection without a request
    header_seconds: float = 10.0  # from the first byte of a request to the end of its head
    stall_seconds: float = 20.0  # a body or an answer that moves by less than the slowest rate
    slowest_bytes: int = 1024  # a second, of a body that comes or an answer that is read


class Common:
    """What all connections of a door have in common: their limits, the time, what they hold."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held_bytes = 0  # of requests that are read or wait for their answer
        self.unread_bytes = 0  # of answers, when time was last looked at
        self.now = time.monotonic()  # coarse: whoever looks at the connections looks at the clock

    def hold(self, count: int, besides: int = 0) -> None:
        """So many bytes more are held. Raises Refused if they are too many; they count all the
        same, until they are given back. What the request holds `besides` does not count here."""
        self.held_bytes += count
        most = max(self.limits.bodies_bytes, self.limits.body_bytes)
        if self.held_bytes + self.unread_bytes - besides > most:
            raise Refused(Status.UNAVAILABLE, "the server holds as many requests as it can", 1.0)

    def give_back(self, count: int) -> None:
        """So many bytes are not held any more."""
        self.held_bytes -= count


class Pace:
    """Whether bytes move as quickly as they have to. It is looked at once in a while."""

    __slots__ = ("_count", "_since")

    def __init__(self, now: float, count: int = 0) -> None:
        self._since = now
        self._count = count

    def is_too_slow(self, now: float, count: int, limits: Limits) -> bool:
        """`count` grows with what has moved."""
        seconds = now - self._since
        if count - self._count >= limits.slowest_bytes * seconds:
            self._since, self._count = now, count
            return False
        return seconds > limits.stall_seconds
