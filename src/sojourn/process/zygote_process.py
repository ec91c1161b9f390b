"""One zygote process, from start to end: how to talk to it, and when to give it up."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Any, TypeVar

import msgspec

from sojourn.engines.hooks import idle_seconds
from sojourn.errors import InternalError, PlatformError
from sojourn.probes import processes
from sojourn.process import huge_pages, marks, private_folder
from sojourn.process.calls import NoAnswer
from sojourn.process.deadlines import left_until
from sojourn.process.output import Stream
from sojourn.process.protocol import FromZygote, Ready, Refused, Remain, ToZygote, from_zygote
from sojourn.process.surroundings import import_path
from sojourn.transport import frames

T = TypeVar("T")
News = deque[tuple[str, dict[str, Any]]]  # events that are yet to be emitted: kind, facts
# The interval at which a zygote that does not answer is checked: found stopped (SIGSTOP) twice, it
# is replaced. Otherwise every caller would wait for an answer that comes too late.
_LOOK_SECONDS = 0.1
# The least time that a zygote gets to answer, however long it has owed earlier answers.
_LEAST_SECONDS = 1.0


class ZygoteGone(Exception):
    """The zygote ended before it answered. The message is its last words, if there are any."""


class ZygoteProcess:
    """A zygote process, started by the constructor and released by `end` or `forget`."""

    def __init__(self, frameworks: tuple[str, ...], remains: bool, news: News) -> None:
        if private_folder.VARIABLE in os.environ:
            raise PlatformError(
                "this process is a zygote that still imports, and what it has imported would start "
                "another zygote: a module with the name of one that a library needs (rename the "
                "module), or one that every Python process imports"
            )
        self._wanted = frameworks
        self._remains = remains
        self._news = news
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
        self._silent_since: float | None = None  # set for as long as it owes an answer
        self._note("zygote.started")

    def _start(self, channel: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        try:
            return self._popen(channel, environment)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # the client has too many files open, and Python's message says so
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
        self.process.kill()  # our child, not yet reaped
        self.process.wait()

    def wait_ready(self, deadline: float | None = None) -> dict[str, str]:
        """Wait until the frameworks are imported; return their versions."""
        while self.frameworks is None:
            timeout = None if deadline is None else left_until(deadline)
            try:
                _close_all(self._receive(timeout)[1])
            except TimeoutError:
                raise NoAnswer from None  # it keeps importing, for other callers
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

        A zygote that does not answer within `most` seconds hangs and is treated as gone; the time
        that earlier callers have waited in vain counts. If the caller's deadline is earlier, the
        call raises NoAnswer.
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
        """Tell the zygote never to retire, however idle it is."""
        self._remains = True
        if self.frameworks is not None:
            self._send_remain()

    def _send_remain(self) -> None:
        # Not before it is ready: until then, its lifeline kills it when we send anything.
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
            raise ZygoteGone from None  # what it sent is not a message
        try:
            self._heard(message)
        except BaseException:  # a Ctrl-C: do not leak the received descriptors
            _close_all(fds)
            raise
        return message, fds

    def _note(self, kind: str, **facts: Any) -> None:
        self._news.append((kind, {"zygote_pid": self.pid, **facts}))

    def _heard(self, message: FromZygote) -> None:
        self._silent_since = None
        if isinstance(message, Ready):
            self.frameworks = message.frameworks
            if self._remains:
                self._send_remain()
            self._note("zygote.ready", seconds=message.seconds)

    def _wait_for_words(self, deadline: float | None) -> None:
        """Wait until a message can be read. Raise ZygoteGone if the process is stopped."""
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
            if message.ticket != ticket:  # the reply to a caller that was interrupted while waiting
                _close_all(fds)
                continue
            try:
                if isinstance(message, Refused):
                    raise PlatformError(f"the system refused a worker: {message.reason}")
                if not isinstance(message, kind):
                    raise InternalError(f"the zygote answered {message!r}")
            except BaseException:
                _close_all(fds)
                raise
            return message, fds

    def is_alive(self) -> bool:
        pidfd = self.pidfd
        if pidfd < 0:
            return False  # another thread has just released it
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return not poll.poll(0)

    def last_words(self) -> str:
        return self.errors.tail()

    def end(self) -> None:
        """Close the channel, so that the zygote reaps its children and exits; kill it if it does
        not exit."""
        self.channel.close()
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(2000):
            self.kill()
        self.process.wait()
        pidfd, self.pidfd = self.pidfd, -1
        os.close(pidfd)
        private_folder.remove(self._folder)  # a zygote that was killed has not removed it
        self.errors.close()
        self._note("zygote.ended")

    def kill(self) -> None:
        """Kill it at once; callers that wait for its answer get an error."""
        if self.pidfd >= 0:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def forget(self) -> None:
        """Release it in a fork of the client, without affecting the process."""
        self.channel.close()
        os.close(self.pidfd)
        self.errors.become_foreign()
        self.process.returncode = 0  # not our child: keep Popen from waiting or warning


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
