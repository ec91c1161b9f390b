"""Leases that need no decision are noted at a door, and entered before the next decision."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import models
import sojourn
from pool_script import Script
from sojourn.errors import DeadlockDetected
from sojourn.pool.decisions.terms import Holder, Request
from sojourn.values import Place

pytestmark = pytest.mark.usefixtures("zygote")
SUM = ("output", {"a": 1, "b": 2})


def request(script: Script, ticket: int, model: str, who: object) -> Request:
    return Request(ticket, model, Holder(who, Place("app.py", ticket), str(who)), script.now)


def test_a_warm_copy_has_a_door_unless_it_is_one_of_several_or_its_runs_are_counted():
    script = Script()
    script.register("shared")
    script.register("mine", exclusive=True)
    script.register("many", copies=2)
    script.register("brief", max_runs=5)
    assert script.scheduler.door("shared") is None  # nobody has opened it
    for name in ("shared", "mine", "many", "brief"):
        script.use(name)
    for name in ("shared", "mine"):
        assert script.scheduler.door(name) is not None
    for name in ("many", "brief", "unknown"):
        assert script.scheduler.door(name) is None
    script.take("mine")
    assert script.scheduler.door("mine") is None  # somebody has it
    script.take("shared")
    script.do(script.scheduler.on_evict("shared", script.now))
    assert script.scheduler.door("shared") is None  # it leaves once it is given back


def test_those_who_came_by_the_door_count_as_if_they_had_asked():
    script = Script()
    script.register("shared")
    script.use("shared")
    copy = script.scheduler.door("shared")
    assert copy is not None
    before = script.scheduler.status()
    inside = [request(script, 100, "shared", "one"), request(script, 101, "shared", "two")]
    script.scheduler.enter(copy, inside, 7, runs=9, changed=True, last_used=script.now + 5)
    after = script.scheduler.status()
    assert after.counters["grants"] - before.counters["grants"] == 9
    assert after.counters["hits"] - before.counters["hits"] == 9
    assert after.copies[0].runs - before.copies[0].runs == 9
    assert after.copies[0].changed
    assert repr(script) == "<Pool 1.0/4.0 GiB | 1 leased, 0 idle, 0 waiting>"
    script.give_back(100)
    script.give_back(101)
    assert repr(script) == "<Pool 1.0/4.0 GiB | 0 leased, 1 idle, 0 waiting>"


def test_a_deadlock_is_seen_among_those_who_came_by_the_door():
    script = Script(limit=2)
    for name in ("a", "b", "c"):
        script.register(name)
    for name in ("a", "b"):
        script.use(name)
        copy = script.scheduler.door(name)
        assert copy is not None
        ticket = 100 if name == "a" else 101
        script.scheduler.enter(copy, [request(script, ticket, name, "me")], 0)
    ticket = script.ask("c", who="me")
    assert isinstance(script.refused[ticket], DeadlockDetected)


def test_leases_of_many_threads_are_all_counted():
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        pool.preload()

        def work() -> None:
            for _ in range(200):
                with pool.lease("sum") as session:
                    session.run(*SUM)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            pool.stats()  # has the notes entered in the middle of everything
        for thread in threads:
            thread.join()
        stats = pool.stats()
        assert stats.counters["grants"] == stats.counters["hits"] == 800
        assert stats.copies[0].runs == 800
        assert (stats.leased, stats.idle) == (0, 1)


@pytest.mark.parametrize("versions", [(None, 1), (1, None)])
def test_an_exclusive_copy_has_one_holder_also_if_one_names_its_version(versions):
    first, second = versions
    with sojourn.Pool() as pool:
        pool.register("mine", models.adder, exclusive=True)
        pool.preload()
        with pool.lease("mine", version=first), pytest.raises(DeadlockDetected):
            pool.lease("mine", version=second, timeout=60)


def test_an_exclusive_copy_has_one_holder_at_a_time_however_many_come_to_its_door():
    with sojourn.Pool() as pool:
        pool.register("mine", models.adder, exclusive=True)
        pool.preload()
        holders: list[object] = []
        most = 0

        def work() -> None:
            nonlocal most
            for _ in range(100):
                with pool.lease("mine", timeout=60) as session:
                    holders.append(session)
                    most = max(most, len(holders))
                    session.run(*SUM)
                    holders.pop()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = pool.stats()
        assert most == 1
        assert stats.counters["grants"] == stats.copies[0].runs == 400
        assert (stats.leased, stats.idle) == (0, 1)


def test_a_request_at_the_door_of_a_copy_that_is_taken_waits_for_it():
    with sojourn.Pool() as pool:
        pool.register("mine", models.adder, exclusive=True)
        pool.preload()
        with pool.lease("mine"):
            with pytest.raises(DeadlockDetected):
                pool.lease("mine")  # it would wait for itself
            assert pool.stats().leased == 1
        with pool.lease("mine") as session:
            assert session.run(*SUM) == 3


def test_who_gives_back_and_asks_again_is_never_thought_to_wait_for_themselves():
    with sojourn.Pool() as pool:
        pool.register("mine", models.adder, exclusive=True)
        problems: list[Exception] = []

        def work() -> None:
            try:
                for _ in range(150):
                    pool.lease("mine").close()
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems


def test_a_copy_whose_worker_has_died_is_never_at_the_door_however_soon_one_asks_again():
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        with pool.lease("sum") as session:
            assert session.run(*SUM) == 3
        [resident] = pool._driver.residents.values()
        with pool._driver.lock:  # the keeper must not be the one who tells
            os.kill(resident.stay.pid, signal.SIGKILL)
            deadline = time.monotonic() + 60
            while resident.is_alive():
                assert time.monotonic() < deadline, "it lives"
            now = time.monotonic()
            assert [resident.seems_alive(now) for _ in range(3)] == [False] * 3
