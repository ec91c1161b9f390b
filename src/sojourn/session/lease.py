"""The right to use a session without the right to close it.

An owner lends; a pool leases. Both hand out this handle. It refers to one stay, so that a late
call of an expired lease can never reach the session that replaced it.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

from sojourn import events
from sojourn.errors import LeaseExpired, SessionBroken, SessionClosed
from sojourn.session.plans import Fetches
from sojourn.session.session import Usable
from sojourn.session.stay import Stay
from sojourn.values import Place

# The error that an ended lease raises: LeaseExpired, or SessionBroken if the worker died.
Ending = type[LeaseExpired] | type[SessionBroken]


class Terms:
    """The state of a lease, shared with the code that may end it: whether it has ended, and why."""

    __slots__ = (
        "_timer",
        "ended",
        "error",
        "handle",
        "holder",
        "max_seconds",
        "runs",
        "since",
        "stay",
    )

    def __init__(self, stay: Stay, holder: Place, max_seconds: float | None = None) -> None:
        self.stay = stay
        self.holder = holder
        self.max_seconds = max_seconds
        # Detects that the handle is garbage-collected. Removed when the lease ends: from then on
        # no code of ours runs in a finalizer, where Python loses a Ctrl-C.
        self.handle: weakref.ref[Lease] | None = None
        self.since = time.monotonic()
        self.runs = 0
        self.ended: str | None = None  # why it has ended, as a sentence
        self.error: Ending = LeaseExpired
        self._timer: threading.Timer | None = None
        stay.leases.add(self)
        events.emit("lease.granted", stay.name, holder)

    def warn_after(self, seconds: float) -> None:
        """Report the holder if it still has the lease after so many seconds."""
        most = min(seconds, threading.TIMEOUT_MAX)
        self._timer = threading.Timer(most, self.tell_overdue, [seconds])
        self._timer.daemon = True
        self._timer.start()

    def end(self, why: str, error: Ending = LeaseExpired) -> bool:
        """End the lease; False if it had ended before. Further calls raise the error."""
        try:
            self.stay.leases.remove(self)  # holder and owner may race: only one succeeds
        except KeyError:
            return False
        self.error = error
        self.ended = why
        self.handle = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        events.emit("lease.ended", self.stay.name, self.holder, runs=self.runs, why=why)
        return True

    def has_ended(self) -> bool:
        """Whether the lease has ended. The first call after its time is up ends it."""
        most = self.max_seconds
        if self.ended is None and most is not None and time.monotonic() > self.since + most:
            self.end(f"its {most:g} s are over")
        return self.ended is not None

    def watch(self, handle: Lease) -> None:
        """Warn if the handle is garbage-collected before the lease has ended.

        Not by weakref.finalize, which costs more than all the rest of a warm lease.
        """
        self.handle = weakref.ref(handle, self._handle_gone)

    def _handle_gone(self, _: object) -> None:
        self.handle = None
        if not sys.is_finalizing() and not self.has_ended():
            self.forgotten()

    def forgotten(self) -> None:
        """End the lease, whose handle was garbage-collected, and warn."""
        if self.stay.is_foreign or not self.end("its handle was garbage-collected"):
            return
        warnings.warn(
            f"a lease of session {self.stay.name!r}, taken at {self.holder}, was never returned; "
            "use `with` or call close()",
            ResourceWarning,
            stacklevel=2,
        )

    def tell_overdue(self, seconds: float) -> None:
        """Report that the lease is still held, after so many seconds."""
        if self.ended is None:
            held = round(seconds, 3)
            events.emit("lease.overdue", self.stay.name, self.holder, seconds=held, runs=self.runs)


class Lease(Usable):
    """A session lent to you. The lease lives until you close it; prefer a `with` block.

    It can do everything that a session can, except close it: closing a lease only gives the session
    back. After the owner has closed the session, or `max_seconds` have passed, the next call raises
    LeaseExpired.
    """

    def __init__(
        self,
        stay: Stay,
        holder: Place,
        *,
        max_seconds: float | None = None,
        lease_warning_seconds: float | None = None,
    ) -> None:
        self._terms = Terms(stay, holder, max_seconds)
        self._terms.watch(self)
        if lease_warning_seconds is not None:
            self._terms.warn_after(lease_warning_seconds)

    @property
    def _stay(self) -> Stay:  # type: ignore[override]
        if self._terms.has_ended():
            raise self._expired()
        return self._terms.stay

    @property
    def holder(self) -> Place:
        """The line of code that took the lease."""
        return self._terms.holder

    @property
    def held_seconds(self) -> float:
        """How long the lease has been held."""
        return time.monotonic() - self._terms.since

    @property
    def runs(self) -> int:
        """How many steps were run with the lease."""
        return self._terms.runs

    @property
    def is_active(self) -> bool:
        """Whether the lease can still be used."""
        return not self._terms.has_ended()

    def _run(self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None) -> Any:
        try:
            result = super()._run(fetches, feeds, timeout)
        except SessionClosed as closed:
            raise self._refused(closed) from None
        self._terms.runs += 1
        return result

    async def _arun(
        self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None
    ) -> Any:
        try:
            result = await super()._arun(fetches, feeds, timeout)
        except SessionClosed as closed:
            raise self._refused(closed) from None
        self._terms.runs += 1
        return result

    def _refused(self, closed: SessionClosed) -> Exception:
        if self._terms.stay.is_foreign:
            return closed
        self._terms.end(str(closed))  # the owner closed it during this call
        return self._expired()

    def close(self) -> None:
        """Give the session back. May be called twice."""
        self._terms.end("it was given back")

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        terms = self._terms
        state = "ended" if terms.has_ended() else "active"
        return (
            f"<Lease of {terms.stay.name!r} {state} | {terms.runs} runs | held by {terms.holder}>"
        )

    def _expired(self) -> LeaseExpired | SessionBroken:
        terms = self._terms
        return terms.error(
            f"the lease of session {terms.stay.name!r}, taken at {terms.holder}, has ended: "
            f"{terms.ended}"
        )
