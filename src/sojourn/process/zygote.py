"""The client's handle on its zygote: start it, ask it for workers, replace it when it dies.

One zygote for each framework serves the whole process, because a worker that needs a small one
should not come with a large one. It is started by the first session that needs it, or ahead of time
by `warm_up()`, and ends with the process, or when it has had no worker for some time. Killing it
harms no live session.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from sojourn import events
from sojourn.engines.hooks import DEFAULT, chosen_frameworks, idle_seconds
from sojourn.errors import InternalError, PlatformError, SojournError
from sojourn.probes import processes
from sojourn.probes.platform import require_process_isolation
from sojourn.process import exits, huge_pages, interrupts, marks, private_folder
from sojourn.process.calls import NoAnswer
from sojourn.process.deadlines import held, left_until
from sojourn.process.output import Stream
from sojourn.process.protocol import (
    Ended,
    Fork,
    Forked,
    FromZygote,
    Ready,
    Refused,
    Remain,
    Status,
    ToZygote,
    from_zygote,
)
from sojourn.process.surroundings import import_path
from sojourn.transport import frames

T = TypeVar("T")
# A fork takes milliseconds, on a machine that is far too busy a few seconds.
_FORK_SECONDS = 30.0
# How often one that does not answer is looked at: found stopped twice, it is replaced. Its answer
# would come too late for many, and each of them would wait for it again.
_LOOK_SECONDS = 0.1
# What it is given to answer, however long it has owed earlier answers.
_LEAST_SECONDS = 1.0
# Only to say how a worker ended: not worth a long wait.
_STATUS_SECONDS = 5.0


class ZygoteGone(Exception):
    """It ended while we were talking to it. Says its last words."""


def twice(ask: Callable[[], T]) -> T:
    """Ask the zygote something; if it dies meanwhile, ask its successor once."""
    try:
        return ask()
    except ZygoteGone:
        pass
    try:
        return ask()
    except ZygoteGone as gone:
        raise SojournError(f"the zygote ends whenever it is asked for a worker: {gone}") from None


class _Running:
    """One zygote process, from start to end."""

    def __init__(self, frameworks: tuple[str, ...], remains: bool) -> None:
        self._wanted = frameworks
        self._remains = remains
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        environment["SOJOURN_PATH"] = os.pathsep.join(import_path())
        environment[marks.NAME] = marks.for_zygote()
        environment[private_folder.VARIABLE] = self._folder = private_folder.choose()
        huge_pages.ask_malloc(environment)
        with contextlib.ExitStack() as undo:
            self.errors = Stream("sojourn-zygote-err", filters_chatter=False)
            undo.callback(self.errors.close)
            self.channel, theirs = frames.pair()
            undo.callback(self.channel.close)
            with theirs:
                self.process = self._start(theirs.fileno(), environment)
            undo.callback(self._discard)
            self.pid = self.process.pid
            self.pidfd = os.pidfd_open(self.pid)
            undo.pop_all()
        self.frameworks: dict[str, str] | None = None
        self._ticket = 0
        self._silent_since: float | None = None  # for as long as it owes an answer
        events.emit("zygote.started", zygote_pid=self.pid)

    def _start(self, channel: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        try:
            return self._popen(channel, environment)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # our own trouble, and Python has the right words
            raise PlatformError(f"the system refused a zygote: {error}") from error

    def _popen(self, channel: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                "-c",
                "import os, sys; sys.path[:] = os.environ.pop('SOJOURN_PATH').split(':'); "
                "from sojourn.process.zygote_main import main; main()",
                str(channel),
                str(os.getpid()),
                ",".join(self._wanted),
                "inf" if self._remains else str(idle_seconds(self._wanted)),
            ],
            env=environment,
            pass_fds=[channel],
            stdin=subprocess.DEVNULL,
            stdout=self.errors.fd,
            stderr=self.errors.fd,
            start_new_session=True,
        )

    def _discard(self) -> None:
        self.process.kill()  # our child, and not yet waited for
        self.process.wait()

    def wait_ready(self, deadline: float | None = None) -> dict[str, str]:
        """Wait until the framework is imported; tell its version."""
        while self.frameworks is None:
            timeout = None if deadline is None else left_until(deadline)
            try:
                _close_all(self._receive(timeout)[1])
            except TimeoutError:
                raise NoAnswer from None  # it goes on importing, for others
        return self.frameworks

    def ask(
        self,
        request: ToZygote,
        fds: list[int],
        kind: type[T],
        most: float,
        deadline: float | None = None,
    ) -> tuple[T, list[int]]:
        """Send a request that carries the next ticket, and wait for its reply.

        One that does not answer within the most it may take hangs, and is treated as gone; what
        earlier callers have waited in vain counts. An earlier deadline is the caller's own matter.
        """
        try:
            frames.send(self.channel, request, fds)
        except (BrokenPipeError, ConnectionError):
            raise ZygoteGone from None
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        most = max(_LEAST_SECONDS, self._silent_since + most - now)
        timeout = left_until(deadline, most)
        try:
            return self._reply(request.ticket, kind, timeout)
        except TimeoutError:
            raise (NoAnswer if timeout < most else ZygoteGone) from None

    def remain(self) -> None:
        """Have it stay, however idle it is."""
        self._remains = True
        if self.frameworks is not None:
            self._send_remain()

    def _send_remain(self) -> None:
        # Not before it is ready: until then, whatever comes from us ends it.
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            frames.send(self.channel, Remain())

    def next_ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def _receive(self, timeout: float | None) -> tuple[FromZygote, list[int]]:
        try:
            self._wait_for_words(None if timeout is None else time.monotonic() + timeout)
            message, fds = frames.receive(self.channel, from_zygote)
        except (EOFError, ConnectionError):
            raise ZygoteGone from None
        except (ValueError, msgspec.DecodeError):
            raise ZygoteGone from None  # what it says is no message
        self._silent_since = None
        if isinstance(message, Ready):
            self.frameworks = message.frameworks
            if self._remains:
                self._send_remain()
            events.emit("zygote.ready", zygote_pid=self.pid, seconds=message.seconds)
        return message, fds

    def _wait_for_words(self, deadline: float | None) -> None:
        """Until it says something; one that is stopped is gone."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        was_stopped = False
        look = min(_LOOK_SECONDS, left_until(deadline) / 4)
        while not poll.poll(1000 * left_until(deadline, look)):
            is_stopped = processes.is_stopped(self.pid)
            if is_stopped and was_stopped:
                raise ZygoteGone
            was_stopped = is_stopped
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError

    def _reply(self, ticket: int, kind: type[T], timeout: float) -> tuple[T, list[int]]:
        while True:
            message, fds = self._receive(timeout)
            if message.ticket == ticket:
                if isinstance(message, Refused):
                    raise PlatformError(f"the system refused a worker: {message.reason}")
                if not isinstance(message, kind):
                    raise InternalError(f"the zygote answered {message!r}")
                return message, fds
            # The answer to a caller who was interrupted while waiting.
            _close_all(fds)

    def is_alive(self) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def last_words(self) -> str:
        return self.errors.tail()

    def end(self) -> None:
        """Let it end with its channel, so that it reaps what it has; make it if it does not."""
        self.channel.close()
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(2000):
            self.kill()
        self.process.wait()
        pidfd, self.pidfd = self.pidfd, -1
        os.close(pidfd)
        private_folder.remove(self._folder)  # it was killed, perhaps
        self.errors.close()
        events.emit("zygote.ended", zygote_pid=self.pid)

    def kill(self) -> None:
        """End it at once; those who wait for its answer get an error."""
        if self.pidfd >= 0:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def forget(self) -> None:
        """We are a fork of its client: let go of it without touching it."""
        self.channel.close()
        os.close(self.pidfd)
        self.errors.become_foreign()
        self.process.returncode = 0  # not our child: keep Popen from waiting or warning


