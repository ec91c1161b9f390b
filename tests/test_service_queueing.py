"""Requests that go into steps together: each gets its own answer, whatever befalls the others."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import models
import onnx_writer as onnx
import pool_models
import served_models
import sojourn
import web
from sojourn.service.asking import too_late
from sojourn.service.batching import Costs
from sojourn.service.catalogue import Catalogue
from sojourn.service.failures import Refused, Status
from sojourn.service.handler import Handler
from sojourn.service.inference import Inference, ModelRef
from sojourn.service.rules import ModelRules
from sojourn.service.served import Served
from sojourn.service.signatures import plain
from sojourn.session.session import Usable
from sojourn.values import Signature, TensorSpec

T = TypeVar("T")


def lookup() -> Any:
    """A table of ten rows: an index beyond them is an error of that row."""
    import tensorflow as tf

    v1 = tf.compat.v1
    i = v1.placeholder(tf.int32, [None], name="i")
    table = v1.get_variable("t", initializer=np.arange(10, dtype=np.float32) * 10)
    with tf.control_dependencies([v1.assert_less(i, 10, message="no such row")]):
        return {"i": i}, {"y": tf.gather(table, i)}


def mean_of_all() -> Any:
    """Its output has no rows."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    return {"x": x}, {"mean": tf.reduce_mean(x)}


def same_length_once() -> Any:
    """Its output claims to have as many rows as its input, and has one."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None], name="x")
    return {"x": x}, {"y": v1.placeholder_with_default(tf.reduce_sum(x, keepdims=True), [None])}


def deadly() -> Any:
    """13 ends the worker."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")

    def check(values: Any) -> Any:
        if 13 in values:
            os.kill(os.getpid(), signal.SIGKILL)
        return values

    y = tf.numpy_function(check, [x], tf.float32)
    y.set_shape([None])
    return {"x": x}, {"y": y}


ANY = TensorSpec("any", None)


def running_sum() -> Any:
    """Its first dimension is time, not a batch."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    return {"x": x}, {"y": tf.cumsum(x)}


class Desk:
    """A handler of a pool's models, on a loop of this thread."""

    def __init__(self, pool: sojourn.Pool, **rules: ModelRules | str) -> None:
        self.catalogue = Catalogue(pool, rules)
        self.handler = Handler(self.catalogue)

    async def ask(self, model: str, deadline: float | None = None, **inputs: Any) -> np.ndarray:
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        asked = Inference(ModelRef(model), arrays, deadline=deadline)
        answer = await self.handler.infer(asked)
        return np.asarray(next(iter(answer.outputs.values())))

    async def pid(self, model: str) -> int:
        served = self.catalogue.resolve(ModelRef(model))
        async with self.catalogue.session(served) as session:
            return session.pid

    def steps(self, model: str) -> dict[int, int]:
        (found,) = self.handler.statistics(model)
        return {rows: batch.count for rows, batch in sorted(found.batches.items())}


@pytest.fixture
def pool(zygote: None) -> Iterator[sojourn.Pool]:
    with sojourn.Pool() as pool:
        yield pool


def run(
    pool: sojourn.Pool, work: Callable[[Desk], Coroutine[Any, Any, T]], **rules: ModelRules | str
) -> T:
    async def main() -> T:
        desk = Desk(pool, **rules)
        await desk.catalogue.start()
        try:
            return await asyncio.wait_for(work(desk), 60)
        finally:
            await desk.handler.close()
            await desk.catalogue.close()

    return asyncio.run(main())


def rows(*values: float) -> np.ndarray:
    return np.array([[value] * 784 for value in values], np.float32)


# -- together ----------------------------------------------------------------------------------


def test_requests_that_come_together_go_together_and_get_their_own_rows(pool: sojourn.Pool) -> None:
    pool.register("lookup", lookup)

    async def work(desk: Desk) -> None:
        await desk.ask("lookup", i=[0])  # learns the signature, and that it changes nothing
        sizes = [1, 3, 2, 1, 4]
        asked = [list(range(n, n + size)) for n, size in enumerate(sizes)]
        got = await asyncio.gather(*(desk.ask("lookup", i=each) for each in asked))
        assert [each.tolist() for each in got] == [[10.0 * i for i in each] for each in asked]
        assert desk.steps("lookup") == {1: 1, 11: 1}

    run(pool, work)


