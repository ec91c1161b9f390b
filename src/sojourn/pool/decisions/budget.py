"""The account of the pool's memory: reserved before opening, charged until the receipt arrives.

Pure arithmetic in whole, signed bytes. It never asks the machine how much memory is free: the
memory of other programs is not part of the account.
"""

from __future__ import annotations

from sojourn.errors import InternalError
from sojourn.pool.decisions.terms import CopyId, Room


class Budget:
    """The charges of all copies. `spare` may be negative after a session has grown."""

    def __init__(self, limit: Room) -> None:
        self.limit = limit
        self._charges: dict[CopyId, int] = {}
        self._residue: dict[CopyId, int] = {}
        self._no_sessions: set[CopyId] = set()  # charged, but not counted as sessions
        self.charged_bytes = 0

    @property
    def residue_bytes(self) -> int:
        """Bytes that closed copies left in use, by their receipts. They stay charged."""
        return sum(self._residue.values())

    @property
    def residue(self) -> dict[CopyId, int]:
        return dict(self._residue)

    @property
    def spare(self) -> Room:
        """The room that can be reserved now."""
        sessions = len(self._charges) - len(self._no_sessions)
        return Room(self.limit.bytes - self.charged_bytes, self.limit.sessions - sessions)

    def charge_of(self, copy: CopyId) -> int:
        return self._charges.get(copy, 0)

    def reserve(self, copy: CopyId, count: int) -> None:
        if copy in self._charges or not self.spare.covers(Room(count, 1)):
            raise InternalError(f"{copy}: {count} bytes reserved where {self.spare} is spare")
        self._charges[copy] = count
        self.charged_bytes += count

    def reserve_spare(self, account: CopyId, count: int) -> None:
        """Charge a spare worker, which does not count as a session yet."""
        self._no_sessions.add(account)
        self._charges[account] = count
        self.charged_bytes += count

    def is_session(self, copy: CopyId) -> bool:
        """Whether the copy counts as a session."""
        return copy in self._charges and copy not in self._no_sessions

    def replace_session(self, copy: CopyId) -> None:
        """Stop counting a closing copy as a session, because a spare worker takes its place. It
        stays charged until it has ended."""
        self._no_sessions.add(copy)

    def charge(self, copy: CopyId, count: int) -> None:
        """Charge a copy with its measured size."""
        self.charged_bytes += count - self._charges[copy]
        self._charges[copy] = count

    def release(self, copy: CopyId, residue_bytes: int = 0) -> None:
        """Free a copy's charge once its receipt has arrived, except for the residue that the
        receipt reports."""
        self.charged_bytes -= self._charges.pop(copy, 0) + self._residue.pop(copy, 0)
        self._no_sessions.discard(copy)
        if residue_bytes > 0:
            self._residue[copy] = residue_bytes
            self.charged_bytes += residue_bytes
