"""The worker: one forked process, one session.

The main thread waits for the client's messages on the control socket; each lane has a thread that
serves its steps. Everything that limits or ends the worker is in place before the engine starts.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

import msgspec
import numpy as np

from sojourn import program
from sojourn.engines import disposable, hooks, shortage
from sojourn.engines.base import Arrays, Host
from sojourn.errors import SandboxError
from sojourn.process import callbacks, crossing, exit_handlers, lifeline, limits, reserve
from sojourn.process.calls import (
    BUNDLE,
    FAILED,
    OK,
    SOME_FAILED,
    STEP,
    Call,
    bundled,
    plan_number,
)
from sojourn.process.protocol import (
    CONTROL,
    ERRORS,
    LIFELINE,
    OUTPUT,
    Close,
    Fork,
    HandOver,
    OpenLane,
    to_worker,
)
from sojourn.process.surroundings import Surroundings
from sojourn.transport import board, frames
from sojourn.transport.attachments import MappedFiles
from sojourn.transport.lane import CallerLane
from sojourn.transport.segment import Segment
from sojourn.transport.server_lane import ServerLane

_call_decoder = msgspec.msgpack.Decoder(Call)
_pid = 0  # of the worker, once this process is one


def main(request: Fork, fds: list[int]) -> NoReturn:
    """Turn the freshly forked child into a worker and serve until the end."""
    global _pid
    _pid = os.getpid()
    os.setsid()
    exit_handlers.forget_inherited()
    # Kill the whole process group, so that processes started by the session end with it.
    lifeline.arm(fds[LIFELINE], -os.getpid())
    client = os.pidfd_open(request.client_pid)
    _keep_only({fds[CONTROL], fds[LIFELINE], fds[OUTPUT], fds[ERRORS], client})
    control = socket.socket(fileno=fds[CONTROL])
    _redirect(fds[OUTPUT], fds[ERRORS])
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the client handles a Ctrl-C in the terminal
    limits.adopt_orphans()
    limits.prefer_as_victim()
    _become(request.name, request.client_pid, request.surroundings)
    if request.memory_bytes is not None:
        hooks.limit_memory(request.memory_bytes)
        limits.cap_data(request.memory_bytes, keeps_reserve=hooks.throws_unprepared())
    _Worker(control, client, _host_for(request)).serve()


def _host_for(request: Fork) -> Host:
    if request.readable_paths is not None:
        return _confined(request, request.readable_paths)
    disposable.allow()
    return _SpareHost(request.client_pid) if request.is_spare else Host()


class _SpareHost(Host):
    """The host in a spare worker, which is prepared before any session needs it."""

    def __init__(self, client_pid: int) -> None:
        super().__init__()
        self._client_pid = client_pid
        self._operations.update(warm=self._warm, hand_over=self._hand_over)

    def _warm(self, arguments: Any, arrays: Arrays) -> tuple[Any, Arrays]:
        hooks.warm()
        gc.collect()  # the objects that warming up has built
        return None, ()

    def _hand_over(self, arguments: Any, arrays: Arrays) -> tuple[Any, Arrays]:
        order = msgspec.convert(arguments, HandOver)
        _become(order.name, self._client_pid, order.surroundings)
        del self._operations["warm"], self._operations["hand_over"]
        return None, ()


class _ConfinedHost(Host):
    """The host in a sandboxed worker: reports the protections in force, and trusts no model."""

    in_force: Any = None

    def call(self, name: str, arguments: Any, arrays: Arrays) -> tuple[Any, Arrays]:
        if name == "sandbox" and self.refusal is None:
            return self.in_force, ()
        return super().call(name, arguments, arrays)


def _confined(request: Fork, readable: list[str]) -> Host:
    """Apply the sandbox before any file of the model is read."""
    from sojourn.process import sandbox

    # Import nothing from the model's folders, nor from the client's current folder.
    inside = tuple(os.path.join(path, "") for path in readable)
    sys.path[:] = [
        entry
        for entry in sys.path
        if os.path.isabs(entry) and not os.path.join(os.path.realpath(entry), "").startswith(inside)
    ]
    limit = request.memory_bytes
    policy = sandbox.Policy(
        readable=tuple(readable),
        file_bytes=None if limit is None else limits.answer_bytes(limit),
        best_effort=request.best_effort_sandbox,
    )
    host = _ConfinedHost(trusting=False)
    try:
        host.in_force = sandbox.apply(policy)
    except SandboxError as error:
        host.refusal = error  # the answer to every request of the client
    return host


def _keep_only(keep: set[int]) -> None:
    keep |= {0, 1, 2}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of listdir itself, closed by now


def _redirect(output: int, errors: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for fd, target in ((output, 1), (errors, 2)):
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND | os.O_RDWR)
        os.dup2(fd, target)
        os.close(fd)
    sys.stdin = open(0, closefd=False)
    # Line-buffered, so that the last output is not lost when the worker is killed.
    sys.stdout = open(1, "w", buffering=1, closefd=False, encoding="utf-8")
    sys.stderr = open(2, "w", buffering=1, closefd=False, encoding="utf-8", errors="replace")
    sys.__dict__.update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)


def _become(name: str, client_pid: int, surroundings: Surroundings) -> None:
    """Become the worker of this session: take its title and the client's surroundings."""
    limits.set_title(f"sojourn: {name} of {client_pid}")
    surroundings.take_on()
    # A forked copy of numpy's generator would give every session the same random numbers.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