class Zygote:
    """The zygote of this process for one framework, whichever is running now."""

    def __init__(self, framework: str = DEFAULT) -> None:
        self._framework = framework
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._remains = False
        self._is_exiting = False

    @property
    def pid(self) -> int | None:
        """The process number, if one is running."""
        running = self._running
        return running.pid if running is not None else None

    def start(self) -> None:
        """Start it unless it runs; do not wait until it is ready."""
        require_process_isolation()
        with self._lock:
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

    def frameworks(self) -> dict[str, str]:
        """The frameworks it has imported, with their versions. Waits until it is ready."""
        require_process_isolation()
        return twice(lambda: self._ask(_Running.wait_ready))

    def fork(self, order: Fork, fds: list[int], deadline: float | None = None) -> tuple[int, int]:
        """A new worker's pid and pidfd. The ticket in the order is filled in here.

        Raises ZygoteGone if it died before it answered, and NoAnswer at the deadline. It may have
        forked a worker by then, which ends with its lifeline: ask again with other
        descriptors, or two workers listen.
        """
        require_process_isolation()

        def ask(running: _Running) -> tuple[int, int]:
            running.wait_ready(deadline)
            request = msgspec.structs.replace(order, ticket=running.next_ticket())
            reply, received = running.ask(request, fds, Forked, _FORK_SECONDS, deadline)
            return reply.pid, received[0]

        return self._ask(ask, deadline)

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
        with self._lock:
            self._end()

    def end_at_exit(self) -> None:
        """The same, but without waiting for a thread that waits for it."""
        self._is_exiting = True
        running = self._running
        if not self._lock.acquire(timeout=0.5):
            if running is not None and running.is_alive():
                running.kill()
            self._lock.acquire()
        try:
            self._end()
        finally:
            self._lock.release()

    def _end(self) -> None:
        running = self._running
        if running is None:
            return

        def end_and_forget() -> None:
            running.end()
            self._running = None

        # A Ctrl-C may come while we wait for its end, and its descriptors have to be closed.
        interrupts.to_the_end(end_and_forget, running.kill)

    def _ensure(self) -> _Running:
        if self._running is not None and not self._running.is_alive():
            self._end()
        if self._running is None:
            chosen = chosen_frameworks()
            wanted = (self._framework,) if chosen is None else chosen
            self._running = _Running(wanted, self._remains)
            if self._remains:  # since a moment ago, perhaps
                self._running.remain()
        return self._running

    def _ask(self, ask: Callable[[_Running], T], deadline: float | None = None) -> T:
        with self._lock if deadline is None else held(self._lock, deadline):
            running = self._ensure()
            try:
                return ask(running)
            except ZygoteGone:
                pass
            # It may still be on its way out; whatever is left of it ends here.
            words = running.last_words()
            if running.is_alive():
                running.kill()  # it has not answered, or not in our language
            self._end()
            if self._is_exiting:
                raise SojournError("the program exits, and the zygote has ended")
            raise ZygoteGone(words)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        if self._running is not None:
            self._running.forget()
            self._running = None


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


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
