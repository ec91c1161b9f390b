"""Random rounds: sessions as they are meant to be used, by owners, borrowers and listeners."""

from __future__ import annotations

import contextlib
import gc
import time
from typing import Any

import numpy as np
from soak_models import FAIL, PLAIN, hungry
from soak_rounds import FUNCTIONS, LIVE, Kept, Round, failures, happens, refused

import sojourn
from sojourn import events


@happens(weight=2)
def step(round: Round) -> None:
    round.pick().add(round.chosen.randrange(1, 9))


@happens(weight=2)
def many_steps(round: Round) -> None:
    kept = round.pick()
    for _ in range(round.chosen.randrange(5, 50)):
        kept.add(1)


@happens(weight=2)
def one_more(round: Round) -> None:
    round.open_one()


@happens(weight=2)
def close_one(round: Round) -> None:
    round.end(round.lose())


@happens(weight=2)
def large_result(round: Round) -> None:
    size = round.chosen.randrange(2, 200_000)
    kept = round.pick()
    result = kept.many(size)
    assert result.shape == (size,), result.shape
    kept.check(result[0])
    assert (result == result[0]).all()


@happens()
def strings(round: Round) -> None:
    sizes = [round.chosen.choice([0, 1, 7, 5000]) for _ in range(round.chosen.randrange(1, 20))]
    words = [round.chosen.randbytes(size) for size in sizes]
    result = round.pick().same(np.array(words, object))
    assert list(result) == words, f"{list(result)} instead of {words}"


@happens(FUNCTIONS, LIVE)
def inline(round: Round) -> None:
    """Use an inline session, in this process; TensorFlow keeps what it holds there."""
    kept = round.new(isolation="inline")
    for _ in range(5):
        kept.add(1)
    with refused(*failures()):
        kept.ask(1, FAIL)
    kept.add(1)
    assert kept.session.close() is kept.session.receipt
    with refused(sojourn.SessionClosed):
        kept.add(1)


# -- leases -------------------------------------------------------------------------------------


@happens(weight=2)
def borrow(round: Round) -> None:
    kept = round.pick()
    with kept.session.lend() as lease:
        own, kept.session = kept.session, lease  # type: ignore[assignment]
        try:
            kept.add(1)
        finally:
            kept.session = own
    with refused(sojourn.LeaseExpired):
        lease.run(*zero(kept))


@happens()
def lease_that_runs_out(round: Round) -> bool:
    kept = round.pick()
    with kept.session.lend(max_seconds=0.005) as lease:
        time.sleep(0.006)
        with refused(sojourn.LeaseExpired):
            lease.run(*zero(kept))
    kept.add(1)
    return True


@happens()
def forgotten_lease(round: Round) -> bool:
    kept = round.pick()
    lease = kept.session.lend(lease_warning_seconds=round.chosen.choice([None, 0.0, 60.0]))
    lease.run(*zero(kept))
    del lease
    kept.add(1)
    return True


@happens()
def closed_while_lent(round: Round) -> bool:
    kept = round.lose()

    def borrow() -> None:
        with kept.session.lend() as lease:
            while True:
                lease.run(*zero(kept))

    for _ in range(3):  # a late borrower finds the session closed
        round.background(borrow, sojourn.LeaseExpired, sojourn.SessionClosed)
    time.sleep(round.chosen.uniform(0, 0.01))
    round.end(kept)
    return True


# -- errors in the caller's part of a step ------------------------------------------------------


@happens()
def failing_step(round: Round) -> bool:
    kept = round.pick()
    with refused(*failures()):
        kept.ask(1, FAIL)
    kept.add(1)
    return True


@happens()
def large_feed_that_is_refused(round: Round) -> bool:
    kept = round.pick()
    with refused(*failures(), TypeError):
        kept.ask(np.ones(round.chosen.randrange(2, 200_000)), PLAIN)  # not a single number
    kept.add(1)
    return True


@happens()
def bad_input(round: Round) -> bool:
    kept = round.pick()
    fetch, feeds = zero(kept)
    wrong: list[tuple[Any, Any]] = [("nothing", feeds), ([fetch, None], feeds), (fetch, [1])]
    wrong += [(fetch, {}), (fetch, feeds | {"other": 1})]
    for amount in (np.array([None, 1], object), object(), "text", 1 + 2j):
        wrong.append((fetch, feeds | {"amount": amount}))
    with refused(*failures(), TypeError):
        kept.session.run(*round.chosen.choice(wrong))
    kept.add(1)
    return True


@happens(FUNCTIONS)
def more_memory_than_allowed(round: Round) -> bool:
    round.sessions += 1
    with sojourn.open(hungry, memory="256MiB") as session:
        with refused(MemoryError, sojourn.EngineError):
            session.run("output", {"size": 2**31})
        assert session.run("output", {"size": 1000}) == 1000
    return True


# -- listeners ----------------------------------------------------------------------------------


@happens()
def listener_that_fails(round: Round) -> bool:
    def fail(event: events.Event) -> None:
        raise ZeroDivisionError

    kept = round.pick()
    stop = events.subscribe(fail, every_step=True)
    try:
        kept.add(1)
        round.end(round.new())
    finally:
        stop()
    return True


@happens()
def listener_that_closes(round: Round) -> bool:
    kept = round.lose()
    told = round.chosen.choice(["session.running", "session.ready", "session.step"])
    heard: list[events.Event] = []

    def close(event: events.Event) -> None:
        if event.kind == told and event.session == kept.session.name and not heard:
            heard.append(event)
            kept.session.close()

    kept.ask(0, PLAIN)
    stop = events.subscribe(close, every_step=True)
    try:
        with contextlib.suppress(sojourn.SessionClosed):
            kept.ask(0, PLAIN)
    finally:
        stop()
    round.end(kept)
    return bool(heard)


@happens()
def forgotten(round: Round) -> bool:
    kept = round.lose()
    del kept
    gc.collect()
    return True


def zero(kept: Kept) -> tuple[str, dict[str, Any]]:
    """Return the arguments of a step that adds nothing."""
    if "total" in kept.session.signature.outputs:
        return "total", {"amount": 0}
    return "output", {"amount": 0, "how": PLAIN}