def test_requests_that_trickle_in_go_together_once_there_are_many(pool: sojourn.Pool) -> None:
    pool.register("lookup", lookup)

    async def trickle(desk: Desk, count: int) -> dict[int, int]:
        before = desk.steps("lookup")
        asked = []
        for n in range(count):
            asked.append(asyncio.create_task(desk.ask("lookup", i=[n % 10])))
            for _ in range(5):
                await asyncio.sleep(0)
        await asyncio.gather(*asked)
        after = desk.steps("lookup")
        return {size: n - before.get(size, 0) for size, n in after.items()}

    async def work(desk: Desk) -> None:
        await desk.ask("lookup", i=[0])
        assert (await trickle(desk, 1))[1] == 1  # waits for nobody
        await asyncio.gather(*(desk.ask("lookup", i=[n]) for n in range(9)))  # now there are many
        assert max(size for size, n in (await trickle(desk, 6)).items() if n) >= 4

    run(pool, work)


def test_a_burst_on_a_model_that_is_still_being_opened_goes_together(pool: sojourn.Pool) -> None:
    pool.register("lookup", lookup)

    async def work(desk: Desk) -> None:
        got = await asyncio.gather(*(desk.ask("lookup", i=[n]) for n in range(9)))
        assert [each.item() for each in got] == [10.0 * n for n in range(9)]
        assert desk.steps("lookup") == {1: 1, 8: 1}  # the first one tells that it changes nothing

    run(pool, work)


def test_a_batch_has_at_most_so_many_rows(pool: sojourn.Pool, tmp_path: Path) -> None:
    (tmp_path / "times.onnx").write_bytes(served_models.times(2))

    async def work(desk: Desk) -> None:
        x = np.ones((1, 4), np.float32)
        await desk.ask("times", x=x)
        got = await asyncio.gather(*(desk.ask("times", x=x * n) for n in range(10)))
        assert [each.item() for each in got] == [8.0 * n for n in range(10)]
        assert max(desk.steps("times")) <= 4

    run(pool, work, times=ModelRules(path=str(tmp_path / "times.onnx"), max_batch=4))


def test_only_equal_shapes_go_together(pool: sojourn.Pool, tmp_path: Path) -> None:
    any_width = onnx.model(
        [onnx.node("Identity", ["x"], ["y"])],
        [onnx.value("x", onnx.FLOAT, ["n", "m"])],
        [onnx.value("y", onnx.FLOAT, ["n", "m"])],
    )
    (tmp_path / "same.onnx").write_bytes(any_width)
    pool.register("same", tmp_path / "same.onnx")

    async def work(desk: Desk) -> None:
        await desk.ask("same", x=np.ones((1, 1), np.float32))
        asked = [np.full((1, 2 + n % 2), n, np.float32) for n in range(8)]
        got = await asyncio.gather(*(desk.ask("same", x=each) for each in asked))
        for each, wanted in zip(got, asked, strict=True):
            assert np.array_equal(each, wanted)
        assert desk.steps("same") == {1: 1, 4: 2}

    run(pool, work)


def test_a_model_without_rows_is_asked_one_by_one(pool: sojourn.Pool) -> None:
    pool.register("mean", mean_of_all)

    async def work(desk: Desk) -> None:
        asked = [np.full(3, n, np.float32) for n in range(6)]
        got = await asyncio.gather(*(desk.ask("mean", x=each) for each in asked))
        assert [each.item() for each in got] == [float(n) for n in range(6)]

    run(pool, work)


def test_a_model_whose_rows_turn_out_to_be_none_is_asked_one_by_one(pool: sojourn.Pool) -> None:
    pool.register("sums", same_length_once)

    async def work(desk: Desk) -> None:
        await desk.ask("sums", x=np.ones(1, np.float32))
        for _ in range(2):
            asked = [np.full(3, n, np.float32) for n in range(6)]
            got = await asyncio.gather(*(desk.ask("sums", x=each) for each in asked))
            assert [each.tolist() for each in got] == [[3.0 * n] for n in range(6)]

    run(pool, work)


def test_rows_that_depend_on_each_other_are_found_out_and_never_joined(
    pool: sojourn.Pool, caplog: pytest.LogCaptureFixture
) -> None:
    pool.register("running", running_sum)

    async def work(desk: Desk) -> None:
        await desk.ask("running", x=np.ones(1, np.float32))
        for _ in range(3):
            asked = [np.full(2, n, np.float32) for n in range(6)]
            got = await asyncio.gather(*(desk.ask("running", x=each) for each in asked))
            assert [each.tolist() for each in got] == [[1.0 * n, 2.0 * n] for n in range(6)]

    run(pool, work)
    assert caplog.text.count("rows depend on each other") == 1


