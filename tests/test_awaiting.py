"""Steps that are awaited: on the event loop alone, in order, and never mixed up."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
import uvloop

import sojourn
from clients import client, told
from faults.tools import Background, stop, stopped, wait_until
from models import counter, counting_up, softmax_regression
from sojourn.process import awaiting
from sojourn.session.lifecycle import Lifecycle
from sojourn.transport.lane import CallerLane
from sojourn.transport.patience import Patience

ROW = np.ones((1, 784), np.float32)
LONG, FOR_EVER = 300_000, 2**31 - 1  # what to count to
uvloop.run(asyncio.sleep(0))  # what it makes once is there before anybody looks
Runner = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    return asyncio.run if request.param == "asyncio" else uvloop.run


@pytest.fixture
def session(zygote):
    with sojourn.open(softmax_regression) as session:
        yield session


def doubling() -> Any:
    """A model whose answer tells which question it belongs to."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    return {"x": x}, {"y": x * 2}


def a_queue() -> Any:
    """Taking waits until something was put."""
    import tensorflow as tf

    v1 = tf.compat.v1
    queue = tf.queue.FIFOQueue(1000, [tf.float32], shapes=[[]])
    x = v1.placeholder(tf.float32, [], name="x")
    return {"x": x}, {"put": queue.enqueue(x), "take": queue.dequeue(), "twice": x * 2}


@pytest.mark.quick
def test_an_awaited_step_gives_what_run_gives(run, session):
    async def main() -> None:
        expected = session.run("y", {"x": ROW})
        assert np.array_equal(await session.arun("y", {"x": ROW}), expected)
        [listed] = await session.arun(["y"], {"x": ROW})
        assert np.array_equal(listed, expected)
        assert set(await session.arun(None, {"x": ROW})) == set(session.run(None, {"x": ROW}))
        assert np.array_equal(await session.acall(x=ROW), session(x=ROW))

    run(main())


def test_awaiting_takes_no_thread(run, session):
    async def main() -> None:
        before = threading.active_count()
        seen = set()

        async def one() -> None:
            await session.arun("y", {"x": ROW})
            seen.add(threading.active_count())

        await asyncio.gather(*[one() for _ in range(200)])
        assert seen == {before}

    run(main())


THOUSANDS = """
import asyncio, numpy as np, sojourn
from sojourn.process import awaiting
from sojourn.session.lifecycle import Lifecycle
from sojourn.transport.lane import CallerLane
from sojourn.transport.patience import Patience
from test_awaiting import doubling

async def main():
    async with sojourn.aopen(doubling) as session:
        asked = [np.full(3, n, np.float32) for n in range(10_000)]
        got = await asyncio.gather(*[session.arun("y", {"x": x}) for x in asked])
        assert all((y == 2 * x).all() for x, y in zip(asked, got, strict=True))
        tell(session._stay.backend.worker._lanes._count <= 2 * awaiting.WIDTH)

asyncio.run(main())
"""


def test_thousands_at_once_each_get_their_own_answer():
    with client(THOUSANDS) as process:  # so many tasks leave their mark on a process's memory
        assert told(process) == ["True"]


def test_they_are_sent_in_the_order_they_came(zygote, monkeypatch):
    sent: list[float] = []
    send = CallerLane.send

    def noted(self: CallerLane, meta: bytes, arrays: Any, **how: Any) -> None:
        sent.extend(float(array) for array in arrays)
        send(self, meta, arrays, **how)

    async def main() -> None:
        async with sojourn.aopen(counter) as session:
            await session.arun("total", {"amount": 0.0})
            monkeypatch.setattr(CallerLane, "send", noted)
            await asyncio.gather(*[session.arun("total", {"amount": n}) for n in range(300)])
            monkeypatch.undo()
            assert sent == list(range(300))
            assert await session.arun("value") == sum(range(300))

    asyncio.run(main())


