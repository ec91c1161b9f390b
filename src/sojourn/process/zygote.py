"""The client's handle on its zygote: start it, ask it for workers, replace it when it dies.

One zygote serves the whole process. It is started by the first session, or ahead of time by
`warm_up()`, and ends with the process. Killing it harms no live session.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

from sojourn import events
from sojourn.engines import frameworks
from sojourn.errors import InternalError, PlatformError, SojournError
from sojourn.probes.platform import require_process_isolation
from sojourn.process import exits
from sojourn.process.output import Stream
from sojourn.process.protocol import (
    Ended,
    Fork,
    Forked,
    Ready,
    Refused,
    Status,
    ToZygote,
    from_zygote,
)
from sojourn.transport import frames

T = TypeVar("T")


class ZygoteGone(Exception):
    """It ended while we were talking to it."""


class _Running:
    """One zygote process, from start to end."""

    def __init__(self) -> None:
        ours, theirs = frames.pair()
        self.errors = Stream("sojourn-zygote-err", filters_chatter=False)
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        environment["SOJOURN_PATH"] = os.pathsep.join(sys.path)
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                    "-c",
                    "import os, sys; sys.path[:] = os.environ.pop('SOJOURN_PATH').split(':'); "
                    "from sojourn.process.zygote_main import main; main()",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    ",".join(frameworks()),
                ],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self.errors.fd,
                stderr=self.errors.fd,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            self.errors.close()
            raise
        finally:
            theirs.close()
        self.channel = ours
        self.pid = self.process.pid
        self.pidfd = os.pidfd_open(self.pid)
        self.frameworks: dict[str, str] | None = None
        self._ticket = 0
        events.emit("zygote.started", zygote_pid=self.pid)

    def wait_ready(self) -> dict[str, str]:
        """Wait until the framework is imported; tell its version."""
        if self.frameworks is None:
            ready, _ = self._reply(0, Ready)
            self.frameworks = ready.frameworks
            events.emit("zygote.ready", zygote_pid=self.pid, seconds=ready.seconds)
        return self.frameworks

    def ask(self, request: ToZygote, fds: list[int], kind: type[T]) -> tuple[T, list[int]]:
        """Send a request that carries the next ticket, and wait for its reply."""
        try:
            frames.send(self.channel, request, fds)
        except (BrokenPipeError, ConnectionError):
            raise ZygoteGone from None
        return self._reply(request.ticket, kind)

    def next_ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def _reply(self, ticket: int, kind: type[T]) -> tuple[T, list[int]]:
        while True:
            try:
                message, fds = frames.receive(self.channel, from_zygote)
            except (EOFError, ConnectionError):
                raise ZygoteGone from None
            if message.ticket == ticket:
                if isinstance(message, Refused):
                    raise PlatformError(f"the system refused a worker: {message.reason}")
                if not isinstance(message, kind):
                    raise InternalError(f"the zygote answered {message!r}")
                return message, fds
            # The answer to somebody who was interrupted while he waited.
            for fd in fds:
                os.close(fd)

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
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.process.wait()
        os.close(self.pidfd)
        self.errors.close()
        events.emit("zygote.ended", zygote_pid=self.pid)

    def forget(self) -> None:
        """We are a fork of its client: let go of it without touching it."""
        self.channel.close()
        os.close(self.pidfd)
        self.errors.close()
        self.process.returncode = 0  # not our child: keep Popen from waiting or warning


class Zygote:
    """The zygote of this process, whichever is running now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: _Running | None = None

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

    def frameworks(self) -> dict[str, str]:
        """The frameworks it has imported, with their versions. Waits until it is ready."""
        require_process_isolation()
        with self._lock:
            return self._with_a_live_one(_Running.wait_ready)

    def fork(self, order: Fork, fds: list[int]) -> tuple[int, int]:
        """A new worker's pid and pidfd. The ticket in the order is filled in here."""
        require_process_isolation()

        def ask(running: _Running) -> tuple[int, int]:
            running.wait_ready()
            request = msgspec.structs.replace(order, ticket=running.next_ticket())
            reply, received = running.ask(request, fds, Forked)
            return reply.pid, received[0]

        with self._lock:
            return self._with_a_live_one(ask)

    def status_of(self, pid: int) -> tuple[int | None, list[int]]:
        """How a worker ended (None if nobody knows), and which of its children were ended."""
        with self._lock:
            running = self._running
            if running is None:
                return None, []
            try:
                reply, _ = running.ask(Status(running.next_ticket(), pid), [], Ended)
            except ZygoteGone:
                return None, []
            return reply.status, reply.children

    def end(self) -> None:
        """End it; the next session starts another."""
        with self._lock:
            if self._running is not None:
                self._running.end()
                self._running = None

    def _ensure(self) -> _Running:
        if self._running is not None and not self._running.is_alive():
            self._running.end()
            self._running = None
        if self._running is None:
            self._running = _Running()
        return self._running

    def _with_a_live_one(self, ask: Callable[[_Running], T]) -> T:
        """Ask; if it dies meanwhile, ask its successor once. Nothing has happened until it answers:
        a worker that was forked but not announced ends with the descriptors we close."""
        running = self._ensure()
        try:
            return ask(running)
        except ZygoteGone:
            pass
        # It may still be on its way out; whatever is left of it ends here.
        words = running.last_words()
        running.end()
        self._running = None
        running = self._ensure()
        try:
            return ask(running)
        except ZygoteGone:
            words = running.last_words() or words
            raise SojournError(
                f"the zygote ends whenever it is asked for a worker: {words}"
            ) from None

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        if self._running is not None:
            self._running.forget()
            self._running = None


zygote = Zygote()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=zygote._after_fork_in_child)
exits.at_exit(exits.ZYGOTE, zygote.end)