def centred() -> Any:
    """Each row relative to the mean of all: rows that are alike do not show it."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    return {"x": x}, {"y": x - tf.reduce_mean(x)}


@pytest.fixture
def joined_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a first joined step may seem to cost more than it saves."""
    monkeypatch.setattr(Costs, "pays", lambda costs, sizes: True)


@pytest.mark.usefixtures("joined_always")
def test_requests_that_are_alike_do_not_prove_that_rows_are_independent(
    pool: sojourn.Pool,
) -> None:
    pool.register("centred", centred)

    async def work(desk: Desk) -> None:
        await desk.ask("centred", x=np.ones(1, np.float32))
        for asked in (*([[5.0] * 4] * 6), [1.0, 2.0, 3.0, 4.0]):
            got = await asyncio.gather(*(desk.ask("centred", x=np.float32([n])) for n in asked))
            assert [each.item() for each in got] == [0.0] * 4, "as each gets it alone"
        assert desk.steps("centred")[4] >= 6, "those that are alike go together all the same"

    run(pool, work)


@pytest.mark.usefixtures("joined_always")
def test_the_first_joined_steps_are_compared_and_then_believed(pool: sojourn.Pool) -> None:
    pool.register("softmax", models.softmax_regression)

    async def work(desk: Desk) -> None:
        await desk.ask("softmax", x=rows(1))
        for n in range(5):
            await asyncio.gather(*(desk.ask("softmax", x=rows(n + k)) for k in range(4)))
        assert desk.steps("softmax") == {1: 1, 4: 5}
        (target,) = desk.handler._queues["softmax", 1]._targets._by_names.values()
        assert target.proof.is_complete
        assert target.has_rows

    run(pool, work)


def test_steps_that_change_something_are_never_joined_or_repeated(pool: sojourn.Pool) -> None:
    pool.register("counter", models.counter)

    async def work(desk: Desk) -> None:
        asked = [desk.ask("counter", amount=np.float32(1)) for _ in range(20)]
        got = await asyncio.gather(*asked)
        assert sorted(each.item() for each in got) == [float(n) for n in range(1, 21)]

    run(pool, work)


def slow_pid() -> Any:
    """A function that takes its time and tells where it runs."""

    def pid(seconds: Any) -> Any:
        import os
        import time

        time.sleep(float(seconds))
        return os.getpid()

    return pid


def test_all_copies_are_used_at_once(pool: sojourn.Pool) -> None:
    pool.register("where", slow_pid, copies=2)
    pool.preload("where")

    async def work(desk: Desk) -> None:
        got = await asyncio.gather(*(desk.ask("where", seconds=0.3) for _ in range(2)))
        assert len({each.item() for each in got}) == 2

    run(pool, work)


# -- errors ------------------------------------------------------------------------------------


def test_a_bad_row_fails_alone(pool: sojourn.Pool) -> None:
    pool.register("lookup", lookup)

    async def work(desk: Desk) -> None:
        await desk.ask("lookup", i=[0])
        got = await asyncio.gather(
            *(desk.ask("lookup", i=[n]) for n in (1, 99, 2, 3)), return_exceptions=True
        )
        assert [got[0].item(), got[2].item(), got[3].item()] == [10.0, 20.0, 30.0]  # type: ignore[union-attr]
        assert isinstance(got[1], Refused)
        assert got[1].status is Status.INVALID_ARGUMENT
        assert "no such row" in str(got[1])

    run(pool, work)


def test_a_wrong_shape_or_dtype_never_reaches_a_batch(pool: sojourn.Pool) -> None:
    pool.register("softmax", models.softmax_regression)

    async def work(desk: Desk) -> None:
        await desk.ask("softmax", x=rows(1))
        got = await asyncio.gather(
            desk.ask("softmax", x=rows(1)),
            desk.ask("softmax", x=np.ones((1, 3), np.float32)),
            desk.ask("softmax", x=np.array([["a"] * 784])),
            desk.ask("softmax", y=rows(1)),
            desk.ask("softmax", x=rows(2)),
            return_exceptions=True,
        )
        assert [isinstance(each, Refused) for each in got] == [False, True, True, True, False]
        assert desk.steps("softmax") == {1: 1, 2: 1}

    run(pool, work)


