"""The client's handle on its zygote: start it, ask it for workers, replace it when it dies.

One zygote for each framework serves the whole process, because a worker that needs a small one
should not come with a large one. It is started by the first session that needs it, or ahead of time
by `warm_up()`, and ends with the process, or when it has had no worker for some time. Killing it
harms no live session.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from sojourn import events
from sojourn.engines.hooks import DEFAULT, chosen_frameworks
from sojourn.errors import SojournError
from sojourn.probes.platform import require_process_isolation
from sojourn.process import exits, interrupts
from sojourn.process.deadlines import held
from sojourn.process.protocol import Ended, Fork, Forked, Status
from sojourn.process.zygote_process import News, ZygoteGone, ZygoteProcess

T = TypeVar("T")
# A fork takes milliseconds, on a machine that is far too busy a few seconds.
_FORK_SECONDS = 30.0
# Only to say how a worker ended: not worth a long wait.
_STATUS_SECONDS = 5.0


def twice(ask: Callable[[], T]) -> T:
    """Ask the zygote something; if it dies meanwhile, ask its successor once."""
    turn = exits.turns
    try:
        return ask()
    except ZygoteGone:
        if exits.turns != turn:
            raise SojournError("the program exits, and the zygote has ended") from None
    try:
        return ask()
    except ZygoteGone as gone:
        words = f": {gone}" if str(gone) else ""
        raise SojournError(f"the zygote ended twice while asked for a worker{words}") from None


class Zygote:
    """The zygote of this process for one framework, whichever is running now."""

    def __init__(self, framework: str = DEFAULT) -> None:
        self._framework = framework
        self._lock = threading.Lock()
        self._news: News = deque()
        self._running: ZygoteProcess | None = None
        self._remains = False

    @property
    def pid(self) -> int | None:
        """The process number, if one is running."""
        running = self._running
        return running.pid if running is not None else None

    def start(self, deadline: float | None = None) -> None:
        """Start it unless it runs; do not wait until it is ready."""
        require_process_isolation()
        with self._held(deadline):
            self._ensure()

    def remain(self) -> None:
        """Once it runs, have it stay until the program ends. Waits for nothing."""
        self._remains = True
        if (running := self._running) is not None:
            running.remain()

    def reap(self) -> None:
        """Let go of one that has ended, unless somebody is at it."""
        running = self._running
        if running is None or running.is_alive() or not self._lock.acquire(blocking=False):
            return
        try:
            if running is self._running:
                self._end()
        finally:
            self._lock.release()
            self._tell()

    def frameworks(self) -> dict[str, str]:
        """The frameworks it has imported, with their versions. Waits until it is ready."""
        return twice(lambda: self._ask(ZygoteProcess.wait_ready))

    def fork(self, order: Fork, fds: list[int], deadline: float | None = None) -> tuple[int, int]:
        """A new worker's pid and pidfd. The ticket in the order is filled in here.

        Raises ZygoteGone if it died before it answered, and NoAnswer at the deadline. It may have
        forked a worker by then, which ends with its lifeline: ask again with other
        descriptors, or two workers listen.
        """

        received: list[int] = []

        def ask(running: ZygoteProcess) -> int:
            nonlocal received
            running.wait_ready(deadline)
            request = msgspec.structs.replace(order, ticket=running.next_ticket())
            reply, received = running.ask(request, fds, Forked, _FORK_SECONDS, deadline)
            return reply.pid

        try:
            return self._ask(ask, deadline), received[0]
        except BaseException:  # a Ctrl-C, or one in a subscriber
            for fd in received:
                os.close(fd)
            raise

    def status_of(self, pid: int) -> tuple[int | None, list[int]]:
        """How a worker ended (None if unknown), and which of its children were ended."""
        running = self._running
        if running is None or running.frameworks is None:
            return None, []  # one that is still starting has forked no worker
        if not self._lock.acquire(timeout=_STATUS_SECONDS):
            return None, []  # another thread waits for a fork that does not come
        try:
            if running is not self._running:
                return None, []
            try:
                reply, _ = running.ask(
                    Status(running.next_ticket(), pid), [], Ended, _STATUS_SECONDS
                )
            except (ZygoteGone, OSError, SojournError):
                return None, []  # a close goes on, whatever is the matter with the zygote
            return reply.status, reply.children
        finally:
            self._lock.release()

    def end(self) -> None:
        """End it; the next session starts another."""
        with self._held():
            self._end()

    def end_at_exit(self) -> None:
        """The same, but without waiting for a thread that waits for it."""
        running = self._running
        if not self._lock.acquire(timeout=0.5):
            if running is not None and running.is_alive():
                running.kill()
            self._lock.acquire()
        try:
            self._end()
        finally:
            self._lock.release()
            self._tell()

    @contextlib.contextmanager
    def _held(self, deadline: float | None = None) -> Iterator[None]:
        try:
            with held(self._lock, deadline):
                yield
        finally:
            self._tell()

    def _tell(self) -> None:
        """Tell what has happened, without the lock: who hears of it may open a session."""
        with contextlib.suppress(IndexError):  # another thread has told the last
            while self._news:
                kind, facts = self._news.popleft()
                events.emit(kind, **facts)

    def _end(self) -> None:
        running = self._running
        if running is None:
            return

        def end_and_forget() -> None:
            running.end()
            self._running = None

        # A Ctrl-C may come while we wait for its end, and its descriptors have to be closed.
        interrupts.to_the_end(end_and_forget, running.kill)

    def _ensure(self) -> ZygoteProcess:
        if self._running is not None and not self._running.is_alive():
            self._end()
        if self._running is None:
            chosen = chosen_frameworks()
            wanted = (self._framework,) if chosen is None else chosen
            self._running = ZygoteProcess(wanted, self._remains, self._news)
            if self._remains:  # since a moment ago, perhaps
                self._running.remain()
        return self._running

    def _ask(self, ask: Callable[[ZygoteProcess], T], deadline: float | None = None) -> T:
        self.start(deadline)  # and tell of it now, not after the wait for its answer
        with self._held(deadline):
            running = self._running
            if running is None:
                raise ZygoteGone  # in between: at the exit of the program, perhaps
            try:
                return ask(running)
            except ZygoteGone:
                pass
            # It may still be on its way out; whatever is left of it ends here.
            words = running.last_words()
            if running.is_alive():
                running.kill()  # it has not answered, or not in our language
            self._end()
            raise ZygoteGone(words)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._news.clear()
        if self._running is not None:
            self._running.forget()
            self._running = None


zygote = Zygote()
zygotes = {DEFAULT: zygote}


def zygote_for(framework: str) -> Zygote:
    """The zygote for sessions that need this framework."""
    reap_retired()
    if chosen_frameworks() is not None:
        return zygote  # all of them import the same
    return zygotes.get(framework) or zygotes.setdefault(framework, Zygote(framework))


def reap_retired() -> None:
    """Let go of those that have ended by themselves."""
    for one in list(zygotes.values()):
        one.reap()


def _forget_all_in_child() -> None:
    for one in zygotes.values():
        one._after_fork_in_child()


def _end_all_at_exit() -> None:
    for one in list(zygotes.values()):
        one.end_at_exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)
exits.at_exit(exits.ZYGOTE, _end_all_at_exit)
