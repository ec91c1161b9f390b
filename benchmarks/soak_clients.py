"""Random rounds: the client itself is interrupted, gets errors, forks, or ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import soak_models
from soak_models import PLAIN, SLEEP
from soak_rounds import (
    FUNCTIONS,
    Round,
    happens,
    killed_zygotes,
    refused,
    wait_until,
    zygote_pid,
)

import sojourn
from sojourn.probes import processes
from sojourn.testing.injection import Refusals, interrupted
from sojourn.transport import frames


@happens()
def interrupted_opening(round: Round) -> bool:
    with _interrupted(round, 260) as where:
        round.open_one()
    gc.collect()
    return bool(where)


@happens()
def interrupted_step(round: Round) -> bool:
    kept = round.pick()
    if not kept.can_attempt:
        return False
    with _interrupted(round, 170) as where:
        kept.attempt()
    kept.add(1)
    return bool(where)


@happens()
def interrupted_close(round: Round) -> bool:
    kept = round.lose()
    with _interrupted(round, 40) as where:
        kept.session.close()
    round.end(kept)
    return bool(where)


@contextlib.contextmanager
def _interrupted(round: Round, points: int) -> Iterator[list[str]]:
    """Raise a Ctrl-C at one of the first points of the block; the list says where, if it did."""
    point = round.chosen.randrange(1, points)
    with contextlib.suppress(KeyboardInterrupt), interrupted(point) as where:
        yield where


@happens()
def ctrl_c(round: Round) -> bool:
    """Send a real Ctrl-C while the client waits: for a loading model, a step, or others' steps."""
    kept = round.lose()
    how = round.chosen.choice(["loading", "step", "close"])
    round.note(how)
    begun = round.path()

    def wait() -> None:
        if how == "loading":
            sojourn.open(soak_models.endless(begun)).close()
        elif how == "step":
            kept.ask(30, SLEEP)
        else:
            round.background(lambda: kept.ask(30, SLEEP), sojourn.SessionClosed)
            wait_until(lambda: kept.session.state is sojourn.State.RUNNING)
            kept.session.close()

    def press() -> None:
        states = {"step": sojourn.State.RUNNING, "close": sojourn.State.DRAINING}
        if how == "loading":
            wait_until(lambda: os.path.exists(begun))
        else:
            wait_until(lambda: kept.session.state is states[how])
        time.sleep(0.02)  # until all listeners have been notified of the state
        os.kill(os.getpid(), signal.SIGINT)

    round.sessions += how == "loading"
    finger = threading.Thread(target=press)
    finger.start()
    try:
        with refused(KeyboardInterrupt):
            wait()
    finally:
        finger.join()
    kept.session.close(timeout=0)
    assert kept.session.receipt is not None
    assert kept.session.receipt.clean, str(kept.session.receipt)
    return True


REFUSED: list[list[tuple[Any, str]]] = [
    [(os, "memfd_create"), (os, "ftruncate"), (os, "eventfd")],
    [(mmap, "mmap")],
    [(os, "pidfd_open")],
    [(socket, "socketpair")],
    [(fcntl, "fcntl")],
]
REFUSED_ON_CHANNELS: list[list[tuple[Any, str]]] = [
    [(socket, "send_fds")],
    [(frames, "receive_fds")],
]


@happens()
def refused_by_the_system(round: Round) -> bool:
    return _refused(round, REFUSED)


@happens(FUNCTIONS, weight=0.5)
def refused_on_a_channel(round: Round) -> bool:
    """Refuse a channel to the zygote, which is replaced if nobody can know what it received."""
    victim = zygote_pid()
    has_failed = _refused(round, REFUSED_ON_CHANNELS)
    if has_failed:
        killed_zygotes.add(victim)
    return has_failed


def _refused(round: Round, what: list[list[tuple[Any, str]]]) -> bool:
    with Refusals(lambda: OSError(errno.ENOMEM, "refused")) as refusals:
        for owner, name in round.chosen.choice(what):
            refusals.cover(owner, name)
        refusals.at(round.chosen.randrange(1, 12))
        with contextlib.suppress(OSError, sojourn.SojournError):
            round.open_one()
    return refusals.has_failed


@happens()
def forked_client(round: Round) -> bool:
    kept = round.pick()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            try:
                kept.ask(1, PLAIN)
            except sojourn.SessionClosed:
                code = 0
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0, "a fork could use the session"
    kept.add(1)
    return True


PROGRAM = """
import os, signal, sys, threading
import soak_models, sojourn
session = sojourn.open(soak_models.function)
session.run("output", {"amount": 1, "how": 0})
step = {"amount": 600, "how": soak_models.SLEEP}
if sys.argv[1] == "1":
    threading.Thread(target=session.run, args=("output", step), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
"""
ENDS = {
    "killed": "signal.pause()",
    "exits": "",
    "fails": "raise SystemExit(3)",
    "leaves": "os._exit(3)",
    "aborts": "os.abort()",
    "becomes another": "os.execvp('sleep', ['sleep', '0.01'])",
    "ends politely": "os.kill(os.getpid(), signal.SIGTERM)",
}


@happens(FUNCTIONS, weight=0.15)  # it needs a process that imports everything
def program_ends(round: Round) -> bool:
    """However another program ends, its worker and zygote end with it."""
    how = round.chosen.choice(list(ENDS))
    in_a_step = round.chosen.choice("01")
    round.note(f"{how}{' in a step' * int(in_a_step)}")
    round.sessions += 1
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(soak_models.__file__)}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + ENDS[how], in_a_step],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == b"ready\n", "a program could not open a session"
        program.stdin.write(b"\n")
        program.stdin.flush()
        if how == "killed":
            program.kill()
        wait_until(lambda: program.poll() is not None)
    wait_until(lambda: not processes.of_client(program.pid))
    return True