def test_a_refused_input_is_the_callers_own_affair(session):
    async def main() -> None:
        outcomes = await asyncio.gather(
            *[session.arun("y", {"x": ROW if n % 2 else ROW[0]}) for n in range(20)],
            return_exceptions=True,
        )
        for n, outcome in enumerate(outcomes):
            assert isinstance(outcome, np.ndarray if n % 2 else sojourn.InputError)
        with pytest.raises(sojourn.InputError, match="no output 'nope'"):
            await session.arun("nope", {"x": ROW})

    asyncio.run(main())


def test_a_timeout_leaves_the_session_usable(run, zygote):
    async def main() -> None:
        async with sojourn.aopen(counting_up) as session:
            with pytest.raises(sojourn.StepTimeout, match="its outcome is unknown"):
                await session.arun("total", {"n": LONG}, timeout=0.2)
            assert await session.arun("total", {"n": 3}) == 3

    run(main())


@pytest.mark.quick
def test_a_timeout_holds_while_another_task_prepares_the_same_step(run, zygote):
    async def main() -> None:
        async with sojourn.aopen(counting_up) as session:
            with stopped(session.pid):
                first = asyncio.ensure_future(session.arun("total", {"n": 1}))
                await asyncio.sleep(0)
                late = session.arun("total", {"n": 1}, timeout=0.1)
                with pytest.raises(sojourn.StepTimeout, match="has not begun"):
                    await asyncio.wait_for(late, 20)
            assert await first == 1

    run(main())


def test_a_step_that_was_never_sent_has_not_begun_when_its_time_is_up(run, zygote):
    async def main() -> None:
        async with sojourn.aopen(counting_up) as session:
            await session.arun("total", {"n": 1})
            before = session._stay.lifecycle.steps
            with stopped(session.pid):
                steps = [session.arun("total", {"n": 1}, timeout=0.1) for _ in range(8)]
                outcomes = await asyncio.gather(*steps, return_exceptions=True)
            said = [str(outcome) for outcome in outcomes]
            sent = sum("outcome is unknown" in text for text in said)
            assert 0 < sent <= awaiting.WIDTH
            assert sum("has not begun" in text for text in said) == 8 - sent
            assert session._stay.lifecycle.steps - before == sent

    run(main())


