"""The slow jobs: opening, parking, closing, burying, measuring. Each runs on its own thread.

Nothing is decided here. A job reports its result to the books, which decide what follows.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn import events
from sojourn.errors import SessionBroken
from sojourn.pool.decisions.effects import Open
from sojourn.pool.decisions.terms import CopyId, Model
from sojourn.pool.leasing import Resident
from sojourn.pool.parking import Parking
from sojourn.session import checkpoints
from sojourn.session.devices import without_gpu
from sojourn.session.opening import Blueprint
from sojourn.values import Place

if TYPE_CHECKING:
    from sojourn.pool.driver import Driver
    from sojourn.process.spares import Fits
    from sojourn.process.worker import Worker

# Seconds between two checks of a copy in use. A check (of /proc/PID/statm) costs almost nothing. A
# reading, for which the kernel walks all pages, follows only if the size has changed, or after
# `_READ_SECONDS`.
_LOOK_SECONDS = 1.0
_LOOK_FOR_GROWTH_SECONDS = 0.2  # the same for a model with `max_growth`
_READ_SECONDS = 5.0
# The longest that closing a copy waits for its steps. It has no lease any more, but a step that
# began under one may still run; a step whose end was lost to a Ctrl-C looks the same.
_GRACE_SECONDS = 1.0
_PAGES_OF_A_CHANGE = 4 * 2**20 // mmap.PAGESIZE
_clock = time.monotonic


@dataclass(frozen=True, slots=True)
class Source:
    """What the copies of a model are opened from, and the line that registered the model."""

    rules: Model
    blueprint: Blueprint
    place: Place
    device: str

    def name_of(self, copy: CopyId) -> str:
        return f"{copy.model}[{copy.slot}]" if self.rules.copies > 1 else copy.model


class Hands:
    """The jobs of one pool."""

    def __init__(self, driver: Driver, parking: Parking) -> None:
        self._driver = driver
        self._parking = parking

    def open(self, job: Open) -> None:
        driver, copy = self._driver, job.copy
        source = job.source
        assert isinstance(source, Source)
        began = _clock()
        spare = _Offer(driver.spares.pop(job.spare, None) if job.spare is not None else None)
        try:
            session = source.blueprint.open(
                source.place,
                source.name_of(copy),
                job.device or source.device,
                lambda call_off: driver.is_being_opened(copy, call_off),
                None if job.spare is None else spare.take,
            )
            try:
                if job.state is not None:
                    session.restore(str(job.state))
                session._stay.changed = False  # the next open gives the same variables
                # For a footprint the kernel walks all pages of the worker while a request waits. A
                # known size is used instead; it is checked again while the copy is in use.
                held = job.known_bytes or session.footprint().held_bytes
            except BaseException:
                session.close(timeout=0)
                raise
        except Exception as error:
            driver.has_not_opened(copy, error)
            return
        finally:
            spare.withdraw()
        judges_growth = source.rules.max_growth_bytes is not None
        every = _LOOK_FOR_GROWTH_SECONDS if judges_growth else _LOOK_SECONDS
        now = _clock()
        if not driver.has_opened(Resident(copy, session, now, every), held, now - began):
            self.close(copy)

    def make_spare(self, number: int) -> None:
        """Make a spare worker and report it to the books."""
        from sojourn.process import spares

        try:
            worker = spares.make(without_gpu())
        except Exception as error:
            why = str(error)
            self._driver.tell(lambda s, now: s.on_spare_gone(number, now, why))
            return
        self._driver.has_spare(number, worker, worker.footprint().held_bytes)

    def end_spare(self, number: int) -> None:
        """End a spare worker that is no longer needed."""
        worker = self._driver.spares.pop(number, None)
        if worker is not None:  # else it is still being made
            self.bury_spare(number, worker)

    def bury_spare(self, number: int, worker: Worker) -> None:
        """End a spare worker that was removed from the list, perhaps because it has died."""
        from sojourn.process import spares

        spares.end(worker)
        self._driver.tell(lambda s, now: s.on_spare_gone(number, now, "it died"))

    def park(self, copy: CopyId) -> None:
        driver = self._driver
        resident = driver.residents[copy]
        began = _clock()
        try:
            path = self._parking.place_for(copy)
            resident.stay.keeping.park(path)
        except SessionBroken:
            self.bury(resident)
        except Exception as error:
            failed = error
            driver.tell(lambda s, now: s.on_park_failed(copy, failed, now))
        else:
            resident.is_dying = True  # its state is saved: its worker's end is no news
            resident.stay.changed = False
            driver.tell(lambda s, now: s.on_parked(copy, path, now - began, now))

    def discard(self, state: object) -> None:
        checkpoints.remove(str(state))

    def close(self, copy: CopyId) -> None:
        driver = self._driver
        resident = driver.residents[copy]
        resident.is_dying = True  # from now on its worker's end is no news
        place = driver.closed_at or driver.made_at
        try:
            receipt = resident.stay.close(min(driver.seconds_to_finish(), _GRACE_SECONDS), place)
            residue = receipt.residue.host_bytes + sum(receipt.residue.device_bytes.values())
            for listen in tuple(driver.on_receipt):
                listen(copy.model, receipt)
        except Exception as error:
            residue = resident.stay.footprint().held_bytes
            events.emit("pool.close_failed", copy.model, place, copy=str(copy), error=str(error))
        driver.has_closed(copy, residue)

    def bury(self, resident: Resident) -> None:
        """Report a dead worker to its holders and to the books, which have its copy closed."""
        stay = resident.stay
        words = stay.notice_death()
        if words is None:  # it ended because it is being closed
            return
        # Steps under way raise the error themselves: they notice the death at the same moment.
        stay.lifecycle.wait_idle(5.0)
        for terms in list(stay.leases):
            terms.end(f"the worker {words}", SessionBroken)
        self._driver.tell(lambda s, now: s.on_died(resident.copy, words, now))

    def measure(self, resident: Resident) -> None:
        """Measure what a copy holds, if that may have changed, and report it to be charged."""
        try:
            resident.is_used = False
            now = _clock()
            pages = _resident_pages(resident.stay.pid)
            is_due = now - resident.read_at >= min(_READ_SECONDS, 5 * resident.measure_seconds)
            if not is_due and abs(pages - resident.pages) < _PAGES_OF_A_CHANGE:
                return
            held = resident.session.footprint().held_bytes
            resident.pages, resident.read_at = pages, now
            if held:
                self._driver.tell(lambda s, now: s.on_measured(resident.copy, held, now))
        finally:
            resident.measure_at = _clock() + resident.measure_seconds
            resident.is_being_measured = False
            if resident.is_used or resident.stay.leases:
                self._driver.wake_keeper()  # its sleep did not account for `measure_at`


class _Offer:
    """A spare worker for one opening, which may not use it after all."""

    def __init__(self, worker: Worker | None) -> None:
        self._worker = worker

    def take(self, fits: Fits) -> Worker | None:
        if self._worker is not None and not fits(self._worker):
            self.withdraw()  # its room belongs to the copy now
        worker, self._worker = self._worker, None
        return worker

    def withdraw(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            from sojourn.process import spares

            spares.end(worker)


def _resident_pages(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as numbers:
            return int(numbers.read().split()[1])
    except OSError:
        return 0  # the process has ended
