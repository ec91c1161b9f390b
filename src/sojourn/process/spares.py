"""Spare workers: forked ahead of time, with the framework's once-per-process work already done.

A pool keeps its own (`Pool(spares=1)`). This module also keeps those of plain sessions, for
programs that have called `warm_up(spares=1)`: a short-lived thread makes them while no session is
being opened.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sojourn.engines.hooks import DEFAULT
from sojourn.errors import SojournError
from sojourn.process import exits
from sojourn.process.calls import NoAnswer, WorkerDied
from sojourn.process.deadlines import left_until
from sojourn.process.interrupts import is_no_thread
from sojourn.process.worker import Worker

NAME = "spare"
_HAND_OVER_SECONDS = 10.0  # it takes milliseconds; on an overloaded machine, seconds
_QUIET_SECONDS = 0.05  # between two checks whether a session is being opened
Fits = Callable[[Worker], bool]
TakeSpare = Callable[[Fits], Worker | None]

_unused: set[Worker] = set()  # all spares of this process, until they are handed over or ended


def make(environment: Mapping[str, str]) -> Worker:
    """Make a worker that is ready for any model of the default framework."""
    worker = Worker(NAME, is_spare=True, environment=dict(environment))
    _unused.add(worker)
    try:
        worker.warm()
    except BaseException:
        end(worker)
        raise
    return worker


def end(worker: Worker) -> None:
    """End a spare that is no longer needed. Several threads may call this for the same one."""
    try:
        _unused.remove(worker)
    except KeyError:
        return
    worker.end()
    worker.release()


def hand_over(
    take: TakeSpare,
    name: str,
    *,
    framework: str = DEFAULT,
    environment: dict[str, str] | None = None,
    deadline: float | None = None,
    **limits: Any,
) -> Worker | None:
    """Take a spare worker in place of a new one with these options; None if none fits.

    Limits and the sandbox must be in force before a framework does anything, so sessions with
    either get a new worker.
    """
    if any(limit not in (None, False) for limit in limits.values()):
        return None
    spare = take(lambda worker: worker.fits(framework, environment))
    if spare is None:
        return None
    most = left_until(deadline, _HAND_OVER_SECONDS) / 2
    try:
        spare.hand_over(name, environment, time.monotonic() + most)
    except (WorkerDied, NoAnswer):  # a new worker gets the rest of the time
        spare.kill()
        end(spare)
        return None
    except BaseException:
        end(spare)
        raise
    _unused.discard(spare)
    return spare


class Standing:
    """The spare workers of plain sessions.

    The main thread takes no lock here, because a Ctrl-C could leave it locked: everything it does
    is a single assignment or a single deque operation.
    """

    def __init__(self) -> None:
        self._wanted = 0
        self._environment: Mapping[str, str] = {}
        self._is_quiet: Callable[[], bool] = bool
        self._ready: deque[Worker] = deque()
        self._making = threading.Lock()  # held by the thread that makes them

    def keep(
        self, count: int, environment: Mapping[str, str], is_quiet: Callable[[], bool]
    ) -> threading.Thread | None:
        """Keep `count` spares from now on. The returned thread ends when they are ready; None if no
        thread could be started, in which case the next open tries again."""
        self._environment, self._is_quiet, self._wanted = environment, is_quiet, count
        return self._start(waits=True)

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of the spares that are ready."""
        return tuple(worker.pid for worker in tuple(self._ready))

    def take(self, fits: Fits) -> Worker | None:
        """Take a spare that fits, and start making another. End those that can never fit again."""
        taken = None
        for spare in tuple(self._ready):
            if fits(spare):
                taken = self._removed(spare)
                if taken is not None:
                    break
            elif spare.is_stale() and self._removed(spare) is not None:
                spare.kill()  # first, because it may be stopped
                end(spare)
        if len(self._ready) < self._wanted:
            self._start()
        return taken

    def _removed(self, spare: Worker) -> Worker | None:
        try:
            self._ready.remove(spare)
        except ValueError:
            return None  # another thread was faster
        return spare

    def _start(self, *, waits: bool = False) -> threading.Thread | None:
        thread = threading.Thread(
            target=self._keep_up, args=(waits,), name="sojourn-spares", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            if not is_no_thread(error):
                raise
            return None
        return thread

    def _keep_up(self, waits: bool) -> None:
        """Make missing spares and end surplus ones, unless another thread is doing that."""
        while waits or len(self._ready) != self._wanted:
            if not self._making.acquire(blocking=waits):
                return
            try:
                self._make_or_end()
            except (SojournError, OSError, NoAnswer, WorkerDied):
                return  # a session that fails for the same reason reports it
            finally:
                self._making.release()
            waits = False

    def _make_or_end(self) -> None:
        while len(self._ready) > self._wanted:
            end(self._ready.pop())
        while len(self._ready) < self._wanted:
            time.sleep(_QUIET_SECONDS)
            if self._is_quiet():
                self._ready.append(make(self._environment))

    def end_at_exit(self) -> None:
        """End every spare worker of this process, those of pools as well."""
        self._wanted = 0
        for worker in list(_unused):
            worker.kill()
            end(worker)

    def become_foreign(self) -> None:
        """In a fork: forget all spares, which belong to the parent."""
        self._wanted = 0
        self._ready = deque()
        self._making = threading.Lock()


standing = Standing()


def _forget_all_in_child() -> None:
    _unused.clear()
    standing.become_foreign()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)
exits.at_exit(exits.SESSIONS, standing.end_at_exit)
