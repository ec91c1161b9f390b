"""A copy that grows past the pool's limit is replaced, and its model is never banned for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import models
import pool_models
import sojourn
from faults.tools import wait_until
from pool_script import GiB, Script
from sojourn.errors import BudgetExceeded
from sojourn.pool.decisions.copy_events import OVERRUN_READINGS
from sojourn.pool.decisions.effects import Open, Report
from sojourn.pool.decisions.terms import CopyId
from sojourn.pool.keeper import Keeper

MiB = 2**20


def hoarder():
    """A function that holds so many megabytes for so many seconds."""

    def hoard(megabytes, seconds):
        held = bytearray(b"x") * (int(megabytes) * 2**20)
        time.sleep(float(seconds))
        return len(held)

    return hoard


@pytest.fixture
def overruns() -> Iterator[list[sojourn.events.Event]]:
    heard: list[sojourn.events.Event] = []
    stop = sojourn.events.subscribe(
        lambda event: heard.append(event) if event.kind == "pool.overrun" else None
    )
    yield heard
    stop()


@pytest.mark.usefixtures("zygote")
def test_one_large_request_does_not_ban_its_model(overruns):
    with sojourn.Pool(memory="140MiB") as pool:
        pool.register("hoard", hoarder)
        small = {"megabytes": 1, "seconds": 0}
        with pool.lease("hoard") as session:
            session.run("output", small)
        is_over = threading.Event()

        def make_small_calls() -> int:
            calls = 0
            while not is_over.is_set():
                with pool.lease("hoard", timeout=60) as session:
                    session.run("output", small)
                calls += 1
            return calls

        with ThreadPoolExecutor(2) as threads:
            others = [threads.submit(make_small_calls) for _ in range(2)]
            with pool.lease("hoard", timeout=60) as session:
                first = session.pid
                large = threading.Thread(
                    target=session.run, args=("output", {"megabytes": 300, "seconds": 4})
                )
                large.start()
                # What it holds is charged while it holds it.
                wait_until(lambda: pool.stats().charged_bytes > 300 * MiB)
                large.join()
            is_over.set()
            assert all(future.result() > 0 for future in others)
        wait_until(lambda: pool.stats().counters["recycled"] > 0)
        for _ in range(3):
            with pool.lease("hoard", timeout=60) as session:
                assert session.pid != first
                session.run("output", small)
        assert pool.stats().charged_bytes < 140 * MiB
        assert pool.stats().counters["refusals"] == 0
    assert overruns[0].detail["held_bytes"] > 140 * MiB
    assert overruns[0].detail["limit_bytes"] == 140 * MiB


@pytest.mark.usefixtures("zygote")
def test_a_model_that_turns_out_too_large_is_refused_with_what_was_measured(overruns):
    with sojourn.Pool(memory="100MiB") as pool:
        pool.register("big", models.holding(150))
        pool.register("sum", models.adder)
        with pytest.raises(BudgetExceeded, match=r"big needs 1\d\d MiB, measured .* 100 MiB"):
            pool.lease("big")
        wait_until(lambda: pool.stats().charged_bytes == 0)
        pool.lease("sum", timeout=60).close()
    assert overruns[0].session == "big"


@pytest.mark.usefixtures("zygote")
@pytest.mark.parametrize("gives_back", [False, True], ids=["held", "given back at once"])
def test_growth_is_charged_though_nothing_else_happens(overruns, gives_back, monkeypatch):
    sleeps: list[float] = []
    seconds_to_sleep = Keeper._seconds_to_sleep

    def noted(keeper: Keeper) -> float | None:
        seconds = seconds_to_sleep(keeper)
        sleeps.append(seconds or 0.0)
        return seconds

    monkeypatch.setattr(Keeper, "_seconds_to_sleep", noted)
    with sojourn.Pool(memory="140MiB", idle_seconds=300) as pool:
        pool.register("grow", pool_models.growing)
        pool.lease("grow").close()
        wait_until(lambda: sleeps[-1] > 200)
        lease = pool.lease("grow")  # of an open copy: nothing is decided for it
        for _ in range(50):
            lease.run("output", {"a": 1})
        if gives_back:
            lease.close()
        wait_until(lambda: bool(overruns))
        lease.close()
    assert overruns[0].detail["charged_bytes"] > 140 * MiB  # it may be growing still


# -- the decisions ------------------------------------------------------------------------------


def measure(script: Script, copy: CopyId, size: float) -> None:
    script.do(script.scheduler.on_measured(copy, int(size * GiB), script.now))


def test_a_copy_that_overran_is_replaced_when_it_is_given_back():
    script = Script(limit=2)
    script.register("a", memory_bytes=None, estimate_bytes=GiB)
    held = script.take("a")
    measure(script, script.granted[held], 3)
    assert script.scheduler.charged_bytes == 3 * GiB
    [told] = [e for e in script.log if isinstance(e, Report)]
    assert told.kind == "pool.overrun"
    assert (told.detail["held_bytes"], told.detail["reserved_bytes"]) == (3 * GiB, GiB)
    more = script.ask("a")  # who comes meanwhile is served
    assert more in script.granted
    script.scheduler.on_accepted(more)
    script.give_back(more)
    assert not script.closing
    script.give_back(held)
    assert script.closing == [CopyId("a", 0, 1)]
    script.settle()
    script.use("a")
    fresh = [e.reserve_bytes for e in script.log if isinstance(e, Open)]
    assert fresh == [GiB, GiB]  # what one request took is no size
    assert not script.refused


def test_a_copy_that_stays_over_the_limit_gets_no_new_holders_until_it_is_replaced():
    script = Script(limit=2)
    script.register("a", memory_bytes=None, estimate_bytes=GiB)
    held = script.take("a")
    for _ in range(OVERRUN_READINGS):
        measure(script, script.granted[held], 3)
    waiter = script.ask("a")
    assert waiter not in script.granted
    script.give_back(held)
    script.settle()
    assert script.granted[waiter] == CopyId("a", 0, 2)
    assert script.scheduler.counters.overruns == 1


def test_a_copy_within_what_was_reserved_for_it_is_not_to_blame():
    script = Script(limit=4)
    script.register("declared", size=2)
    script.register("grows", memory_bytes=None, estimate_bytes=GiB)
    declared, grown = script.take("declared"), script.take("grows")
    measure(script, script.granted[grown], 3)
    measure(script, script.granted[declared], 2)
    script.give_back(declared)
    script.give_back(grown)
    script.settle()
    assert "grows" not in script.residents


def test_a_guess_never_keeps_a_model_out():
    script = Script(limit=1)
    script.register("a", size=0.1, memory_bytes=None, estimate_bytes=9 * GiB)
    script.register("b", size=0.1, memory_bytes=None, estimate_bytes=None)
    script.use("a")
    script.use("b")
    script.register("c", size=0.1, memory_bytes=None, estimate_bytes=9 * GiB)
    assert script.ask("c", warm_slot=0) not in script.refused  # to preload it
    script.settle()
    assert not script.refused


def test_beside_pinned_models_a_guess_may_try_what_is_left_and_no_room_at_all_is_an_error():
    script = Script(limit=2)
    script.register("pinned", size=1.5, pinned=True)
    script.register("small", size=0.1, memory_bytes=None, estimate_bytes=GiB)
    script.register("rest", size=0.5, pinned=True)
    script.use("pinned")
    script.use("small")
    script.use("rest")
    ticket = script.ask("small")
    assert "waiting cannot help" in str(script.refused[ticket])


def test_a_model_that_was_measured_to_be_too_large_is_tried_again_but_not_at_once():
    script = Script(limit=2)
    script.register("a", size=3, memory_bytes=None, estimate_bytes=GiB)
    first = script.ask("a")
    script.settle()
    assert "a needs 3.0 GiB, measured" in str(script.refused[first])
    again = script.ask("a")
    assert "tried again in 1.0 s" in str(script.refused[again])
    assert not script.opening
    script.now += 1.5
    script.sizes["a"] = GiB  # its files have changed
    script.use("a")


def test_an_error_about_an_estimate_says_so_and_names_the_option():
    script = Script(limit=2)
    script.register("held", size=1.5)
    script.register("a", memory_bytes=None, estimate_bytes=GiB)
    script.take("held")
    ticket = script.ask("a")
    script.now += 2
    script.time_out(ticket)
    assert str(script.refused[ticket]).startswith(
        "a needs an estimated 1.0 GiB (register it with memory= to say how much); "
        "512 MiB of 2.0 GiB is free"
    )


def test_only_what_was_declared_is_refused_when_it_is_registered():
    script = Script(limit=1)
    script.register("guessed", memory_bytes=None, estimate_bytes=2 * GiB)
    with pytest.raises(BudgetExceeded, match="can never fit"):
        script.register("declared", size=2)


def test_copies_whose_size_is_a_guess_are_preloaded_one_after_the_other():
    script = Script(limit=2)
    script.register("a", size=0.5, copies=3, memory_bytes=None, estimate_bytes=2 * GiB)
    tickets = [script.ask("a", warm_slot=slot) for slot in range(3)]
    script.settle()
    assert set(script.warmed) == set(tickets)
