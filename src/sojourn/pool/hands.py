"""What takes time: opening, parking, closing, burying, measuring. Each job has a thread of its own.

Nothing is decided here. What was done is told to the driver, which decides what follows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sojourn import events
from sojourn.errors import SessionBroken
from sojourn.pool.decisions.effects import Open
from sojourn.pool.decisions.terms import CopyId, Model
from sojourn.pool.leasing import Resident
from sojourn.pool.parking import Parking
from sojourn.session.opening import Blueprint
from sojourn.values import Place

if TYPE_CHECKING:
    from sojourn.pool.driver import Driver

# Between two readings of a copy that is in use. The kernel walks all its pages for one.
_MEASURE_SECONDS = 5.0
_MEASURE_GROWTH_SECONDS = 0.2  # the same where growth is judged by them
_clock = time.monotonic


@dataclass(frozen=True, slots=True)
class Source:
    """Where the copies of a model come from, and the line that registered it."""

    rules: Model
    blueprint: Blueprint
    place: Place
    device: str

    def name_of(self, copy: CopyId) -> str:
        return f"{copy.model}[{copy.slot}]" if self.rules.copies > 1 else copy.model


class Hands:
    """The jobs of one pool."""

    def __init__(self, driver: Driver, parking: Parking) -> None:
        self.sources: dict[str, Source] = {}
        self._driver = driver
        self._parking = parking

    def open(self, job: Open) -> None:
        driver, copy = self._driver, job.copy
        source = self.sources[copy.model]
        began = _clock()
        try:
            session = source.blueprint.open(
                source.place,
                source.name_of(copy),
                job.device or source.device,
                lambda stay: driver.is_being_opened(copy, stay),
            )
            try:
                if job.state is not None:
                    session.restore(str(job.state))
                session._stay.changed = False  # it is what the next open gives, too
                held = session.footprint().held_bytes
            except BaseException:
                session.close(0)
                raise
        except Exception as error:
            driver.has_not_opened(copy, error)
            return
        judges_growth = source.rules.max_growth_bytes is not None
        every = _MEASURE_GROWTH_SECONDS if judges_growth else _MEASURE_SECONDS
        now = _clock()
        if not driver.has_opened(Resident(copy, session, now, every), held, now - began):
            self.close(copy)

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
            resident.is_dying = True  # should its worker end now, nothing is lost
            resident.stay.changed = False
            driver.tell(lambda s, now: s.on_parked(copy, path, now - began, now))

    def discard(self, state: object) -> None:
        self._parking.discard(str(state))

    def close(self, copy: CopyId) -> None:
        driver = self._driver
        resident = driver.residents[copy]
        resident.is_dying = True  # from here on its end is no news
        place = driver.closed_at or driver.made_at
        residue = held = 0
        try:
            receipt = resident.stay.close(driver.seconds_to_finish(), place)
            held = receipt.held_bytes + sum(receipt.held_on_device.values())
            residue = receipt.residue.host_bytes + sum(receipt.residue.device_bytes.values())
        except Exception as error:
            residue = resident.stay.footprint().held_bytes
            events.emit("pool.close_failed", copy.model, place, error=str(error))
        driver.has_closed(copy, held or None, residue)

    def bury(self, resident: Resident) -> None:
        """A worker has died: tell its holders and the driver, which has it cleared away."""
        stay = resident.stay
        words = stay.notice_death()
        if words is None:  # it is being closed, and that is how it ended
            return
        # Steps that were under way say so themselves; they find out at the same moment as we do.
        stay.lifecycle.wait_idle(5.0)
        for terms in list(stay.leases):
            terms.end(f"the worker {words}", SessionBroken)
        self._driver.tell(lambda s, now: s.on_died(resident.copy, words, now))

    def measure(self, resident: Resident) -> None:
        """Learn what a copy holds by now."""
        resident.measure_at = _clock() + resident.measure_seconds
        held = resident.session.footprint().held_bytes
        if held:
            self._driver.tell(lambda s, now: s.on_measured(resident.copy, held, now))