def test_a_client_that_leaves_costs_nobody_else_an_answer(pool: sojourn.Pool) -> None:
    pool.register("lookup", lookup)

    async def work(desk: Desk) -> None:
        await desk.ask("lookup", i=[0])
        for leaver, turns in itertools.product(range(4), range(1, 4)):
            tasks = [asyncio.ensure_future(desk.ask("lookup", i=[n])) for n in range(4)]
            for _ in range(turns):  # of the loop: before the step begins, or after
                await asyncio.sleep(0)
            tasks[leaver].cancel()
            got = await asyncio.gather(*tasks, return_exceptions=True)
            for n, each in enumerate(got):
                if n != leaver:
                    assert each.item() == 10.0 * n  # type: ignore[union-attr]
        assert (await desk.ask("lookup", i=[7])).item() == 70.0

    run(pool, work)


# -- time and room -----------------------------------------------------------------------------


def test_what_is_too_late_is_not_run(pool: sojourn.Pool) -> None:
    pool.register("sleep", models.sleeper)

    async def work(desk: Desk) -> None:
        await desk.ask("sleep", seconds=0.0)
        busy = asyncio.ensure_future(desk.ask("sleep", seconds=0.5))
        await asyncio.sleep(0.05)
        late = asyncio.ensure_future(
            desk.ask("sleep", deadline=time.monotonic() + 0.1, seconds=0.0)
        )
        with pytest.raises(Refused) as refused:
            await late
        assert refused.value.status is Status.DEADLINE_EXCEEDED
        assert not busy.done()
        await busy
        with pytest.raises(Refused) as refused:
            await desk.ask("sleep", deadline=time.monotonic() - 1, seconds=0.0)
        assert refused.value.status is Status.DEADLINE_EXCEEDED
        (statistics,) = desk.handler.statistics("sleep")
        assert (statistics.steps, statistics.late) == (2, 2)

    run(pool, work)


