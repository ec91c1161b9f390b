"""The pool's one long-lived thread: timers, dead workers, overdue leases, main-thread errands.

It starts with the first lease that has to wait and ends when the pool is closed and empty. Slow
work, and code of others, runs on threads that live for one job each. The keeper refers to the
driver, never to the handle, so that a forgotten pool is garbage-collected.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import queue
import select
import threading
import time
from functools import partial

from sojourn.errors import PlatformError
from sojourn.pool.copies import KEEPER, Job
from sojourn.pool.driver import Driver
from sojourn.pool.leasing import Resident
from sojourn.process.interrupts import is_no_thread
from sojourn.session.lease import Terms

_clock = time.monotonic
_log = logging.getLogger("sojourn.pool")
_RETRY_SECONDS = 0.05  # until a retry after an error or a lack of threads
_LONGEST_SLEEP = 86400.0  # poll() takes milliseconds as a C int
_PATIENCE_SECONDS = 1.0  # without a thread for a job; then the keeper runs it itself


class _Bell:
    """An eventfd that is closed when the last reference to this object is gone.

    So no thread writes to a descriptor whose number was reused for another file; and no lock is
    needed, on which a ring from inside the garbage collector could deadlock.
    """

    __slots__ = ("fd",)

    def __init__(self) -> None:
        self.fd = -1
        self.fd = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class Keeper:
    """The keeper of one driver."""

    def __init__(self, driver: Driver, lease_warning_seconds: float | None) -> None:
        self._driver = driver
        self._warning_seconds = lease_warning_seconds
        self._warned: set[Terms] = set()
        self._bell: _Bell | None = None
        self._thread: threading.Thread | None = None
        self._jobs: list[threading.Thread] = []
        self._short_since: float | None = None  # since when no thread could be started
        self._starting = threading.Lock()
        driver.start_keeper = self.start
        driver.wake_keeper = self.wake

    def start(self) -> None:
        """Start the keeper's thread, once.

        `Thread.start` is called on a thread started by C code, because it is many lines of Python:
        interrupted between two of them, the main thread would not know whether a keeper runs.
        """
        if self._thread is not None:
            return
        answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        try:
            _thread.start_new_thread(self._start_thread, (answer,))
        except RuntimeError as error:
            if not is_no_thread(error):
                raise
            answer.put(error)
        failure = answer.get()
        if failure is not None:
            raise PlatformError(f"a pool needs a thread of its own: {failure}") from None

    def _start_thread(self, answer: queue.SimpleQueue[Exception | None]) -> None:
        failure: Exception | None = None
        with self._starting:
            if self._thread is None and not self._driver.is_over:
                thread = threading.Thread(target=self._keep, name=KEEPER, daemon=True)
                try:
                    self._bell = _Bell()
                    self._driver.has_keeper = True
                    thread.start()
                    self._thread = thread
                except (RuntimeError, OSError) as error:  # no thread, or no descriptor
                    self._driver.has_keeper = False
                    self._bell = None
                    failure = error.with_traceback(None)
        answer.put(failure)

    def wake(self) -> None:
        """Wake the keeper. Never blocks, so that any thread may call it."""
        bell = self._bell
        if bell is not None:
            bell.ring()

    def join(self) -> None:
        """Wait until the keeper and all its jobs have ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self.wake()
            thread.join()
            self._thread = None  # here: the main thread must not drop it, see `interrupts`

    def become_foreign(self) -> None:
        """Reset the keeper in a fork: its thread does not exist there; the bell is the parent's."""
        self._starting = threading.Lock()
        self._thread = None
        if self._bell is not None:
            self._bell.close()  # the frames of the missing thread would keep it open
            self._bell = None

    # -- the thread ---------------------------------------------------------------------------

    def _keep(self) -> None:
        # No frame here refers to the bell: the traceback of an error in an errand would keep it.
        driver = self._driver
        while not (driver.is_over and not driver.jobs):
            try:
                self._look_after()
            except Exception:
                # Whatever the error is, the rest of the pool must not wait forever because of it.
                with contextlib.suppress(Exception):  # a logging handler of the user's may fail
                    _log.exception("the pool made at %s: its keeper goes on", driver.made_at)
                time.sleep(_RETRY_SECONDS)
        driver.has_keeper = False
        driver.run_errands()  # those added before the line above
        for thread in self._jobs:
            thread.join()
        self._bell = None

    def _look_after(self) -> None:
        driver = self._driver
        self._watch()
        driver.run_errands()
        driver.empty_inbox()
        self._mind_leases()
        self._measure_some()
        timer_at = driver.timer_at
        if timer_at is not None and _clock() >= timer_at:
            driver.timer_at = None
            driver.tell(lambda s, now: s.on_timer(now))
        self._do_jobs()

    def _watch(self) -> None:
        """Sleep until the bell, a timer or the end of a worker; queue jobs for dead workers."""
        driver = self._driver
        poll = select.poll()
        bell = -1 if self._bell is None else self._bell.fd  # the number only, see `_keep`
        poll.register(bell, select.POLLIN)
        watched: dict[int, Resident] = {}
        with driver.lock:
            for resident in driver.residents.values():
                if not resident.is_dying:
                    watched[resident.pidfd] = resident
                    poll.register(resident.pidfd, select.POLLIN)
            spares = {worker.pidfd: number for number, worker in driver.spares.items()}
        for pidfd in spares:
            poll.register(pidfd, select.POLLIN)
        seconds = self._seconds_to_sleep()
        for fd, _ in poll.poll(None if seconds is None else seconds * 1000):
            if fd == bell:
                os.eventfd_read(bell)
                continue
            if fd in spares:
                spare = driver.spares.pop(spares[fd], None)
                if spare is not None:
                    driver.jobs.append(partial(driver.hands.bury_spare, spares[fd], spare))
                continue
            resident = watched[fd]
            with driver.lock:
                is_news = not resident.is_dying
                resident.is_dying = True
            if is_news:
                driver.jobs.append(partial(driver.hands.bury, resident))

    def _seconds_to_sleep(self) -> float | None:
        driver = self._driver
        times = [] if driver.timer_at is None else [driver.timer_at]
        if self._warning_seconds is not None:
            times.append(self._next_warning())
        if self._short_since is not None:
            times.append(_clock() + _RETRY_SECONDS)
        times += (r.measure_at for r in self._to_be_measured() if r.is_used or r.stay.leases)
        return max(0.0, min(min(times) - _clock(), _LONGEST_SLEEP)) if times else None

    def _do_jobs(self) -> None:
        self._jobs = [thread for thread in self._jobs if thread.is_alive()]
        jobs = self._driver.jobs
        while jobs:
            try:
                self._start_job(jobs[0])
            except RuntimeError:  # no thread can be started
                if self._is_patient():
                    return
                jobs.popleft()()  # on the keeper itself: late, but done
            else:
                jobs.popleft()
        self._short_since = None

    def _start_job(self, job: Job) -> None:
        thread = threading.Thread(target=job, name="sojourn-pool-job", daemon=True)
        thread.start()
        self._jobs.append(thread)

    def _is_patient(self) -> bool:
        now = _clock()
        self._short_since = self._short_since or now
        return now - self._short_since < _PATIENCE_SECONDS

    def _to_be_measured(self) -> list[Resident]:
        residents = list(self._driver.residents.values())
        return [r for r in residents if not r.is_dying and not r.is_being_measured]

    def _measure_some(self) -> None:
        now = _clock()
        for resident in self._to_be_measured():
            if now > resident.measure_at:
                resident.is_being_measured = True
                self._driver.jobs.append(partial(self._driver.hands.measure, resident))

    # -- overdue leases -----------------------------------------------------------------------

    def _leases(self) -> list[Terms]:
        return [t for r in list(self._driver.residents.values()) for t in list(r.stay.leases)]

    def _next_warning(self) -> float:
        assert self._warning_seconds is not None
        since = [terms.since for terms in self._leases() if terms not in self._warned]
        if since:
            return min(since) + self._warning_seconds
        # A lease taken at a door does not wake the keeper: check later whether one exists.
        return _clock() + max(self._warning_seconds, _RETRY_SECONDS)

    def _mind_leases(self) -> None:
        if self._warning_seconds is None:
            return
        now = _clock()
        leases = self._leases()
        self._warned.intersection_update(leases)
        for terms in leases:
            if terms not in self._warned and now - terms.since >= self._warning_seconds:
                self._warned.add(terms)
                self._driver.jobs.append(partial(terms.tell_overdue, now - terms.since))
