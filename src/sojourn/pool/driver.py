"""The operations of a pool: models, leases, waiting, evicting, closing. The books decide."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sojourn.errors import PoolTimeout, SessionClosed
from sojourn.pool.books import Books
from sojourn.pool.deciding import LOOK_SECONDS, clock, no_keeper
from sojourn.pool.decisions.effects import Effects, Expire
from sojourn.pool.decisions.scheduler import Scheduler
from sojourn.pool.decisions.status import PoolStatus
from sojourn.pool.decisions.terms import CopyId, Holder, Model, Policy, Request
from sojourn.pool.hands import Hands, Source
from sojourn.pool.leasing import PoolLease, Waiter
from sojourn.pool.parking import Parking
from sojourn.process.deadlines import deadline_after, left_until
from sojourn.session.totals import Steps
from sojourn.values import Place, Receipt

_serials = itertools.count(1)


class Wish(NamedTuple):
    """A request of the pool's user for a lease: the model, the holder, and the pool's handle."""

    model: str
    holder: Holder
    owner: Any  # the pool's handle, which the lease keeps alive
    version: int | None = None
    warm_slot: int | None = None


MakeModel = Callable[[int], tuple[Model, Source]]  # from the number of its version


class Driver(Books):
    """One pool at work. The handle (`Pool`) refers to it, and so do its threads and leases."""

    def __init__(self, policy: Policy, made_at: Place, parking: Parking) -> None:
        super().__init__(policy, made_at)
        self.serial = next(_serials)  # two pools may be made by the same line
        self.policy = policy
        self.parking = parking
        self.hands = Hands(self, parking)
        self.start_keeper: Callable[[], None] = no_keeper
        self.on_receipt: list[Callable[[str, Receipt], None]] = []  # callbacks of servers
        self._maker = os.getpid()
        self._cut_off_at: float | None = None  # when closing stops waiting for steps to finish
        self._is_hurried = False  # close does not wait for leases any longer

    # -- models -------------------------------------------------------------------------------

    def register(self, make: MakeModel, name: str, version: int | None) -> None:
        """Add a model under this version or, if the version is None and the name is new, under
        the first free version."""
        self.require_ours()

        def decide(scheduler: Scheduler, now: float) -> None:
            self.require_open()
            if version is None and scheduler.versions(name):
                raise ValueError(
                    f"a model named {name!r} is registered already; update() replaces it, and "
                    "version= registers another version beside it"
                )
            scheduler.register(*make(version or scheduler.free_version(name)))

        self.decide(decide)

    def unregister(self, name: str, version: int | None, timeout: float | None) -> bool:
        """Unregister a version, or all; return whether all its idle copies are closed."""

        def choose(scheduler: Scheduler) -> tuple[list[str], Effects]:
            known = [m for m in scheduler.versions(name) if version in (None, m.version)]
            keys = [model.key for model in known or [scheduler.known(name, version)]]
            return keys, scheduler.on_unregister(keys, clock(), "unregistered")

        return self._let_go(choose, timeout)

    def evict(self, name: str, version: int | None, timeout: float | None) -> bool:
        """Evict the copies of a model; return whether all its idle copies are closed."""

        def choose(scheduler: Scheduler) -> tuple[list[str], Effects]:
            key = scheduler.known(name, version).key
            return [key], scheduler.on_evict(key, clock())

        return self._let_go(choose, timeout)

    def change(self, name: str, version: int | None, **rules: Any) -> None:
        """Change rules of a version, for its open copies as well."""
        self.require_ours()

        def decide(scheduler: Scheduler, now: float) -> None:
            self.require_open()
            self._route(scheduler.on_change(scheduler.known(name, version).key, now, **rules))

        self.decide(decide)

    def _let_go(
        self, choose: Callable[[Scheduler], tuple[list[str], Effects]], timeout: float | None
    ) -> bool:
        self.require_ours()

        def decide(scheduler: Scheduler, now: float) -> set[CopyId]:
            self.require_open()
            keys, effects = choose(scheduler)
            self._route(effects)
            return scheduler.leaving(keys)

        going = self.decide(decide)

        def have_gone(scheduler: Scheduler) -> bool:
            # Not waiting for a copy that could not be parked: it stays.
            return not any(self.is_there(c) and not scheduler.has_stayed(c) for c in going)

        self.wait_until(have_gone, timeout)
        return not any(map(self.is_there, going))

    # -- leases -------------------------------------------------------------------------------

    def ask(self, wish: Wish, ring: Callable[[], None] | None = None) -> PoolLease | Waiter:
        """Return a lease if one is available now, otherwise a queued waiter."""
        self.require_ours()
        self.start_keeper()  # first: if that fails, no request was made yet
        ticket = next(self._tickets)
        request = Request(ticket, wish.model, wish.holder, clock(), wish.warm_slot, wish.version)
        waiter = Waiter(request, ring)
        return self.request(request, waiter, wish.owner) or waiter

    def look(self, waiter: Waiter, deadline: float | None, owner: Any) -> PoolLease | bool:
        """Return the waiter's answer, False if there is none yet. After the deadline the waiter is
        refused, unless it was offered a copy at the last moment."""
        if self.inbox and waiter.answer is None:
            self.decide(lambda scheduler, now: None)  # a returned lease may free its copy
        got = self.take(waiter, owner)
        if got is False and deadline is not None and clock() >= deadline:
            self.tell(lambda s, now: s.on_timeout(waiter.request.ticket, now))
            got = self.take(waiter, owner)
            if got is False:
                model = waiter.request.model
                raise PoolTimeout(f"{model}: the copy that was offered died, and time was up")
        return got

    def wait(self, waiter: Waiter, deadline: float | None, owner: Any) -> PoolLease | bool:
        """Wait for the answer on this thread."""
        try:
            while True:
                got = self.look(waiter, deadline, owner)
                if got is not False:
                    return got
                waiter.wait(left_until(deadline, most=LOOK_SECONDS))
        finally:
            self.cancel(waiter)

    def lease(self, wish: Wish, timeout: float | None) -> PoolLease:
        """Ask for a lease, and wait for it on this thread if necessary."""
        deadline = deadline_after(timeout)
        got: PoolLease | Waiter | bool = self.ask(wish)
        if isinstance(got, Waiter):
            got = self.wait(got, deadline, wish.owner)
        assert isinstance(got, PoolLease)
        return got

    def preload(self, wishes: Iterable[Wish], deadline: float | None) -> None:
        """Open copies, and wait until all are open."""
        waiters = []
        try:
            for wish in wishes:
                waiter = self.ask(wish)
                assert isinstance(waiter, Waiter)
                waiters.append((waiter, wish.owner))
            for waiter, owner in waiters:
                self.wait(waiter, deadline, owner)
        finally:
            for waiter, _ in waiters:
                self.cancel(waiter)

    # -- the end ------------------------------------------------------------------------------

    def close(self, timeout: float | None, place: Place, closer: int | None = None) -> None:
        """Close all sessions. May be called twice, and by several threads at the same time.

        `closer` is the key of the thread that waits for it. Not to be called on the main thread.
        """
        if self.is_foreign:
            return
        deadline = None if timeout is None else clock() + timeout

        def begin(scheduler: Scheduler, now: float) -> list[Expire]:
            self.closed_at = self.closed_at or place
            self._cut_off_at = deadline
            self._route(scheduler.on_shutdown(place, now))
            # The closing thread cannot give back its own leases while it waits here.
            return [Expire(*held) for held in scheduler.held_by(closer)]

        def cut(scheduler: Scheduler, now: float) -> None:
            self._cut_off_at = now if scheduler.is_leased else self._cut_off_at
            self._route(scheduler.on_shutdown_timeout(now))

        for expired in self.decide(begin):
            self.end_lease(expired)
        try:
            self.wait_until(lambda s: not s.is_leased or self._is_hurried, timeout)
        finally:
            self.decide(cut)
            self.wait_until(lambda s: s.is_empty, None)
            self.wake_keeper()
            self.parking.leave()

    def hurry(self) -> None:
        """Make a running `close` stop waiting for leases."""
        self._is_hurried = True
        self.ring()

    # -- questions ----------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        return self._scheduler.names

    def copies(self, name: str, version: int | None = None) -> int:
        """How many copies a model may have; 1 for an unknown one, so that asking for it fails."""
        model = self._scheduler.find(name, version)
        return 1 if model is None else model.copies

    def versions(self, name: str) -> tuple[int, ...]:
        return tuple(model.version for model in self._scheduler.versions(name))

    def registration(self, name: str, version: int | None = None) -> int | None:
        """The registration number of a version (None: the latest), which differs from that of a
        later one with the same name and version. None if no such version exists."""
        return self._scheduler.registration(name, version)

    def status(self) -> PoolStatus:
        return self.decide(lambda scheduler, now: scheduler.status(now))

    def steps_by_model(self) -> dict[tuple[str, int], Steps]:
        """The steps of every model and version."""

        def decide(scheduler: Scheduler, now: float) -> dict[str, Steps]:
            sums = {key: steps.copy() for key, steps in self._ended_steps.items()}
            for copy, resident in self.residents.items():
                sums.setdefault(copy.model, Steps()).add(resident.stay.lifecycle)
            return sums

        sums = self.decide(decide)
        models = (model for name in self.names() for model in self._scheduler.versions(name))
        return {
            (model.name, model.version): sums[model.key] for model in models if model.key in sums
        }

    @property
    def is_over(self) -> bool:
        """Whether the pool is closed and all its workers have ended."""
        return self.closed_at is not None and self._scheduler.is_empty

    def seconds_to_finish(self) -> float:
        """How long a step may continue whose session is being closed."""
        return math.inf if self._cut_off_at is None else max(0.0, self._cut_off_at - clock())

    def require_open(self) -> None:
        if self.closed_at is not None:
            raise SessionClosed(f"the pool was closed at {self.closed_at}")

    def require_ours(self) -> None:
        if self.is_foreign:
            raise SessionClosed(
                f"the pool made at {self.made_at} belongs to process {self._maker}, and this is a "
                f"fork of it (process {os.getpid()}); make the pool after the fork: create one "
                "pool per process"
            )

    def become_foreign(self) -> None:
        super().become_foreign()
        self.parking.become_foreign()


class Switch:
    """One update: a new version is opened beside the old one, and takes over when it is ready.

    Not run on the main thread (see `to_the_end`), so that an update that has begun completes.
    """

    def __init__(
        self, driver: Driver, make: MakeModel, wish: Wish, timeout: float | None, keeps_old: bool
    ) -> None:
        self._driver = driver
        self._make = make
        self._wish = wish
        self._deadline = deadline_after(timeout)
        self._keeps_old = keeps_old
        self._is_hurried = False
        self._model: Model | None = None
        self.version = 0

    def run(self) -> None:
        driver, wish = self._driver, self._wish
        driver.require_ours()
        driver.start_keeper()
        self._model = model = driver.decide(self._begin)
        try:
            if self._is_hurried:
                self.hurry()
            # A pinned model needs all its copies open; for any other, one open copy can serve.
            slots = range(model.copies if model.pinned else 1)
            wishes = [Wish(wish.model, wish.holder, wish.owner, model.version, n) for n in slots]
            driver.preload(wishes, self._deadline)
            driver.tell(lambda s, now: s.on_update(model.key, now, keeps_old=self._keeps_old))
        except BaseException:
            # The old version has served during the update and continues to.
            self._give_up("its update failed")
            raise
        self.version = model.version

    def hurry(self) -> None:
        """Give up the update because its caller was interrupted: its preload is refused."""
        self._is_hurried = True
        self._give_up("its update was interrupted")

    def _give_up(self, why: str) -> None:
        model = self._model
        if model is not None:
            self._driver.tell(lambda s, now: s.on_give_up([model.key], now, why))

    def _begin(self, scheduler: Scheduler, now: float) -> Model:
        self._driver.require_open()
        name, version = self._wish.model, self._wish.version
        known = scheduler.versions(name) or [scheduler.known(name)]
        if version is not None and version <= known[-1].version:
            raise ValueError(
                f"{name}: version {known[-1].version} is there; the new version must be higher, "
                f"not {version}"
            )
        model, source = self._make(version or scheduler.free_version(name))
        scheduler.register(model, source, is_coming=True)
        return model
