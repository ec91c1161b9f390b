"""Random rounds: isolated calls and streams, and pools of functions."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time

import numpy as np
import soak_models
from soak_models import PLAIN
from soak_rounds import FUNCTIONS, Round, happens, refused

import sojourn

# -- isolated -----------------------------------------------------------------------------------

add = sojourn.isolated(soak_models.add)
stream = sojourn.isolated(soak_models.counting)


@happens(weight=2)
def isolated_call(round: Round) -> None:
    size = round.chosen.choice([1, 10, 100_000])
    round.sessions += 1
    assert (add(np.arange(size), b=1) == np.arange(1, size + 1)).all()
    assert add.receipt is not None
    assert add.receipt.clean


@happens()
def isolated_calls_side_by_side(round: Round) -> None:
    round.sessions += 4
    assert add.map(range(4), range(4), workers=2, quiet=True) == [0, 2, 4, 6]


@happens()
def isolated_call_that_fails(round: Round) -> bool:
    round.sessions += 1
    how = round.chosen.choice(["fail", "leave", "time out", "cannot travel"])
    round.note(how)
    if how == "fail":
        with refused(KeyError):
            sojourn.isolated(soak_models.fail)()
    elif how == "leave":
        with refused(sojourn.SessionBroken):
            sojourn.isolated(soak_models.leave)()
    elif how == "time out":
        with refused(sojourn.StepTimeout):
            sojourn.isolated(timeout=0.02)(time.sleep)(30)
    else:
        with refused(sojourn.InputError):
            add(threading.Lock(), 1)
    return True


@happens(weight=2)
def isolated_stream(round: Round) -> bool:
    count = round.chosen.randrange(1, 20)
    items = stream(count)
    round.sessions += 1
    worker = next(items)
    for expected in range(round.chosen.randrange(count)):
        assert next(items) == expected
    how = round.chosen.choice(["all", "close", "forget", "kill", "throw"])
    round.note(how)
    if how == "all":
        assert list(items)[-1:] in ([count - 1], [])
    elif how == "close":
        items.close()
    elif how == "kill":
        os.kill(worker, signal.SIGKILL)
        with contextlib.suppress(sojourn.SessionBroken):  # a kill takes effect a moment later
            list(items)
    elif how == "throw":
        with refused(ZeroDivisionError):
            items.throw(ZeroDivisionError())
    else:
        del items
        gc.collect()
    return how in ("forget", "kill")


# -- pools --------------------------------------------------------------------------------------


@happens(FUNCTIONS)
def pool(round: Round) -> bool:
    """Lease, kill, evict and forget from some threads; then serve every model, and close."""
    with sojourn.Pool(
        max_sessions=3, idle_seconds=round.chosen.choice([0.01, 300.0]), parking_folder=round.folder
    ) as pool:
        pool.register("shared", soak_models.function, copies=2)
        pool.register("brief", soak_models.function, max_runs=3)
        pool.register("exclusive", soak_models.function, exclusive=True)
        kills = threading.Semaphore(2)  # after more in a row a model is not reopened at once
        problems: list[BaseException] = []

        def work(chosen: random.Random) -> None:
            try:
                for _ in range(5):
                    _one_use(pool, chosen, kills)
            except BaseException as error:
                problems.append(error)

        threads = [
            threading.Thread(target=work, args=[random.Random(round.chosen.random())])
            for _ in range(round.chosen.randrange(1, 4))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread hangs in a pool"
        if problems:
            raise problems[0]
        for name in ("shared", "brief", "exclusive"):
            with pool.lease(name, timeout=60) as session:
                session.run("output", {"amount": 1, "how": PLAIN})
        left = pool.lease("shared", timeout=60)
        if round.chosen.random() < 0.5:
            left.close()
        pool.close(timeout=0.01)
        if left.is_active:
            raise AssertionError("a lease outlives its pool")
        round.sessions += pool.stats().counters["opens"]
        return pool.stats().counters["deaths"] > 0


def _one_use(pool: sojourn.Pool, chosen: random.Random, kills: threading.Semaphore) -> None:
    name = chosen.choice(["shared", "brief", "exclusive"])
    step = ("output", {"amount": 1, "how": PLAIN})
    try:
        lease = pool.lease(name, timeout=chosen.choice([0.01, 60]))
    except (sojourn.PoolTimeout, sojourn.BudgetExceeded):
        return
    except sojourn.SessionBroken:
        return  # the worker was killed while it was handed over
    how = chosen.choice(["use", "use", "kill", "evict", "forget"])
    if how == "forget":
        with contextlib.suppress(sojourn.SessionBroken):
            lease.run(*step)
        del lease
        return
    with contextlib.suppress(sojourn.SessionBroken), lease:
        before = lease.run(*step)
        if how == "kill" and kills.acquire(blocking=False):
            with contextlib.suppress(ProcessLookupError):  # who shares it may have killed it
                os.kill(lease.pid, signal.SIGKILL)
            with refused(sojourn.SessionBroken):
                while True:
                    lease.run(*step)
        elif how == "evict":
            pool.evict(name, timeout=0.01)
            assert lease.run(*step) > before  # not evicted before it is returned