@pytest.mark.usefixtures("joined_always")
def test_what_is_too_late_once_a_copy_can_be_had_is_not_run(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    (tmp_path / "times.onnx").write_bytes(served_models.times(2))
    pool.register("times", tmp_path / "times.onnx", exclusive=True, copies=1)
    x = np.ones((1, 4), np.float32)

    async def work(desk: Desk) -> None:
        await desk.ask("times", x=x)
        with pool.lease("times"):
            late = desk.ask("times", deadline=time.monotonic() + 0.1, x=x)
            tasks = [asyncio.ensure_future(each) for each in (late, desk.ask("times", x=x))]
            with pytest.raises(Refused):
                await tasks[0]
        assert (await tasks[1]).item() == 8.0
        assert desk.steps("times") == {1: 2}

    run(pool, work)


def test_a_step_that_takes_too_long_is_told(pool: sojourn.Pool) -> None:
    pool.register("sleep", models.sleeper)

    async def work(desk: Desk) -> None:
        await desk.ask("sleep", seconds=0.0)
        with pytest.raises(Refused) as refused:
            await desk.ask("sleep", deadline=time.monotonic() + 0.1, seconds=0.4)
        assert refused.value.status is Status.DEADLINE_EXCEEDED
        assert (await desk.ask("sleep", seconds=0.0)).item() == 0.0

    run(pool, work)


def test_more_than_may_wait_are_refused(pool: sojourn.Pool, tmp_path: Path) -> None:
    (tmp_path / "times.onnx").write_bytes(served_models.times(2))
    x = np.ones((1, 4), np.float32)

    async def work(desk: Desk) -> None:
        await desk.ask("times", x=x)
        got = await asyncio.gather(
            *(desk.ask("times", x=x) for _ in range(10)), return_exceptions=True
        )
        refused = [each for each in got if isinstance(each, Refused)]
        assert len(refused) == 7
        assert {each.status for each in refused} == {Status.RESOURCE_EXHAUSTED}
        assert {each.retry_after for each in refused} == {1.0}
        assert (await desk.ask("times", x=x)).item() == 8.0

    run(pool, work, times=ModelRules(path=str(tmp_path / "times.onnx"), max_queue=3))


def test_requests_that_are_over_make_room_for_others_and_hold_no_memory(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    (tmp_path / "times.onnx").write_bytes(served_models.times(2))
    x = np.ones((1, 4), np.float32)

    async def work(desk: Desk) -> None:
        await desk.ask("times", x=x)
        session, is_free = desk.catalogue.session, asyncio.Event()

        @asynccontextmanager
        async def busy(served: Served, deadline: float | None) -> AsyncIterator[Usable]:
            await is_free.wait()
            async with session(served, deadline) as opened:
                yield opened

        desk.catalogue.session = busy  # type: ignore[assignment, method-assign]
        first = asyncio.create_task(desk.ask("times", x=x))
        await asyncio.sleep(0.01)
        given = [x.copy() for _ in range(8)]
        sent = [weakref.ref(array) for array in given]
        late = [desk.ask("times", deadline=time.monotonic() + 0.05, x=each) for each in given[:4]]
        left = [asyncio.create_task(desk.ask("times", x=each)) for each in given[4:]]
        got = await asyncio.gather(*late, return_exceptions=True)
        assert [str(each) for each in got] == [str(too_late())] * 4
        for client in left:
            client.cancel()
        await asyncio.wait(left)
        (statistics,) = desk.handler.statistics("times")
        assert statistics.waiting == 0
        del given, late, left, got, client
        gc.collect()
        assert [array() for array in sent] == [None] * 8
        live = [asyncio.create_task(desk.ask("times", x=x)) for _ in range(8)]
        await asyncio.sleep(0)
        is_free.set()
        assert [(await each).item() for each in (first, *live)] == [8.0] * 9

    run(pool, work, times=ModelRules(path=str(tmp_path / "times.onnx"), max_queue=8))


def test_the_limits_hold_also_while_a_model_is_opened_to_learn_its_signature(
    pool: sojourn.Pool,
) -> None:
    pool.register("adder", models.adder, exclusive=True)

    async def work(desk: Desk) -> None:
        with pool.lease("adder"):
            deadline = time.monotonic() + 0.1
            late = [desk.ask("adder", deadline=deadline, a=1.0, b=2.0) for _ in range(2)]
            waiting = asyncio.gather(*late, return_exceptions=True)
            await asyncio.sleep(0)
            with pytest.raises(Refused) as refused:
                await desk.ask("adder", a=1.0, b=2.0)
            assert refused.value.status is Status.RESOURCE_EXHAUSTED
            (statistics,) = desk.handler.statistics("adder")
            assert (statistics.waiting, statistics.refused) == (2, 1)
            got = await asyncio.wait_for(waiting, 10)
            assert [getattr(each, "status", None) for each in got] == [Status.DEADLINE_EXCEEDED] * 2
        assert await desk.ask("adder", a=1.0, b=2.0) == 3

    run(pool, work, adder=ModelRules(max_queue=2))


def test_every_request_is_counted_once_whatever_it_came_to(pool: sojourn.Pool) -> None:
    pool.register("adder", models.adder, exclusive=True)

    async def work(desk: Desk) -> None:
        ref = ModelRef("adder")
        with pool.lease("adder"):
            # As TensorFlow Serving's REST does it: the signature is asked for before the body.
            soon = time.monotonic() + 0.1
            late = [desk.handler.signature(ref, None, soon) for _ in range(2)]
            waiting = asyncio.gather(*late, return_exceptions=True)
            await asyncio.sleep(0)
            with pytest.raises(Refused):
                await desk.handler.signature(ref)
            await waiting
            with pytest.raises(Refused):
                await desk.handler.signature(ref, None, time.monotonic() - 1)
        assert await desk.ask("adder", a=1.0, b=2.0) == 3
        with pool.lease("adder"), pytest.raises(Refused):  # it waits for a copy, alone
            await desk.ask("adder", deadline=time.monotonic() + 0.1, a=1.0, b=2.0)
        with pytest.raises(Refused):
            await desk.ask("adder", a=1.0)
        (found,) = desk.handler.statistics("adder")
        assert (found.succeeded, found.failed, found.refused, found.late) == (1, 6, 1, 4)
        assert len(desk.handler.failures) == 6

    run(pool, work, adder=ModelRules(max_queue=2))


def test_a_busy_model_does_not_keep_another_waiting(pool: sojourn.Pool, tmp_path: Path) -> None:
    (tmp_path / "times.onnx").write_bytes(served_models.times(2))
    pool.register("times", tmp_path / "times.onnx")
    pool.register("sleep", models.sleeper)

    async def work(desk: Desk) -> None:
        x = np.ones((1, 4), np.float32)
        await desk.ask("times", x=x)
        await desk.ask("sleep", seconds=0.0)
        slow = [asyncio.ensure_future(desk.ask("sleep", seconds=0.3)) for _ in range(3)]
        await asyncio.sleep(0.01)
        for _ in range(20):
            await desk.ask("times", x=x)
        assert not slow[0].done()
        await asyncio.gather(*slow)

    run(pool, work)


# -- workers that die --------------------------------------------------------------------------


def test_a_pure_step_whose_worker_was_killed_is_run_again(pool: sojourn.Pool) -> None:
    pool.register("counting", models.counting_up)

    async def work(desk: Desk) -> None:
        await desk.ask("counting", n=np.int32(1))
        asked = asyncio.ensure_future(desk.ask("counting", n=np.int32(300_000)))
        await asyncio.sleep(0.1)
        assert not asked.done()
        os.kill(await desk.pid("counting"), signal.SIGKILL)
        assert (await asked).item() == 300_000
        (statistics,) = desk.handler.statistics("counting")
        assert statistics.repeated == 1

    run(pool, work)


def test_what_waited_together_survives_a_killed_worker(pool: sojourn.Pool) -> None:
    pool.register("lookup", lookup)

    async def work(desk: Desk) -> None:
        await desk.ask("lookup", i=[0])
        pid = await desk.pid("lookup")
        tasks = [asyncio.ensure_future(desk.ask("lookup", i=[n])) for n in range(8)]
        os.kill(pid, signal.SIGKILL)
        got = await asyncio.gather(*tasks)
        assert [each.item() for each in got] == [10.0 * n for n in range(8)]

    run(pool, work)


def test_another_step_whose_worker_was_killed_is_not_and_its_outcome_is_named(
    pool: sojourn.Pool,
) -> None:
    pool.register("sleep", models.sleeper)

    async def work(desk: Desk) -> None:
        await desk.ask("sleep", seconds=0.0)
        asked = asyncio.ensure_future(desk.ask("sleep", seconds=30.0))
        await asyncio.sleep(0.2)
        os.kill(await desk.pid("sleep"), signal.SIGKILL)
        with pytest.raises(Refused) as refused:
            await asked
        assert refused.value.status is Status.UNAVAILABLE
        assert refused.value.retry_after
        assert "outcome is unknown" in str(refused.value)
        assert (await desk.ask("sleep", seconds=0.0)).item() == 0.0

    run(pool, work)


def test_one_that_kills_its_worker_fails_alone(pool: sojourn.Pool) -> None:
    pool.register("deadly", deadly)

    async def work(desk: Desk) -> None:
        await desk.ask("deadly", x=np.zeros(1, np.float32))
        asked = [np.full(1, n, np.float32) for n in (1, 2, 13, 3)]
        got = await asyncio.gather(
            *(desk.ask("deadly", x=each) for each in asked), return_exceptions=True
        )
        assert [got[n].item() for n in (0, 1, 3)] == [1.0, 2.0, 3.0]  # type: ignore[union-attr]
        assert isinstance(got[2], Refused)
        assert got[2].status is Status.UNAVAILABLE

    run(pool, work, deadly=ModelRules(pure=True))


def test_a_model_that_cannot_be_opened_is_tried_once_for_all_that_wait(pool: sojourn.Pool) -> None:
    pool.register("hopeless", pool_models.dies_at_load)

    async def work(desk: Desk) -> None:
        desk.catalogue.resolve(ModelRef("hopeless")).signatures = {
            "serving_default": plain("serving_default", Signature({"x": ANY}, {"y": ANY}))
        }
        asked = [desk.ask("hopeless", x=1.0) for _ in range(8)]
        got = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, Refused) for each in got)
        assert {each.status for each in got} == {Status.UNAVAILABLE}  # type: ignore[union-attr]

    run(pool, work)


# -- the end -----------------------------------------------------------------------------------


def test_a_handler_that_is_closed_answers_everybody(pool: sojourn.Pool) -> None:
    pool.register("sleep", models.sleeper)

    async def work(desk: Desk) -> None:
        await desk.ask("sleep", seconds=0.0)
        tasks = [asyncio.ensure_future(desk.ask("sleep", seconds=0.3)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await desk.handler.close()
        got = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, Refused) for each in got][1:] == [True, True]

    run(pool, work)


def test_an_embedded_server_can_be_used_from_many_threads(pool: sojourn.Pool) -> None:
    pool.register("lookup", lookup)
    wrong = []

    def client(server: sojourn.Server, n: int) -> None:
        entry = {"name": "i", "datatype": "INT32", "shape": [1], "data": [n]}
        with web.client(server) as connection:
            for _ in range(20):
                got = web.ask_on(connection, "/v2/models/lookup/infer", {"inputs": [entry]})
                if got.status != 200 or got.json["outputs"][0]["data"] != [10.0 * n]:
                    wrong.append(got)

    with web.serving(pool) as server:
        threads = [threading.Thread(target=client, args=(server, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
