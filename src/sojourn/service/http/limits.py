"""What one client may take of the server: bytes, connections and time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond these a client is refused or cut off. Sizes in bytes, times in seconds."""

    body_bytes: int = 256 * 2**20  # also of what a compressed one unfolds to
    bodies_bytes: int = 2 * 2**30  # of all requests that are read or wait for their answer
    header_bytes: int = 32 * 2**10
    headers: int = 100
    connections: int = 4096
    pipelined: int = 32  # requests of one connection that wait; more are not read
    idle_seconds: float = 75.0  # a connection without a request
    header_seconds: float = 10.0  # from the first byte of a request to the end of its head
    stall_seconds: float = 20.0  # a body or an answer that moves by less than the slowest rate
    slowest_bytes: int = 1024  # a second, of a body that comes or an answer that is read
