"""What a pool does with variables that changed, with workers that die, and in event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

import models
import pool_models
import sojourn
from clients import client, told
from faults.tools import wait_until
from sojourn.pool.decisions.terms import CopyId, Holder
from sojourn.pool.driver import Wish
from sojourn.pool.leasing import Resident
from sojourn.pool.parking import Parking
from sojourn.values import caller

pytestmark = pytest.mark.usefixtures("zygote")

SUM = ("output", {"a": 1, "b": 2})


def count(pool: sojourn.Pool, what: str) -> int:
    return pool.stats().counters[what]


@pytest.fixture
def pool(tmp_path):
    with sojourn.Pool(memory="1GiB", parking_folder=tmp_path) as pool:
        pool.register("random", pool_models.unlike_any_other)
        pool.register("sum", models.adder)
        yield pool


# -- parking ------------------------------------------------------------------------------------


def test_changed_variables_come_back_bit_for_bit(pool, tmp_path):
    with pool.lease("random") as session:
        session.run("change")
        before, pid = session.run("value"), session.pid
    pool.evict("random")
    assert count(pool, "parks") == 1
    with pool.lease("random") as session:
        assert session.pid != pid
        assert session.run("value").tobytes() == before.tobytes()
    pool.evict("random")
    assert count(pool, "parks") == 1  # nothing has changed since
    with pool.lease("random") as session:
        assert session.run("value").tobytes() == before.tobytes()
        session.run("change")
    pool.evict("random")
    assert count(pool, "parks") == 2
    wait_until(lambda: len(os.listdir(*map(tmp_path.joinpath, os.listdir(tmp_path)))) == 1)
    with pool.lease("random") as session:
        assert session.run("value").tobytes() == (before + 1).tobytes()
    pool.close()
    assert os.listdir(tmp_path) == []


def test_models_whose_names_look_alike_in_a_path_have_a_state_each(pool):
    pool.register("random", pool_models.unlike_any_other, version=2)
    pool.register("random_2", pool_models.unlike_any_other)
    before = {}
    for name in ("random", "random_2"):
        with pool.lease(name) as session:
            session.run("change")
            before[name] = session.run("value").tobytes()
        pool.evict(name)
    for name, value in before.items():
        with pool.lease(name) as session:
            assert session.run("value").tobytes() == value


def test_what_was_only_read_is_not_parked(pool, tmp_path):
    with pool.lease("random") as session:
        before = session.run("value")
    pool.evict("random")
    assert count(pool, "parks") == 0
    assert os.listdir(tmp_path) == []
    with pool.lease("random") as session:
        assert session.run("value").tobytes() != before.tobytes()


def test_a_restored_or_reset_session_counts_as_changed(pool, tmp_path):
    with pool.lease("random") as session:
        session.save(tmp_path / "mine")
        before = session.run("value")
    pool.evict("random")
    assert count(pool, "parks") == 0
    with pool.lease("random") as session:
        session.restore(tmp_path / "mine")
    pool.evict("random")
    assert count(pool, "parks") == 1
    with pool.lease("random") as session:
        assert session.run("value").tobytes() == before.tobytes()


def test_what_cannot_be_parked_stays_and_says_so(tmp_path):
    (tmp_path / "a-file").touch()
    failures = []
    stop = sojourn.events.subscribe(
        lambda event: failures.append(event) if event.kind == "pool.park_failed" else None
    )
    with sojourn.Pool(parking_folder=tmp_path / "a-file") as pool:
        pool.register("random", pool_models.unlike_any_other)
        with pool.lease("random") as session:
            session.run("change")
            before, pid = session.run("value"), session.pid
        pool.evict("random", timeout=0.2)
        wait_until(lambda: failures)
        assert "a-file" in pool.stats().copies[0].park_error
        with pool.lease("random", timeout=5) as session:
            assert session.pid == pid
            assert session.run("value").tobytes() == before.tobytes()
    stop()
    assert "a-file" in failures[0].detail["error"]


def test_ten_training_loops_in_a_budget_for_three_end_as_if_each_had_run_alone():
    def batches(loop: int, turn: int) -> list[dict[str, np.ndarray]]:
        numbers = np.random.default_rng([loop, turn])
        xs = [numbers.normal(size=(8, 4)).astype(np.float32) for _ in range(3)]
        return [{"x": x, "y": x @ np.arange(loop, loop + 4, dtype=np.float32)} for x in xs]

    turns = range(3)
    alone = []
    with sojourn.open(pool_models.linear_regression, deterministic=True, seed=1) as session:
        for loop in range(10):
            session.reset()
            for turn in turns:
                for batch in batches(loop, turn):
                    session.run("train", batch)
            alone.append(session.run("w"))

    with sojourn.Pool(memory="600MiB") as pool:
        for loop in range(10):
            pool.register(
                f"loop-{loop}",
                pool_models.linear_regression,
                memory="200MiB",
                exclusive=True,
                deterministic=True,
                seed=1,
            )

        def train(loop: int) -> np.ndarray:
            for turn in turns:
                with pool.lease(f"loop-{loop}", timeout=60) as session:
                    assert len(pool.stats().copies) <= 3
                    for batch in batches(loop, turn):
                        session.run("train", batch)
            with pool.lease(f"loop-{loop}", timeout=60) as session:
                return session.run("w")

        with ThreadPoolExecutor(5) as threads:
            together = list(threads.map(train, range(10)))
        assert count(pool, "parks") >= 7
    for loop in range(10):
        assert together[loop].tobytes() == alone[loop].tobytes()


def test_what_a_killed_program_had_parked_is_removed_by_the_next_pool(pool, tmp_path):
    code = f"""