def test_steps_whose_time_is_up_before_their_turn_keep_no_lane(run, zygote, monkeypatch):
    monkeypatch.setattr(awaiting, "_TICK_SECONDS", 1000.0)  # nobody else clears up

    async def main() -> None:
        async with sojourn.aopen(counting_up) as session:
            await session.arun("total", {"n": 1})
            with stopped(session.pid):
                steps = [session.arun("total", {"n": 1}, timeout=0.1 * n) for n in range(1, 6)]
                outcomes = await asyncio.gather(*steps, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {sojourn.StepTimeout}

    run(main())  # its memory is gone with the session, before any collection


def test_a_negative_timeout_is_refused(session):
    with pytest.raises(ValueError, match="must not be negative"):
        session.run("y", {"x": ROW}, timeout=-1)
    with pytest.raises(ValueError, match="must not be negative"):
        asyncio.run(session.arun("y", {"x": ROW}, timeout=-1))


@pytest.mark.quick
def test_a_cancelled_step_gives_its_lane_back_and_its_answer_to_nobody(run, zygote):
    async def main() -> None:
        async with sojourn.aopen(doubling) as session:
            for round_ in range(30):
                asked = [np.full(3, 100 * round_ + n, np.float32) for n in range(20)]
                tasks = [asyncio.ensure_future(session.arun("y", {"x": x})) for x in asked]
                await asyncio.sleep(0.0005 * (round_ % 4))
                for task in tasks[::2]:
                    task.cancel()
                got = await asyncio.gather(*tasks, return_exceptions=True)
                for x, y in zip(asked, got, strict=True):
                    assert isinstance(y, asyncio.CancelledError) or (y == 2 * x).all()
            assert session._stay.backend.worker._lanes._count <= 4 * awaiting.WIDTH

    run(main())


def test_giving_up_early_does_not_pile_up_work_in_the_worker(zygote):
    async def main() -> None:
        async with sojourn.aopen(counting_up) as session:
            await session.arun("total", {"n": 1})
            for _ in range(6):
                with pytest.raises(sojourn.StepTimeout):
                    await session.arun("total", {"n": LONG}, timeout=0.05)
            assert session._stay.backend.worker._lanes._count <= awaiting.WIDTH + 1

    asyncio.run(main())


def test_a_step_that_waits_for_another_blocks_nobody(run, zygote):
    async def main() -> None:
        async with sojourn.aopen(a_queue) as session:
            taking = [asyncio.ensure_future(session.arun("take")) for _ in range(20)]
            assert await session.arun("twice", {"x": 4.0}, timeout=30) == 8
            for n in range(20):
                await session.arun("put", {"x": float(n)}, timeout=30)
            assert sorted(await asyncio.gather(*taking)) == list(range(20))

    run(main())


def test_two_event_loops_share_a_session(run, zygote):
    with sojourn.open(doubling) as session:
        failures: list[BaseException] = []

        async def main(base: int) -> None:
            asked = [np.full(3, base + n, np.float32) for n in range(500)]
            got = await asyncio.gather(*[session.arun("y", {"x": x}) for x in asked])
            assert all((y == 2 * x).all() for x, y in zip(asked, got, strict=True))

        def loop(base: int) -> None:
            try:
                run(main(base))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=loop, args=(1000 * n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        assert session.run("y", {"x": np.ones(3, np.float32)})[0] == 2
        for thread in threads:
            thread.join()
        assert not failures


@pytest.mark.quick
def test_a_worker_that_is_buried_while_a_step_is_sent_broke_the_session(run, zygote, monkeypatch):
    watch = awaiting.AwaitedLanes._watch

    def bury(awaited: awaiting.AwaitedLanes, lane: CallerLane) -> None:
        lane.close()  # as the thread does that buries it
        watch(awaited, lane)

    async def main() -> None:
        session = await sojourn.aopen(counting_up)
        stop(session.pid)
        monkeypatch.setattr(awaiting.AwaitedLanes, "_watch", bury)
        with pytest.raises(sojourn.SessionBroken):
            await session.arun("total", {"n": 1})
        session.close()

    run(main())


@pytest.mark.quick
def test_a_worker_that_dies_fails_all_who_wait_and_says_which_had_begun(run, zygote):
    async def main() -> None:
        session = await sojourn.aopen(counting_up)
        tasks = [asyncio.ensure_future(session.arun("total", {"n": FOR_EVER})) for _ in range(8)]
        await asyncio.sleep(0.3)
        os.kill(session.pid, signal.SIGKILL)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, sojourn.SessionBroken) for outcome in outcomes)
        said = [str(outcome) for outcome in outcomes]
        assert sum("outcome is unknown" in text for text in said) == awaiting.WIDTH
        assert sum("has not begun" in text for text in said) == 8 - awaiting.WIDTH
        with pytest.raises(sojourn.SessionBroken):
            await session.arun("total", {"n": 1})
        await session.aclose()

    run(main())


def test_a_ctrl_c_as_an_awaited_step_ends_does_not_hold_up_the_close(run, zygote, monkeypatch):
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(60, task.cancel)  # it hangs
        async with sojourn.aopen(counting_up) as session:
            assert await session.arun("total", {"n": 1}) == 1
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(Lifecycle, "end_step", interrupt)
                await session.arun("total", {"n": 1})
        assert session.receipt is not None
        assert session.receipt.clean

    run(main())


async def give_up_steps(session: sojourn.Session) -> None:
    """So many that the next one waits behind them."""
    await session.arun("total", {"n": 1})
    steps = [session.arun("total", {"n": FOR_EVER}, timeout=0.1) for _ in range(2 * awaiting.WIDTH)]
    await asyncio.gather(*steps, return_exceptions=True)


@pytest.mark.quick
def test_a_step_behind_those_that_were_given_up_hears_of_the_workers_death(run, zygote):
    async def main() -> None:
        session = await sojourn.aopen(counting_up)
        await give_up_steps(session)
        waiting = asyncio.ensure_future(session.arun("total", {"n": 1}))
        await asyncio.sleep(0)
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(sojourn.SessionBroken, match="has not begun"):
            await asyncio.wait_for(waiting, 20)
        with pytest.raises(sojourn.SessionBroken):
            await session.arun("total", {"n": 1}, timeout=20)
        await session.aclose()

    run(main())


