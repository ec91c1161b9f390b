"""The ways in which a stay ends: closed by its owner, garbage-collected, or closed at exit."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sojourn import events
from sojourn.errors import SessionClosed
from sojourn.process import exits, interrupts
from sojourn.process.deadlines import deadline_after, left_until
from sojourn.process.nets import net
from sojourn.session import totals
from sojourn.session.states import CLOSABLE, Input, State
from sojourn.values import Footprint, Place, Receipt
from sojourn.values.places import AT_EXIT

if TYPE_CHECKING:
    from sojourn.session.stay import Stay


class Ending:
    """The end of one stay."""

    def __init__(self, stay: Stay) -> None:
        self._stay = stay
        self._finishing = threading.Lock()
        self._when_gone: weakref.finalize[..., Any] | None = None
        self.is_impatient = False  # set by a close that does not wait for a replacement worker

    def close(self, timeout: float | None, place: Place) -> Receipt:
        """Refuse new steps, let running ones finish, end the worker, return the receipt."""
        stay = self._stay
        deadline = deadline_after(timeout)
        with self._without_replacement(deadline):
            before = self.refuse_steps(place)
        if before is State.CLOSED:
            if stay.receipt is None:
                raise SessionClosed(f"session {stay.name!r} was never opened")
            return stay.receipt
        # Another thread may be closing it already, with a longer timeout: the first timeout to
        # expire cuts off running steps, and the first thread to finish writes the receipt.
        started = time.monotonic()
        closer = threading.get_ident()
        cut_off = True
        try:
            if stay.backend is not None and stay.backend.is_calling_us():
                deadline = started  # do not wait: the running step itself waits for this thread
            elif stay.backend is not None:
                stay.backend.drain_awaited(deadline)
            cut_off = not stay.lifecycle.wait_to_close(left_until(deadline), closer)
        finally:
            if stay.lifecycle.is_telling_here():
                self._finish(started, cut_off, closer)  # another thread would wait for our lock
            else:
                # Also if a Ctrl-C arrived during the wait: steps are then cut off at once.
                interrupts.to_the_end(lambda: self._finish(started, cut_off, closer), stay.hurry)
        assert stay.receipt is not None
        return stay.receipt

    def refuse_steps(self, place: Place) -> State:
        """Refuse new steps from now on; returns the state before."""
        stay = self._stay
        if stay.is_foreign:
            raise stay.refusal(stay.lifecycle.state)

        def note() -> None:
            # Set before the event is sent: callers that are refused from now on report it.
            stay.closed_at = place

        return stay.lifecycle.happened_in(CLOSABLE, Input.CLOSE_ASKED, place, note)

    def watch(self, handle: object, when_gone: Callable[[], None]) -> None:
        """Call `when_gone` if the handle is garbage-collected before the stay ends."""
        self._when_gone = net(handle, when_gone)

    def forgotten(self) -> None:
        """Warn that the handle was garbage-collected, and close the stay in the background.

        This runs inside the garbage collector, perhaps while this very thread holds one of our
        locks, so it must not wait for any lock.
        """
        stay = self._stay
        if not self._end_in_background(self._close_forgotten):
            return
        warnings.warn(
            f"session {stay.name!r}, opened at {stay.owner}, was never closed; "
            "use `with` or call close()",
            ResourceWarning,
            stacklevel=2,
        )

    def dropped(self) -> None:
        """Close the stay in the background without a warning: dropping it was no mistake."""
        self._end_in_background(lambda: self.close(0, self._stay.owner))

    def _end_in_background(self, close: Callable[[], object]) -> bool:
        stay = self._stay
        if stay.receipt is not None or stay.is_foreign or stay.lifecycle.state is State.CLOSED:
            return False
        try:
            # A thread, because the close measures the worker for the receipt before it ends it.
            threading.Thread(target=close, name="sojourn-forgotten").start()
        except RuntimeError:
            stay.hurry()  # the interpreter exits and starts no threads
        return True

    def _close_forgotten(self) -> None:
        stay = self._stay
        totals.count("forgotten")
        events.emit("session.forgotten", stay.name, stay.owner, serial=stay.lifecycle.serial)
        self.close(0, stay.owner)

    @contextlib.contextmanager
    def _without_replacement(self, deadline: float | None) -> Iterator[None]:
        """Keep the worker from being replaced during the block. Waits until the deadline for a
        replacement that is under way, then kills the new worker."""
        lock = self._stay.keeping.lock
        if not lock.acquire(timeout=left_until(deadline)):
            self.is_impatient = True  # a worker that is still starting is killed as well
            self._stay.hurry()
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _finish(self, started: float, cut_off: bool, closer: int) -> None:
        stay = self._stay
        for terms in list(stay.leases):
            terms.end(f"session {stay.name!r} was closed by its owner at {stay.closed_at}")
        if cut_off:
            stay.footprint()  # sets `last_held`: after the kill nothing can be measured
            stay.hurry()
        with self._finishing:
            if stay.receipt is None:
                self._end_backend(started, closer)

    def _end_backend(self, started: float, closer: int) -> None:
        stay = self._stay
        backend = stay.backend
        assert backend is not None
        held = stay.footprint()
        if held.host_bytes == 0:
            held = stay.last_held
        account = backend.end(held)
        # Callers whose steps were cut off still use the lanes; wait until they have left.
        stay.lifecycle.wait_to_close(5.0, closer)
        backend.release()
        stay.comeback = None  # frees the model and arrays that it would load
        stay.receipt = Receipt(
            session=stay.name,
            held_bytes=held.host_bytes,
            returned_bytes=account.returned_bytes,
            peak_bytes=max(held.peak_bytes, held.host_bytes),
            seconds=time.monotonic() - started,
            runs=stay.lifecycle.runs(),
            residue=account.residue,
            held_on_device=held.device_bytes,
            returned_on_device=account.returned_on_device,
            how="broke, closed" if stay.how_it_died else "closed",
            note=account.note or _unmeasured(held),
        )
        stay.planning.forget()
        if self._when_gone is not None:
            self._when_gone.detach()
        open_stays.discard(stay)
        totals.add_receipt(stay.receipt)
        stay.lifecycle.happened(Input.ENDED, stay.closed_at)
        if events.is_listening():
            events.emit(
                "session.receipt",
                stay.name,
                stay.closed_at,
                account.returned_bytes,
                serial=stay.lifecycle.serial,
                receipt=stay.receipt.to_dict(),
            )


def _unmeasured(held: Footprint) -> str:
    return "" if held.host_bytes else "what it held when it died was not measured"


open_stays: weakref.WeakSet[Stay] = weakref.WeakSet()


def _close_all_at_exit() -> None:
    for stay in list(open_stays):
        if stay.is_foreign:
            continue
        stay.ending.is_impatient = True  # a worker that is still starting is killed
        if stay.backend is not None:
            try:
                stay.close(timeout=0, place=AT_EXIT)
            except SessionClosed:
                pass  # its opening has failed at this very moment


def _forget_all_in_child() -> None:
    for stay in list(open_stays):
        stay.lifecycle.become_foreign()
    open_stays.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)
exits.at_exit(exits.SESSIONS, _close_all_at_exit)
