"""Random rounds: workers and zygotes are killed, stopped, or get errors from the system."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator

import soak_models
from soak_models import DIE, PLAIN, SLEEP, SPAWN
from soak_rounds import (
    FUNCTIONS,
    GRAPHS,
    LIVE,
    Round,
    happens,
    kill_zygote,
    killed_zygotes,
    refused,
    wait_until,
    zygote_pid,
)

import sojourn
from sojourn.process import zygote as zygote_module
from sojourn.process.zygote import zygote

# -- the worker ---------------------------------------------------------------------------------


@happens()
def killed_idle(round: Round) -> bool:
    kept = round.lose()
    number = round.chosen.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
    os.kill(kept.session.pid, number)
    with refused(sojourn.SessionBroken):
        for _ in range(10_000):  # the kernel may take a while to deliver the signal
            kept.ask(0, PLAIN)
    round.end(kept)
    return True


@happens()
def killed_in_a_step(round: Round) -> bool:
    kept = round.lose()
    with round.meanwhile(os.kill, kept.session.pid, 9), refused(sojourn.SessionBroken):
        while True:
            kept.ask(0.01, round.chosen.choice([PLAIN, SLEEP]))
    round.end(kept)
    return True


@happens()
def dies_by_itself(round: Round) -> bool:
    kept = round.lose()
    with refused(sojourn.SessionBroken):
        kept.ask(1, DIE)
    round.end(kept)
    return True


@happens()
def dies_while_loading(round: Round) -> bool:
    how = round.chosen.choice([0, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
    round.sessions += 1
    with refused(sojourn.SessionBroken):
        sojourn.open(soak_models.dying(how)).close()
    return True


@happens()
def cannot_be_loaded(round: Round) -> bool:
    round.sessions += 1
    with refused(ValueError):
        sojourn.open(soak_models.unfit).close()
    return True


@happens()
def loads_for_too_long(round: Round) -> bool:
    round.sessions += 1
    with refused(sojourn.StepTimeout):
        sojourn.open(soak_models.endless(), timeout=round.chosen.uniform(0, 0.1)).close()
    return True


@happens()
def stopped(round: Round) -> bool:
    kept = round.pick()
    if not kept.can_attempt:
        return False
    os.kill(kept.session.pid, signal.SIGSTOP)
    with contextlib.suppress(sojourn.StepTimeout):  # the stop may come too late as well
        kept.attempt(timeout=0.02)
    if round.chosen.random() < 0.3:
        round.open.remove(kept)
        round.end(kept)
    else:
        os.kill(kept.session.pid, signal.SIGCONT)
        kept.add(1)
    return True


@happens()
def timed_out(round: Round) -> bool:
    kept = round.pick()
    with refused(sojourn.StepTimeout):
        kept.ask(0.05, SLEEP, timeout=0.01)
    kept.add(1)
    return True


@happens()
def closed_in_a_step(round: Round) -> bool:
    kept = round.lose()
    round.background(lambda: kept.ask(30, SLEEP), sojourn.SessionClosed)
    wait_until(lambda: kept.session.state is sojourn.State.RUNNING)
    kept.session.close(timeout=round.chosen.choice([0.0, 0.01]))
    return True


@happens()
def closed_while_many_run(round: Round) -> bool:
    kept = round.lose()

    def run() -> None:
        while True:
            kept.ask(0, PLAIN)

    for _ in range(3):
        round.background(run, sojourn.SessionClosed)
    time.sleep(round.chosen.uniform(0, 0.02))
    round.end(kept)
    return True


@happens()
def left_a_daemon(round: Round) -> bool:
    kept = round.lose()
    kept.ask(1, SPAWN)
    if round.chosen.random() < 0.5:
        os.kill(kept.session.pid, signal.SIGKILL)
    round.end(kept)
    return True


@happens()
def worker_may_not_open_files(round: Round) -> bool:
    """Limit the worker's descriptors: the step that needs one fails, or the session does."""
    kept = round.new()
    with _no_more_files(kept.session.pid, round.chosen.randrange(3)):
        try:
            kept.many(300_000)
            failed = False
        except (OSError, sojourn.SojournError):
            failed = True
    if kept.session.state is not sojourn.State.BROKEN:
        kept.add(1)
    round.end(kept)
    return failed


# -- the zygote ---------------------------------------------------------------------------------


@happens(FUNCTIONS)
@happens(GRAPHS, LIVE, weight=0.1)  # rare: the next zygote has to import TensorFlow
def zygote_killed(round: Round) -> bool:
    kill_zygote(zygote_pid())
    return True


@happens(FUNCTIONS)
@happens(GRAPHS, LIVE, weight=0.1)
def zygote_killed_in_a_fork(round: Round) -> bool:
    victim = zygote_pid()
    with round.meanwhile(kill_zygote, victim), contextlib.suppress(sojourn.SojournError):
        round.open_one()
    return True


@happens(FUNCTIONS)
def zygote_killed_while_it_imports(round: Round) -> bool:
    kill_zygote(zygote_pid())
    sojourn.warm_up()
    victim = zygote.pid
    assert victim is not None
    with round.meanwhile(kill_zygote, victim), contextlib.suppress(sojourn.SojournError):
        round.open_one()
    return True


@happens()
def zygote_stopped(round: Round) -> bool:
    """Stop the zygote for a moment: clients that need it wait."""
    victim = zygote_pid()
    os.kill(victim, signal.SIGSTOP)
    with round.meanwhile(os.kill, victim, signal.SIGCONT):
        if round.chosen.random() < 0.5:
            round.end(round.lose())
        else:
            round.open_one()
    return True


@happens(FUNCTIONS, weight=0.5)
def zygote_stopped_for_good(round: Round) -> bool:
    """Stop the zygote permanently. Nobody waits forever: a close works without it, an open
    replaces it."""
    victim = zygote_pid()
    killed_zygotes.add(victim)
    patience = zygote_module._STATUS_SECONDS, zygote_module._FORK_SECONDS

    def be_patient(status: float, fork: float) -> None:
        zygote_module._STATUS_SECONDS, zygote_module._FORK_SECONDS = status, fork

    def hear(event: sojourn.events.Event) -> None:
        if event.kind == "zygote.ended":
            be_patient(*patience)  # for the next zygote: only this one is known not to answer

    kept = round.lose()
    os.kill(victim, signal.SIGSTOP)
    stop = sojourn.events.subscribe(hear)
    be_patient(0.1, 0.1)
    try:
        if round.chosen.random() < 0.5:
            round.end(kept)
            round.open_one()
        else:
            round.open_one()
            round.end(kept)
    finally:
        be_patient(*patience)
        stop()
    return True


@happens()
def zygote_may_not_open_files(round: Round) -> bool:
    with _no_more_files(zygote_pid(), round.chosen.randrange(12)):
        try:
            kept = round.new()
        except (sojourn.PlatformError, sojourn.SessionBroken, sojourn.ModelError, OSError):
            return True
        with contextlib.suppress(sojourn.SojournError, OSError):
            kept.add(1)  # the worker has inherited the limit
    round.end(kept)
    return False


@contextlib.contextmanager
def _no_more_files(pid: int, more: int) -> Iterator[None]:
    """Let the process open only this many more descriptors than it has now."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    has = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (has + more, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