class _Worker:
    def __init__(self, control: socket.socket, client: int, host: Host) -> None:
        self._control = control
        self._client = client
        self._host = host
        self._asking = callbacks.Asking()
        self._board: Segment | None = None

    def serve(self) -> NoReturn:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._client, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._client:  # it ended, but left a process that holds our lifeline
                    os._exit(1)
            try:
                message, fds = frames.receive(self._control, to_worker)
            except frames.OutOfDescriptors:
                continue  # the received descriptors are closed, and so the lane's caller learns it
            except (EOFError, OSError):
                os._exit(1)
            match message:
                case OpenLane():
                    self._open_lane(message, fds)
                case Close():
                    self._end()

    def _open_lane(self, message: OpenLane, fds: list[int]) -> None:
        channel, bell_of_who_answers, bell_of_who_asks = fds[:3]
        bells = (bell_of_who_answers, bell_of_who_asks)
        for fd in fds[3:]:
            self._board = Segment.receive(fd, writable=True)
            os.close(fd)
        assert self._board is not None
        rows = board.rows(self._board, message.index)
        end = socket.socket(fileno=channel)
        if message.reverse:
            self._asking.add(CallerLane(message.index, rows, end, bells, self._client))
            self._host.connect(self._asking.ask)
            return
        lane = ServerLane(rows, end, bells, MappedFiles())
        thread = threading.Thread(
            target=_serve_lane, args=(lane, self._host), name=f"lane-{message.index}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            lane.close()  # no more threads: the lane's caller learns it

    def _end(self) -> NoReturn:
        status = 0
        try:
            self._host.close()
        except BaseException as error:
            sys.stderr.write(f"closing the engine: {error!r}\n")
            status = 1
        exit_handlers.run()
        program.flush()
        for pid in limits.descendants(os.getpid()):
            try:
                # Our descendant, hence not yet reaped by any other process.
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os._exit(status)


def _serve_lane(lane: ServerLane, host: Host) -> None:
    try:
        _serve(lane, host)
    except BaseException as error:
        # The lane's data is invalid or the answer cannot be sent, while a caller waits for it.
        status = shortage.exit_status(error)
        try:
            os.write(2, f"the worker cannot go on: {error!r}\n".encode())
        finally:
            os._exit(status)


def _serve(lane: ServerLane, host: Host) -> NoReturn:
    while True:
        meta, arrays = lane.wait()
        try:
            if meta[0] == STEP:
                _answer(lane, OK, meta, host.step(plan_number(meta)).run(arrays))
            elif meta[0] == BUNDLE:
                _run_bundle(lane, host, meta, arrays)
            else:
                _carry_out(lane, host, meta, arrays)
        except BaseException as error:
            _answer(lane, FAILED, _recorded(error), ())
        del meta, arrays


def _run_bundle(lane: ServerLane, host: Host, meta: bytes, arrays: list[np.ndarray]) -> None:
    """Run several steps of one plan in turn; if one fails, the others still run."""
    step, count = host.step(plan_number(meta)), bundled(meta)
    size = len(arrays) // count
    failures: list[bytes | None] = [None] * count
    results: list[np.ndarray] = []
    for i in range(count):
        try:
            results += step.run(arrays[i * size : (i + 1) * size])
        except BaseException as error:
            failures[i] = _recorded(error)
    if any(failures):
        _answer(lane, SOME_FAILED, msgspec.msgpack.encode(failures), results)
    else:
        _answer(lane, OK, meta, results)


def _recorded(error: BaseException) -> bytes:
    if isinstance(error, MemoryError):
        shortage.relieve(error)
    reserve.keep_again()
    try:
        return crossing.record(shortage.explained(error))
    except MemoryError:
        reserve.open_for_words()
        try:
            return crossing.record(shortage.explained(error))
        finally:
            reserve.keep_again()


def _answer(lane: ServerLane, status: int, meta: bytes, results: Arrays) -> None:
    if os.getpid() != _pid:
        os._exit(0)  # a fork made by the user's code: only the worker itself may answer
    lane.answer(status, meta, results)


def _carry_out(lane: ServerLane, host: Host, meta: bytes, arrays: list[np.ndarray]) -> None:
    # A function of its own, so that its results are freed before the next request arrives.
    call = _call_decoder.decode(memoryview(meta)[1:])
    result, results = host.call(call.name, call.arguments, arrays)
    reserve.keep_again()
    _answer(lane, OK, msgspec.msgpack.encode(result), results)
