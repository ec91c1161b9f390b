"""The client's handle on its zygote: start it, ask it for workers, replace it when it dies.

One zygote for each framework serves the whole process, because a worker that needs a small
framework should not carry a large one. A zygote is started by the first session that needs it, or
ahead of time by `warm_up()`. It ends with the process, or after some time without workers. Killing
it harms no live session.
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
# A fork takes milliseconds; on an overloaded machine, a few seconds.
_FORK_SECONDS = 30.0
# For the question how a worker ended, which is not worth a long wait.
_STATUS_SECONDS = 5.0


def twice(ask: Callable[[], T]) -> T:
    """Send the zygote a request; if the zygote dies meanwhile, ask its successor once."""
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
    """The zygote of this process for one framework: a handle that outlives single processes."""

    def __init__(self, framework: str = DEFAULT) -> None:
        self._framework = framework
        self._lock = threading.Lock()
        self._news: News = deque()
        self._running: ZygoteProcess | None = None
        self._remains = False

    @property
    def pid(self) -> int | None:
        """The pid of the zygote process, None if none is running."""
        running = self._running
        return running.pid if running is not None else None

    def start(self, deadline: float | None = None) -> None:
        """Start the zygote unless it runs; do not wait until it is ready."""
        require_process_isolation()
        with self._held(deadline):
            self._ensure()

    def remain(self) -> None:
        """Keep the zygote, once it runs, until the program ends. Does not wait."""
        self._remains = True
        if (running := self._running) is not None:
            running.remain()

    def reap(self) -> None:
        """Release a zygote process that has ended, unless another thread is using the handle."""
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
        """Return the frameworks it has imported, with their versions. Waits until it is ready."""
        return twice(lambda: self._ask(ZygoteProcess.wait_ready))

    def fork(self, order: Fork, fds: list[int], deadline: float | None = None) -> tuple[int, int]:
        """Fork a worker; return its pid and pidfd. The ticket in the order is filled in here.

        Raises ZygoteGone if the zygote died before it answered, and NoAnswer at the deadline. The
        zygote may have forked a worker by then, which ends with its lifeline: retry with new
        descriptors, or two workers would listen on the same ones.
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
        except BaseException:  # a Ctrl-C, or an error in a subscriber
            for fd in received:
                os.close(fd)
            raise

    def status_of(self, pid: int) -> tuple[int | None, list[int]]:
        """Return a worker's wait status (None if unknown) and the pids of its killed children."""
        running = self._running
        if running is None or running.frameworks is None:
            return None, []  # a zygote that is still starting has forked no worker
        if not self._lock.acquire(timeout=_STATUS_SECONDS):
            return None, []  # another thread waits for a fork that is not answered
        try:
            if running is not self._running:
                return None, []
            try:
                reply, _ = running.ask(
                    Status(running.next_ticket(), pid), [], Ended, _STATUS_SECONDS
                )
            except (ZygoteGone, OSError, SojournError):
                return None, []  # closing a session must not fail because of its zygote
            return reply.status, reply.children
        finally:
            self._lock.release()

    def end(self) -> None:
        """End the zygote; the next session starts another."""
        with self._held():
            self._end()

    def end_at_exit(self) -> None:
        """End the zygote; if another thread waits for its answer, kill it instead of waiting."""
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
        """Emit the pending events, without the lock: a subscriber may open a session."""
        with contextlib.suppress(IndexError):  # another thread has emitted the last one
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

        # A Ctrl-C may arrive while we wait for its end, and its descriptors must be closed.
        interrupts.to_the_end(end_and_forget, running.kill)

    def _ensure(self) -> ZygoteProcess:
        if self._running is not None and not self._running.is_alive():
            self._end()
        if self._running is None:
            chosen = chosen_frameworks()
            wanted = (self._framework,) if chosen is None else chosen
            self._running = ZygoteProcess(wanted, self._remains, self._news)
            if self._remains:  # another thread may have set it during the start
                self._running.remain()
        return self._running

    def _ask(self, ask: Callable[[ZygoteProcess], T], deadline: float | None = None) -> T:
        self.start(deadline)  # which emits its event now, not after the wait for the answer
        with self._held(deadline):
            running = self._running
            if running is None:
                raise ZygoteGone  # ended in between, for example at the program's exit
            try:
                return ask(running)
            except ZygoteGone:
                pass
            # The zygote may still be exiting; kill what is left of it.
            words = running.last_words()
            if running.is_alive():
                running.kill()  # it has sent no answer, or an invalid one
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
    """Return the zygote for sessions that need this framework."""
    reap_retired()
    if chosen_frameworks() is not None:
        return zygote  # all zygotes import the same frameworks
    return zygotes.get(framework) or zygotes.setdefault(framework, Zygote(framework))


def reap_retired() -> None:
    """Release the zygotes that have ended by themselves."""
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
