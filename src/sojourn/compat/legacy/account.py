"""The account of a program's sessions: where they were opened, what they did, what they left.

It only records when a session opens and closes, and reports at the end.
"""

from __future__ import annotations

import contextlib
import weakref
from dataclasses import dataclass, field
from typing import Any

from sojourn.compat.legacy.placement import Fallbacks
from sojourn.values import Place, Receipt
from sojourn.values.amounts import format_bytes


@dataclass(slots=True)
class Stay:
    """One session of the program, from the line that opened it to its end."""

    number: int
    kind: str
    opened: Place
    calls: int = 0  # calls of `run`, used where nothing else counts steps
    is_closed: bool = False
    left_open: bool = False
    # The session's `sojourn.session.stay.Stay`. It outlives the session and has the receipt, even
    # if the program dropped the session without closing it.
    account: Any = None
    _receipt: Receipt | None = None

    @property
    def receipt(self) -> Receipt | None:
        """The measurements from the end of the session; None if nothing measures."""
        return self._receipt or getattr(self.account, "receipt", None)

    @property
    def runs(self) -> int:
        """The number of steps that were run, including those of callables."""
        return self.calls if self.account is None else int(self.account.lifecycle.steps)

    def has_closed(self, receipt: Receipt | None) -> None:
        """Record that the session was closed, by the program or after its end."""
        self.is_closed = True
        self._receipt = receipt

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        held = self.receipt
        return {
            "session": self.number,
            "kind": self.kind,
            "file": self.opened.file,
            "line": self.opened.line,
            "runs": self.runs,
            "held_bytes": held.held_bytes if held else None,
            "returned_bytes": held.returned_bytes if held else None,
            "left_open": self.left_open,
        }

    def __str__(self) -> str:
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
        if self.receipt is None:
            memory = "memory not measured"
        else:
            memory = (
                f"{format_bytes(self.receipt.held_bytes)} held, "
                f"{format_bytes(self.receipt.returned_bytes)} returned"
            )
        end = "left open by the program" if self.left_open else "closed"
        return f"  {self.opened}  {self.kind}: {runs}, {memory}, {end}"


@dataclass(slots=True)
class Ledger:
    """Every session of one program run."""

    stays: list[Stay] = field(default_factory=list)
    isolation: str = ""
    fallbacks: Fallbacks = field(default_factory=Fallbacks)
    _sessions: list[weakref.ref[Any]] = field(default_factory=list)
    _held: list[Any] = field(default_factory=list)

    def opened(self, session: Any, kind: str, place: Place) -> Stay:
        """Record that a session was opened at `place`."""
        stay = Stay(len(self.stays) + 1, kind, place)
        self.stays.append(stay)
        self._sessions.append(weakref.ref(session))
        return stay

    def hold(self) -> None:
        """Keep alive all sessions that still exist: from now on only exit handlers close some.

        `close_what_is_open` closes the others later, so that their account is taken.
        """
        self._held = [s for s in (ref() for ref in self._sessions) if s is not None]

    def program_ended(self) -> None:
        """Mark the sessions that are not closed as left open: the program has ended."""
        for stay in self.stays:
            stay.left_open = not stay.is_closed

    def close_what_is_open(self) -> None:
        """Close the sessions that the program left open, the newest first."""
        for stay, reference in reversed(list(zip(self.stays, self._sessions, strict=True))):
            session = reference()
            if session is not None and not stay.is_closed:
                # If one session cannot be closed, the others must still be closed.
                with contextlib.suppress(Exception):
                    session.close()
        self._held.clear()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        sessions = [stay.to_dict() for stay in self.stays]
        return {
            "isolation": self.isolation,
            "sessions": sessions,
            "fallbacks": self.fallbacks.to_dict(),
        }

    def text(self) -> str:
        """Return a few lines for people to read."""
        if not self.stays:
            return "sojourn: the program opened no session"
        count = len(self.stays)
        left = sum(stay.left_open for stay in self.stays)
        head = f"sojourn: {count} session{'' if count == 1 else 's'}"
        head += f", {left} left open" if left else ", all closed"
        return "\n".join([head, *_joined(self.stays), *self.fallbacks.lines()])


def _joined(stays: list[Stay]) -> list[str]:
    """Return a line per session; many sessions opened at one place share a line."""
    by_place: dict[Place, list[Stay]] = {}
    for stay in stays:
        by_place.setdefault(stay.opened, []).append(stay)
    lines = []
    for group in by_place.values():
        if len(group) <= 3:
            lines += [str(stay) for stay in group]
            continue
        first = group[0]
        runs = sum(stay.runs for stay in group)
        receipts = [stay.receipt for stay in group if stay.receipt]
        held = max((r.held_bytes for r in receipts), default=0)
        returned = sum(r.returned_bytes for r in receipts)
        memory = (
            f"at most {format_bytes(held)} held, {format_bytes(returned)} returned in all"
            if receipts
            else "memory not measured"
        )
        left = sum(stay.left_open for stay in group)
        lines.append(
            f"  {first.opened}  {len(group)} times {first.kind}: {runs} runs, {memory}, "
            f"{f'{left} left open by the program' if left else 'closed'}"
        )
    return lines