def test_a_step_behind_those_that_were_given_up_hears_of_the_close(run, zygote):
    async def main() -> None:
        session = await sojourn.aopen(counting_up)
        await give_up_steps(session)
        waiting = asyncio.ensure_future(session.arun("total", {"n": 1}))
        await asyncio.sleep(0)
        await asyncio.wait_for(session.aclose(timeout=0.1), 4)
        with pytest.raises(sojourn.SessionClosed, match="has not begun"):
            await asyncio.wait_for(waiting, 20)

    run(main())


@pytest.mark.parametrize("to_be_had", [0, 1])
def test_no_descriptor_left_costs_no_awaited_step(zygote, monkeypatch, to_be_had):
    async def main() -> None:
        async with sojourn.aopen(counting_up) as session:
            lanes = [session.arun("total", {"n": LONG}) for _ in range(awaiting.WIDTH)]
            await asyncio.gather(*lanes)
            left = [os.dup(2) for _ in range(to_be_had)]

            def dup(fd: int) -> int:
                if not left:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                return os.dup2(fd, left.pop(), inheritable=False)

            with monkeypatch.context() as without_descriptors:
                without_descriptors.setattr(os, "dup", dup)
                steps = [session.arun("total", {"n": n}) for n in range(1, 9)]
                assert await asyncio.wait_for(asyncio.gather(*steps), 20) == list(range(1, 9))
            for fd in left:
                os.close(fd)

    asyncio.run(main())


def test_an_awaited_close_lets_running_steps_finish_and_refuses_new_ones(run, zygote):
    async def main() -> None:
        session = await sojourn.aopen(counting_up)
        running = asyncio.ensure_future(session.arun("total", {"n": LONG}))
        await asyncio.sleep(0.1)
        closing = asyncio.ensure_future(session.aclose())
        await asyncio.sleep(0.1)
        with pytest.raises(sojourn.SessionClosed, match=__file__):
            await session.arun("total", {"n": 1})
        assert await running == LONG
        assert (await closing).clean
        assert session.receipt is await session.aclose()

    run(main())


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_a_close_on_the_loops_own_thread_waits_for_what_the_loop_awaits(run, zygote, isolation):
    async def main() -> None:
        session = await sojourn.aopen(counting_up, isolation=isolation)
        await session.arun("total", {"n": 1})
        running = asyncio.ensure_future(session.arun("total", {"n": LONG}))
        await asyncio.sleep(0.05)
        receipt = session.close()
        assert receipt.runs == 2
        assert receipt.clean == (isolation == "process")
        assert await running == LONG

    run(main())


@pytest.mark.parametrize("seconds", [0.0, 0.3], ids=["under way", "answered"])
def test_steps_that_wait_as_their_loops_own_thread_cuts_them_off_were_closed(run, zygote, seconds):
    async def main() -> None:
        troubles: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: troubles.append(what))
        session = await sojourn.aopen(doubling)
        await asyncio.gather(*[session.arun("y", {"x": [0.0]}) for _ in range(80)])
        steps = [asyncio.ensure_future(session.arun("y", {"x": [i]})) for i in range(40)]
        await asyncio.sleep(0)
        time.sleep(seconds)
        session.close(timeout=0)
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        refused = [outcome for outcome in outcomes if not isinstance(outcome, np.ndarray)]
        assert refused
        assert {type(outcome) for outcome in refused} == {sojourn.SessionClosed}
        assert not troubles

    run(main())


def test_loops_that_close_one_session_on_their_own_threads_do_not_wait_for_each_other(run, zygote):
    with sojourn.open(counting_up) as session:
        session.run("total", {"n": 1})
        both = threading.Barrier(2)

        async def main() -> sojourn.Receipt:
            running = asyncio.ensure_future(session.arun("total", {"n": LONG}))
            await asyncio.sleep(0.05)
            both.wait()
            receipt = session.close()
            assert await running == LONG
            return receipt

        loops = [Background(run, main()) for _ in range(2)]
        assert [loop.result() for loop in loops] == [session.receipt] * 2
        assert session.receipt is not None
        assert session.receipt.runs == 3