from sojourn.pool.leasing import Resident
from sojourn.pool.parking import Parking
from sojourn.pool.decisions.terms import CopyId, Holder
from sojourn.values import caller
parking = Parking({str(tmp_path)!r})
os.mkdir(parking.place_for(CopyId("m", 0, 1)))
tell("parked")
signal.pause()
"""
    copy = CopyId("m", 0, 1)
    with client(code) as process:
        assert told(process) == ["parked"]
        (theirs,) = os.listdir(tmp_path)
        parking = Parking(str(tmp_path))
        parking.place_for(copy)
        parking.leave()
        assert os.listdir(tmp_path) == [theirs]  # its owner is alive
    parking = Parking(str(tmp_path))
    ours = os.path.dirname(parking.place_for(copy))
    assert os.listdir(tmp_path) == [os.path.basename(ours)]
    parking.leave()
    assert os.listdir(tmp_path) == []


# -- health -------------------------------------------------------------------------------------


def test_a_worker_that_died_idle_is_replaced_before_the_next_lease(pool):
    with pool.lease("sum") as session:
        pid = session.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    with pool.lease("sum") as session:
        assert session.pid != pid
        assert session.run(*SUM) == 3
    assert count(pool, "deaths") == 1


def test_a_killed_worker_gives_its_memory_back(pool):
    with pytest.raises(sojourn.SessionBroken, match="SIGKILL"), pool.lease("sum") as session:
        os.kill(session.pid, signal.SIGKILL)
        session.run(*SUM)
    assert repr(pool) == "<Pool 0.0/1.0 GiB | 0 leased, 0 idle, 0 waiting>"


def test_the_holder_of_a_dead_worker_learns_how_it_died_and_others_go_on(pool):
    pool.register("mine", models.adder, exclusive=True)
    lease = pool.lease("mine")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.lease, "mine")
        wait_until(lambda: pool.stats().waiting == 1)
        os.kill(lease.pid, signal.SIGKILL)
        another = waiting.result()
        assert another.run(*SUM) == 3
        another.close()
    with pytest.raises(sojourn.SessionBroken, match="was killed by SIGKILL"):
        lease.run(*SUM)
    lease.close()


def test_a_model_that_keeps_crashing_is_an_error_with_the_count_and_last_words(pool):
    pool.register("deadly", pool_models.dies_at_load)
    with pytest.raises(
        sojourn.SessionBroken, match=r"crashed 3 times in a row(.|\n)*my last words"
    ):
        pool.lease("deadly", timeout=30)
    assert pool.stats().charged_bytes == 0


def test_a_copy_is_recycled_after_its_runs(pool):
    pool.register("brief", models.adder, max_runs=2)
    pids = set()
    for _ in range(4):
        with pool.lease("brief") as session:
            session.run(*SUM)
            pids.add(session.pid)
    assert len(pids) == 2


def test_a_copy_that_keeps_growing_is_recycled(pool):
    pool.register("leaky", pool_models.growing, max_growth="8MiB")
    pids = set()
    deadline = time.monotonic() + 30
    while len(pids) < 2:
        assert time.monotonic() < deadline
        with pool.lease("leaky") as session:
            session.run("output", {"a": 1})
            pids.add(session.pid)
        time.sleep(0.1)
    assert count(pool, "recycled") == 1


# -- waiting ------------------------------------------------------------------------------------


@pytest.fixture
def offers_of_dead_copies(pool, monkeypatch):
    """Whatever is offered is dead by the time somebody wants to take it, and nobody has noticed."""
    pool.register("mine", models.adder, exclusive=True)
    pool.preload("mine")
    with monkeypatch.context() as context:
        context.setattr(Resident, "is_alive", lambda resident: False)
        yield


@pytest.mark.usefixtures("offers_of_dead_copies")
def test_a_request_that_is_offered_a_dead_copy_waits_no_longer_than_its_timeout(pool):
    with pytest.raises(sojourn.PoolTimeout, match="mine: the copy that was offered died"):
        pool.lease("mine", timeout=0.01)
    assert pool.stats().waiting == 0


@pytest.mark.usefixtures("offers_of_dead_copies")
def test_a_task_that_is_offered_a_dead_copy_waits_no_longer_than_it_has_time(pool):
    async def main() -> None:
        with pytest.raises(sojourn.PoolTimeout, match="mine: the copy that was offered died"):
            await asyncio.wait_for(pool.alease("mine", timeout=0.01).__aenter__(), 60)

    asyncio.run(main())
    assert pool.stats().waiting == 0


def test_what_is_offered_at_the_last_moment_is_taken(pool):
    pool.register("mine", models.adder, exclusive=True)
    driver = pool._driver
    with pool.lease("mine"):
        waiter = driver.ask(Wish("mine", Holder("other", caller(), "other"), pool))
    lease = driver.wait(waiter, time.monotonic() - 1, pool)
    with lease as session:
        assert session.run(*SUM) == 3


def test_the_time_for_preloading_is_for_all_copies_together(pool, monkeypatch):
    pool.register("many", models.adder, copies=3)
    driver, deadlines = pool._driver, []
    wait = driver.wait

    def noted(waiter, deadline, owner):
        deadlines.append(deadline)
        return wait(waiter, deadline, owner)

    monkeypatch.setattr(driver, "wait", noted)
    pool.preload("sum", "many", timeout=60)
    assert len(deadlines) == 4
    assert len(set(deadlines)) == 1


# -- asyncio ------------------------------------------------------------------------------------


def test_tasks_lease_wait_and_time_out(pool):
    pool.register("mine", models.adder, exclusive=True)

    async def use(i: int) -> int:
        async with pool.alease("mine") as session:
            return int(await asyncio.to_thread(session.run, "output", {"a": i, "b": 1}))

    async def main() -> None:
        assert await asyncio.gather(*map(use, range(5))) == [1, 2, 3, 4, 5]
        async with pool.alease("mine"):
            waiting = asyncio.create_task(pool.alease("mine", timeout=0.05).__aenter__())
            with pytest.raises(sojourn.PoolTimeout, match=r"leased at .*test_pool_state.py"):
                await waiting
            cancelled = asyncio.create_task(pool.alease("mine").__aenter__())
            await asyncio.sleep(0.05)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert pool.stats().waiting == 0
        async with pool.alease("mine", timeout=5) as session:
            assert session.run(*SUM) == 3

    asyncio.run(main())
    assert "0 leased" in repr(pool)


def test_tasks_that_share_one_alease_do_not_give_back_each_others_lease(pool):
    pool.register("mine", models.adder)
    shared = pool.alease("mine")

    async def use(i: int) -> int:
        async with shared as session:
            await asyncio.sleep(0.05)
            return int(session.run("output", {"a": i, "b": 1}))

    async def main() -> None:
        done, refused = await asyncio.gather(use(1), use(2), return_exceptions=True)
        assert done == 2
        assert isinstance(refused, RuntimeError)
        assert "one block at a time" in str(refused)
        assert await use(3) == 4

    asyncio.run(main())
    assert "0 leased" in repr(pool)


def test_a_task_that_was_offered_a_copy_as_the_pool_closed_is_refused(pool):
    pool.register("mine", models.adder, exclusive=True)

    async def main() -> None:
        async with pool.alease("mine"):
            waiting = asyncio.create_task(pool.alease("mine").__aenter__())
            while not pool.stats().waiting:
                await asyncio.sleep(0)
        assert "1 leased" in repr(pool)  # it is offered to the task, which has not run since
        pool.close(timeout=1)
        with pytest.raises(sojourn.SessionClosed, match="the pool was closed at"):
            await asyncio.wait_for(waiting, 5)

    asyncio.run(main())


def test_a_task_that_is_cancelled_as_it_is_offered_a_copy_ends(pool):
    pool.register("mine", models.adder, exclusive=True)

    async def main(ticks: int) -> None:
        async with pool.alease("mine"):
            waiting = asyncio.create_task(pool.alease("mine").__aenter__())
            while not pool.stats().waiting:
                await asyncio.sleep(0)
        assert "1 leased" in repr(pool)  # the bell has rung, and the task has not run since
        for _ in range(ticks):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert "0 leased" in repr(pool)
        else:
            (await waiting).close()

    for ticks in range(6):
        asyncio.run(main(ticks))


@pytest.mark.parametrize("is_offered", [False, True])
def test_tasks_whose_loop_is_closed_keep_no_lease(pool, is_offered):
    pool.register("mine", models.adder, exclusive=True)
    pool.preload("mine")
    loop = asyncio.new_event_loop()

    async def use() -> None:
        async with pool.alease("mine"):
            await asyncio.Event().wait()

    async def begin(held: object) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(use()), asyncio.create_task(use())]
        while pool.stats().waiting < (2 if held else 1):
            await asyncio.sleep(0)
        return tasks

    held = pool.lease("mine") if is_offered else None
    tasks = loop.run_until_complete(begin(held))
    if held is not None:
        held.close()
    loop.close()  # no task is cancelled by that
    forgotten = (
        nullcontext() if is_offered else pytest.warns(ResourceWarning, match="never returned")
    )
    with forgotten:
        tasks.clear()
        gc.collect()
    assert "0 leased, 1 idle, 0 waiting" in repr(pool)


def test_tasks_that_wait_for_each_other_are_reported(pool):
    for name in ("left", "right"):
        pool.register(name, models.adder, exclusive=True)

    async def work(first: str, second: str) -> str:
        async with pool.alease(first):
            await asyncio.sleep(0.2)
            try:
                async with pool.alease(second):
                    return "served"
            except sojourn.DeadlockDetected as error:
                return str(error)

    async def main() -> list[str]:
        return list(await asyncio.gather(work("left", "right"), work("right", "left")))

    pool.preload("left", "right")
    results = asyncio.run(main())
    assert "served" in results
    assert "Task-" in next(r for r in results if r != "served")


# -- anything goes ------------------------------------------------------------------------------


def test_any_order_of_uses_and_kills_keeps_the_promises():
    rng = random.Random(5)
    with sojourn.Pool(memory="600MiB", idle_seconds=0.5) as pool:
        for i in range(5):
            pool.register(
                f"m{i}", models.adder, memory="200MiB", exclusive=i == 0, copies=1 + (i == 1)
            )
        problems: list[BaseException] = []

        def work(numbers: random.Random) -> None:
            for _ in range(30):
                name = f"m{numbers.randrange(5)}"
                try:
                    with pool.lease(name, timeout=numbers.choice([0.02, 30])) as session:
                        if numbers.random() < 0.15:
                            os.kill(session.pid, signal.SIGKILL)
                        assert session.run(*SUM) == 3
                        assert pool.stats().charged_bytes <= 600 * 2**20
                    if numbers.random() < 0.1:
                        pool.evict(name, timeout=0.1)
                except (sojourn.SessionBroken, sojourn.PoolTimeout, sojourn.BudgetExceeded):
                    pass
                except sojourn.LeaseExpired as error:
                    problems.append(error)
                except BaseException as error:
                    problems.append(error)
                    raise

        seeds = [random.Random(rng.random()) for _ in range(4)]
        threads = [threading.Thread(target=work, args=[seed]) for seed in seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems
        wait_until(lambda: not pool.stats().leaving and not pool.stats().opening)

        def serves(name: str) -> bool:
            try:
                with pool.lease(name, timeout=60) as session:
                    return bool(session.run(*SUM) == 3)
            except sojourn.SessionBroken:
                return False  # killed so often that it is left alone for a while

        for i in range(5):
            wait_until(lambda name=f"m{i}": serves(name))
        assert pool.stats().waiting == 0
