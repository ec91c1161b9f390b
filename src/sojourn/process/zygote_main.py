"""The zygote: imports the framework once, runs nothing, and forks a worker for each session.

It must stay forkable: one thread, no op ever run, no device listed, no gRPC (after one
`Session.run` here, even if the session is closed, every child hangs). It checks that before each
fork and ends itself rather than fork a broken worker; the client then starts another.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import NoReturn

from sojourn.engines import hooks
from sojourn.process import huge_pages, lifeline, limits, marks, private_folder, sandbox
from sojourn.process.protocol import (
    Ended,
    Fork,
    Forked,
    Ready,
    Refused,
    Remain,
    Status,
    to_zygote,
)
from sojourn.transport import frames

_ENDING_SECONDS = 1.0  # for the client to end after it has closed the channel
_MOST_IDLE_SECONDS = 1e6  # more means: never retire


def main() -> NoReturn:
    """Entry point, called by `python -c` with the client's socket descriptor in the arguments."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    client_pid = int(sys.argv[2])
    frameworks = [name for name in sys.argv[3].split(",") if name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A client that ignores SIGCHLD passes that on, and then no child could be waited for here.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # During the imports the zygote cannot listen, so the kernel watches the client; once it has
    # workers, the zygote must outlive the client for long enough to clean up after them.
    lifeline.arm(channel.fileno(), os.getpid())
    client = os.pidfd_open(client_pid)
    started = time.monotonic()
    gc.disable()  # it would traverse all modules many times, and none of them is garbage
    folder = os.environ[private_folder.VARIABLE]
    with private_folder.collecting(folder):
        found = hooks.import_frameworks(frameworks)
        # Import our own modules as well, so that workers find everything loaded; also the modules
        # of sojourn that a user's module needs when a worker imports it for a function.
        for module in ("process.worker_main", "functions"):
            importlib.import_module(f"sojourn.{module}")
    del os.environ[private_folder.VARIABLE]  # while it is set, this process can start no zygote
    sandbox.prepare()
    limits.set_title(f"sojourn-zygote of {client_pid}")
    limits.adopt_orphans()
    gc.collect()
    gc.freeze()  # all objects so far are shared by every worker and never garbage
    gc.enable()
    huge_pages.collapse()
    lifeline.disarm(channel.fileno())
    if lifeline.has_ended(channel.fileno()) and not _has_input(channel):
        private_folder.remove(folder)
        os._exit(1)
    frames.send(channel, Ready(0, os.getpid(), found, time.monotonic() - started))
    _Zygote(channel, client, folder, float(sys.argv[4])).serve()


def _has_input(channel: socket.socket) -> bool:
    try:
        return bool(channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


class _Zygote:
    def __init__(
        self, channel: socket.socket, client: int, folder: str, idle_seconds: float
    ) -> None:
        self._channel = channel
        self._client = client
        self._folder = folder
        self._idle_seconds = idle_seconds
        self._was_asked = False
        self._workers: dict[int, int] = {}  # pid -> pidfd
        self._ended: dict[int, tuple[int, list[int]]] = {}  # pid -> status, orphans ended
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll.register(client, select.POLLIN)
        self._fds_at_start = _open_fds()

    def serve(self) -> NoReturn:
        while True:
            found = self._poll.poll(self._patience())
            if not found:
                self._retire()
            for fd, _ in found:
                if fd == self._client:
                    self._leave()
                elif fd == self._channel.fileno():
                    self._answer()
                elif pid := next((p for p, pidfd in self._workers.items() if pidfd == fd), None):
                    self._bury(pid)  # unless the client has just asked about it

    def _patience(self) -> float | None:
        """Return how long the zygote may stay idle, in milliseconds; None: without a limit."""
        if self._workers or self._idle_seconds > _MOST_IDLE_SECONDS:
            return None
        # The client that started the zygote is about to ask, however busy the machine is.
        return 1000 * (self._idle_seconds if self._was_asked else max(10.0, self._idle_seconds))

    def _answer(self) -> None:
        try:
            message, fds = frames.receive(self._channel, to_zygote)
        except frames.OutOfDescriptors as error:
            reason = "the zygote may not open more files"
            frames.send(self._channel, Refused(error.message.ticket, reason))
            return
        except (EOFError, ConnectionError):
            self._leave()
        self._was_asked = True
        try:
            match message:
                case Fork():
                    self._fork(message, fds)
                case Status(ticket, pid):
                    if pid in self._workers:
                        self._bury(pid)
                    status, orphans = self._ended.pop(pid, (None, []))
                    frames.send(self._channel, Ended(ticket, status, orphans))
                case Remain():
                    self._idle_seconds = math.inf
        except (BrokenPipeError, ConnectionError):
            self._leave()
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, request: Fork, fds: list[int]) -> None:
        doing = "looking around"
        try:
            self._require_forkable(fds)
            doing = "fork"
            pid = os.fork()
        except OSError as error:
            frames.send(self._channel, Refused(request.ticket, f"{doing}: {error.strerror}"))
            return
        if pid == 0:
            try:
                from sojourn.process.worker_main import main as worker_main

                marks.wear(request.mark)
                worker_main(request, fds)
            except BaseException:
                traceback.print_exc()  # the client shows this as last words
            finally:
                os._exit(70)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # no descriptor left: the worker could not be watched
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            frames.send(self._channel, Refused(request.ticket, f"pidfd_open: {error.strerror}"))
            return
        self._workers[pid] = pidfd
        self._poll.register(pidfd, select.POLLIN)
        frames.send(self._channel, Forked(request.ticket, pid), [pidfd])

    def _require_forkable(self, received: list[int]) -> None:
        threads = len(os.listdir("/proc/self/task"))
        extra = _open_fds() - self._fds_at_start - set(self._workers.values()) - set(received)
        if threads != 1 or extra:
            os.write(2, f"zygote not forkable: {threads} threads, descriptors {extra}\n".encode())
            os._exit(1)

    def _bury(self, pid: int) -> None:
        """Reap a worker that has ended, and kill the processes that it left."""
        pidfd = self._workers.pop(pid)
        self._poll.unregister(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        self._ended[pid] = (status, self._end_orphans())
        if len(self._ended) > 1000:  # drop the oldest, which no client has asked about
            del self._ended[next(iter(self._ended))]

    def _end_orphans(self) -> list[int]:
        """Kill the children that dead workers left: all our children that are not workers."""
        ended: list[int] = []
        while True:
            orphans = [p for p in limits.children(os.getpid()) if p not in self._workers]
            if not orphans:
                return ended
            for pid in orphans:
                # Our child and not yet reaped, so the pid cannot mean another process.
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                ended.append(pid)

    def _retire(self) -> NoReturn:
        """Exit after being idle; the next session that needs a zygote starts another."""
        self._end_orphans()
        private_folder.remove(self._folder)
        os._exit(0)

    def _leave(self) -> NoReturn:
        """Exit because the client has gone; kill workers that their lifelines have not killed."""
        for pid, pidfd in list(self._workers.items()):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._bury(pid)
        self._end_orphans()
        # The kernel closes a killed client's files before its process has ended, so wait a bit. A
        # client that lives on has other zygotes, whose workers must not be killed.
        if lifeline.has_ended(self._client, _ENDING_SECONDS):
            marks.kill_marked(marks.client_of(os.environ[marks.NAME]))
        private_folder.remove(self._folder)
        os._exit(0)


def _open_fds() -> set[int]:
    # listdir's own descriptor is in the list, but closed again by the time it is checked.
    names = os.listdir("/proc/self/fd")
    return {int(n) for n in names if os.path.exists(f"/proc/self/fd/{n}")}