def test_an_awaited_close_that_is_cancelled_ends_the_worker_at_once(run, zygote):
    async def main() -> None:
        session = await sojourn.aopen(counting_up)
        await session.arun("total", {"n": 1})
        running = asyncio.ensure_future(session.arun("total", {"n": FOR_EVER}))
        closing = asyncio.ensure_future(session.aclose())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(sojourn.SessionClosed, match="outcome is unknown"):
            await asyncio.wait_for(running, 60)
        assert (await session.aclose()).clean

    run(main())


def test_a_loop_that_ends_without_its_steps_does_not_hang_the_close(zygote):
    with sojourn.open(counting_up) as session:
        loop = asyncio.new_event_loop()
        task = loop.create_task(session.arun("total", {"n": FOR_EVER}))
        loop.run_until_complete(asyncio.sleep(0.2))
        loop.close()  # the task will never go on
        assert session.close().clean
        task.get_coro().close()
        task._log_destroy_pending = False
        del task, loop
        gc.collect()


def test_what_an_awaited_step_prints_is_shown(zygote, capfd):
    def build() -> Any:
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [], name="x")
        with tf.control_dependencies([tf.print("seen", x)]):
            return {"x": x}, {"y": x + 1}

    async def main() -> None:
        async with sojourn.aopen(build) as session:
            assert await session.arun("y", {"x": 7.0}) == 8

    asyncio.run(main())
    assert "seen 7" in capfd.readouterr().err


def test_an_awaited_step_waits_while_somebody_saves(zygote, tmp_path):
    async def main() -> None:
        async with sojourn.aopen(counter) as session:
            saving = threading.Thread(target=session.save, args=(tmp_path / "state",))
            saving.start()
            totals = [await session.arun("total", {"amount": 1.0}) for _ in range(5)]
            saving.join()
            assert totals == [1, 2, 3, 4, 5]

    asyncio.run(main())


@pytest.mark.quick
def test_a_reset_that_comes_just_before_a_step_does_not_block_the_loop(run, zygote):
    async def main(session: sojourn.Session) -> None:
        await session.arun("total", {"amount": 1.0})
        loop, is_held = threading.get_ident(), threading.Event()

        def reset_in_between() -> None:
            with session._stay.lifecycle._lock:  # given away while the reset waits
                is_held.set()
                wait_until(lambda: sys._current_frames()[loop].f_code.co_name == "begin_step")
                session.reset()

        with stopped(session.pid):
            first = asyncio.ensure_future(session.arun("total", {"amount": 1.0}))
            await asyncio.sleep(0)
        resetting = Background(reset_in_between)
        is_held.wait()
        second = await session.arun("total", {"amount": 5.0}, timeout=10)
        resetting.result()
        assert (await first, second) == (2, 5)

    with sojourn.open(counter) as session:
        run(main(session))


def test_a_step_does_not_wait_for_a_reset_that_ctrl_c_kept_from_ending(run, zygote, monkeypatch):
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with sojourn.open(counter) as session:
        session.run("total", {"amount": 1.0})

        def reset() -> None:
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(Lifecycle, "end_alone", interrupted)
                session.reset()

        Background(reset).result()
        assert run(session.arun("total", {"amount": 5.0}, timeout=10)) == 5


def test_a_step_beside_awaited_ones_does_not_wait_for_who_waits_for_them(zygote):
    async def main(session: sojourn.Session) -> None:
        await session.arun("total", {"amount": 1.0})
        awaited = asyncio.ensure_future(session.arun("total", {"amount": 1.0}))
        await asyncio.sleep(0)
        resetting = Background(session.reset)
        wait_until(lambda: session._stay.lifecycle._alone)
        assert session.run("value", timeout=10) > 0
        await awaited
        resetting.result()
        assert session.run("value") == 0

    with sojourn.open(counter) as session:
        asyncio.run(main(session))


def test_a_worker_that_died_idle_is_replaced_for_an_awaited_step(zygote, tmp_path):
    async def main() -> None:
        async with sojourn.aopen(counter, restart="from-checkpoint") as session:
            await session.arun("total", {"amount": 5.0})
            session.save(tmp_path / "state")
            before = session.pid
            os.kill(before, signal.SIGKILL)
            assert await session.arun("total", {"amount": 1.0}) == 6
            assert session.pid != before

    asyncio.run(main())


def test_a_worker_is_replaced_by_one_thread_however_many_wait_for_it(run, zygote, monkeypatch):
    started: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    async def main() -> None:
        async with sojourn.aopen(counter, restart="from-checkpoint") as session:
            await session.arun("total", {"amount": 5.0})
            os.kill(session.pid, signal.SIGKILL)
            wait_until(lambda: session._stay.backend.death() is not None)
            monkeypatch.setattr(threading.Thread, "start", noted)
            steps = [session.arun("total", {"amount": 1.0}) for _ in range(200)]
            late = session.arun("total", {"amount": 1.0}, timeout=0.001)
            totals = await asyncio.gather(*steps, late, return_exceptions=True)
            monkeypatch.undo()
            assert isinstance(totals.pop(), sojourn.StepTimeout)
            assert max(totals) == 200
            assert started.count("sojourn-aside") == 1

    run(main())


def test_a_worker_that_was_replaced_under_awaited_steps_stays_and_keeps_its_state(zygote, tmp_path):
    async def main() -> None:
        async with sojourn.aopen(counter, restart="from-checkpoint") as session:
            await session.arun("total", {"amount": 5.0})
            session.save(tmp_path / "state")
            with stopped(session.pid):
                late = asyncio.ensure_future(session.arun("total", {"amount": 10.0}))
                await asyncio.sleep(0.05)
                os.kill(session.pid, signal.SIGKILL)
            wait_until(lambda: session._stay.backend.death() is not None)
            assert session.run("total", {"amount": 1.0}) == 6  # on the loop's own thread
            successor = session.pid
            assert await late == 16
            assert (session.pid, session.state) == (successor, sojourn.State.READY)

    asyncio.run(main())


def test_waits_without_looking_teach_nothing_about_looking(run, session, monkeypatch):
    """A server on the core of its caller is not looked for."""
    taught: list[bool] = []
    learn = Patience.learn
    monkeypatch.setattr(CallerLane, "is_apart", property(lambda _: not taught))

    def noted(patience: Patience, began: float, ended: float, *, was_seen: bool) -> None:
        taught.append(was_seen)
        learn(patience, began, ended, was_seen=was_seen)

    monkeypatch.setattr(Patience, "learn", noted)

    async def main() -> None:
        for _ in range(100):
            await session.arun("y", {"x": ROW})

    run(main())
    assert len(taught) == 1


def test_a_lease_can_be_awaited_and_expires(session):
    async def main() -> None:
        lease = session.lend()
        assert np.array_equal(await lease.arun("y", {"x": ROW}), session.run("y", {"x": ROW}))
        assert lease.runs == 1
        lease.close()
        with pytest.raises(sojourn.LeaseExpired):
            await lease.arun("y", {"x": ROW})

    asyncio.run(main())


@pytest.mark.quick
def test_an_opening_that_is_cancelled_leaves_nothing(zygote):
    async def main() -> None:
        opening = asyncio.ensure_future(sojourn.aopen(softmax_regression)._open())
        await asyncio.sleep(0.02)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name.startswith("sojourn-aside"):
            thread.join()


def test_an_opening_that_fails_says_why(zygote, tmp_path):
    async def main() -> None:
        with pytest.raises(sojourn.ModelError, match="nothing at"):
            async with sojourn.aopen(tmp_path / "missing"):
                pass

    asyncio.run(main())


def test_inputs_without_names_are_refused_with_the_names(session):
    with pytest.raises(sojourn.InputError, match=r"by name: session\(x=\.\.\.\)"):
        session(ROW)
    with pytest.raises(sojourn.InputError, match="outputs come first"):
        session.run({"x": ROW})
