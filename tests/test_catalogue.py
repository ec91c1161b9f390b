"""The models of a server: which there are, which version a request gets, how they come and go."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sojourn
from models import adder
from served_models import M, X, answer, save_signatures, states, times, write_version
from sojourn.errors import SessionBroken
from sojourn.service.catalogue import Catalogue
from sojourn.service.failures import Refused, Status
from sojourn.service.handler import Handler
from sojourn.service.inference import Inference, ModelRef
from sojourn.service.rules import ModelRules
from sojourn.service.served import VersionState
from sojourn.service.signatures import read_signatures
from wire_writer import field, saved_model

pytestmark = pytest.mark.usefixtures("zygote")


@asynccontextmanager
async def serving(pool: sojourn.Pool | None = None, **entries: Any) -> AsyncIterator[Catalogue]:
    """A catalogue at work, with a pool of its own unless one is given."""
    own = pool or sojourn.Pool()
    catalogue = Catalogue(own, entries)
    try:
        await catalogue.start()
        yield catalogue
    finally:
        await catalogue.close()
        if pool is None:
            await asyncio.to_thread(own.close)


def run(main: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def only(catalogue: Catalogue) -> Any:
    (status,) = catalogue.statuses("m")
    return status


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "m.onnx").write_bytes(times(2))
    return str(tmp_path / "m.onnx")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, zygote: None) -> str:
    path = str(tmp_path_factory.mktemp("saved") / "scaler")
    sojourn.isolated(save_signatures)(path)
    return path


def test_a_lazy_model_is_in_service_at_once_and_opened_by_the_first_request(model):
    async def main() -> None:
        async with serving(m=model) as catalogue:
            assert only(catalogue).state is VersionState.AVAILABLE
            assert not only(catalogue).is_loaded
            assert await answer(catalogue) == 8
            assert only(catalogue).is_loaded
            assert only(catalogue).memory > 0

    run(main)


def test_an_eager_model_is_loaded_when_the_server_has_started(model):
    async def main() -> None:
        async with serving(m=ModelRules(path=model, load="eager")) as catalogue:
            assert only(catalogue).is_loaded

    run(main)


def test_an_unloaded_model_hands_over_its_receipt_and_comes_back_when_it_is_loaded(model):
    async def main() -> None:
        async with serving(m=model) as catalogue:
            await answer(catalogue)
            (receipt,) = await catalogue.unload("m")
            assert receipt.clean
            assert receipt.runs == 1
            assert only(catalogue).receipt == receipt
            assert only(catalogue).state is VersionState.END
            assert await catalogue.unload("m") == ()  # twice is harmless
            with pytest.raises(
                Refused, match=r"Latest\(m\); it was unloaded by request"
            ) as refused:
                await answer(catalogue)
            assert refused.value.status is Status.NOT_FOUND
            await asyncio.gather(catalogue.load("m"), catalogue.load("m"))
            assert catalogue.pool.stats().counters["opens"] == 2  # once for both
            assert await answer(catalogue) == 8
            assert await catalogue.unload("m", generation=1) == ()  # it is meant for the one before
            assert await answer(catalogue) == 8

    run(main)


def test_unloading_waits_for_the_request_that_has_it_and_refuses_those_that_come(model):
    async def main() -> None:
        async with serving(m=model) as catalogue:
            served = catalogue.resolve(M)
            served.enter()  # it waits in a queue, say
            unloading = asyncio.ensure_future(catalogue.unload("m"))
            await asyncio.sleep(0)
            assert only(catalogue).state is VersionState.UNLOADING
            with pytest.raises(Refused, match="being unloaded"):
                catalogue.resolve(M)
            async with catalogue.session(served) as session:
                assert (await session.arun("y", {"x": X}))[0, 0] == 8
            assert not unloading.done()
            served.leave()
            assert len(await unloading) == 1
            with pytest.raises(Refused, match="out of service"):
                catalogue.session(served)

    run(main)


def test_what_is_not_there_is_not_found(model):
    async def main() -> None:
        async with serving(m=ModelRules(path=model, labels={"stable": 1})) as catalogue:
            assert await answer(catalogue, ModelRef("m", label="stable")) == 8
            for ref, named in (
                (ModelRef("n"), "Latest(n)"),
                (ModelRef("m", 2), "Specific(m, 2)"),
                (ModelRef("n", label="canary"), "Label(n, canary)"),
            ):
                with pytest.raises(Refused) as refused:
                    catalogue.resolve(ref)
                assert str(refused.value) == f"Servable not found for request: {named}"
                assert refused.value.status is Status.NOT_FOUND
            with pytest.raises(
                Refused, match="Unrecognized servable version label: canary"
            ) as error:
                catalogue.resolve(ModelRef("m", label="canary"))
            assert error.value.status is Status.INVALID_ARGUMENT  # as TensorFlow Serving has it
            for operation in (catalogue.load, catalogue.unload):
                with pytest.raises(Refused, match=r"Latest\(n\)"):
                    await operation("n")
                with pytest.raises(Refused, match=r"Specific\(m, 2\)"):
                    await operation("m", version=2)

    run(main)


def test_models_of_the_pool_are_served_as_they_are():
    async def main() -> None:
        with sojourn.Pool() as pool:
            async with serving(pool) as catalogue:
                pool.register("m", adder)
                assert catalogue.names() == ("m",)
                served = catalogue.resolve(M)
                async with catalogue.session(served) as session:
                    assert await session.arun("output", {"a": 1, "b": 2}) == 3
                assert len(await catalogue.unload("m")) == 1
                with pytest.raises(Refused, match="unloaded by request"):
                    catalogue.resolve(M)
                await catalogue.load("m")
                assert only(catalogue).is_loaded
                await asyncio.to_thread(pool.update, "m", adder)
                assert catalogue.resolve(M).version == 2

    run(main)


def halver() -> Any:
    return lambda whole: whole / 2


def test_a_model_of_the_pool_that_is_unregistered_is_gone_and_another_may_have_its_name():
    async def main() -> None:
        with sojourn.Pool() as pool:
            async with serving(pool) as catalogue:
                handler = Handler(catalogue)

                async def ask(**inputs: float) -> float:
                    arrays = {name: np.asarray(value) for name, value in inputs.items()}
                    answered = await handler.infer(Inference(M, arrays))
                    return float(answered.outputs["output"])

                pool.register("m", adder)
                assert await ask(a=1, b=2) == 3
                pool.unregister("m")
                assert catalogue.names() == ()
                assert not handler.is_ready(M)
                assert catalogue.statuses() == ()
                with pytest.raises(Refused) as refused:
                    await ask(a=1, b=2)
                assert refused.value.status is Status.NOT_FOUND
                pool.register("m", adder)
                assert await ask(a=1, b=2) == 3
                before = catalogue.resolve(M)
                pool.unregister("m")
                pool.register("m", halver)  # nobody has asked in between
                assert catalogue.resolve(M) is not before
                assert catalogue.resolve(ModelRef("m", 1)) is catalogue.resolve(M)
                assert await ask(whole=8) == 4
                await catalogue.unload("m")
                assert only(catalogue).state is VersionState.END
                await catalogue.load("m")
                assert only(catalogue).generation == 2
                assert await ask(whole=8) == 4
                await handler.close()

    run(main)


def test_the_rules_of_a_model_that_the_pool_gets_later_hold_for_it():
    async def main() -> None:
        rules = ModelRules(max_queue=3)
        with sojourn.Pool() as pool:
            async with serving(pool, m=rules) as catalogue:
                for _ in range(2):
                    with pytest.raises(Refused, match="not found"):
                        catalogue.resolve(M)
                    pool.register("m", adder)
                    assert catalogue.resolve(M).options is rules
                    pool.unregister("m")

    run(main)


def test_all_signatures_of_a_saved_model_are_told_without_loading_it_and_run_in_one_worker(saved):
    async def main() -> None:
        async with serving(m=saved) as catalogue:
            told = await Handler(catalogue).metadata(M)
            assert told.platform == "tensorflow_savedmodel"
            assert told.engine == "tensorflow"
            assert told.versions == (1,)
            assert {name: str(found.spec) for name, found in told.signatures.items()} == {
                "count": "(by: float32[]) -> (runs: float32[])",
                "serving_default": "(x: float32[?, 2]) -> (y: float32[?, 2])",
                "total": "(x: float32[?, 2]) -> (rows: int32[], y: float32[?])",
            }
            assert not only(catalogue).is_loaded
            served = catalogue.resolve(M)
            rows = np.array([[1, 2], [3, 4]], np.float32)
            got = {}
            async with catalogue.session(served) as session:
                for name in ("serving_default", "total"):
                    called = await catalogue.signature(served, name)
                    feeds = {called.inputs["x"]: rows}
                    got[name] = await session.arun(called.outputs["y"], feeds)
            assert np.array_equal(got["serving_default"], rows * 3)
            assert np.array_equal(got["total"], [3, 7])
            assert only(catalogue).copies == 1
            with pytest.raises(Refused, match='signature key "other" not found'):
                await catalogue.signature(served, "other")

    run(main)


def test_a_signature_keeps_the_method_and_the_tensors_of_its_file(tmp_path):
    def info(name: str, tensor: str) -> bytes:
        return field(1, name) + field(2, field(1, tensor) + b"\x10\x01")

    content = field(1, info("inputs", "in:0")) + field(2, info("scores", "out:0"))
    other = field(3, "tensorflow/serving/classify")
    (tmp_path / "saved_model.pb").write_bytes(
        saved_model(
            field(5, field(1, "serving_default"), field(2, content)),
            field(5, field(1, "classes"), field(2, content + other)),
        )
    )
    found = read_signatures(str(tmp_path))
    told = {name: (c.method, c.input_tensors, c.output_tensors) for name, c in found.items()}
    tensors = {"inputs": "in:0"}, {"scores": "out:0"}
    assert told == {
        "serving_default": ("tensorflow/serving/predict", *tensors),
        "classes": ("tensorflow/serving/classify", *tensors),
    }
    assert found["serving_default"].inputs == {"inputs": "inputs"}
    assert found["classes"].inputs == tensors[0]


def test_metadata_of_other_models_comes_from_the_file_or_the_session(model):
    async def main() -> None:
        with sojourn.Pool() as pool:
            pool.register("f", adder)
            async with serving(pool, m=model) as catalogue:
                told = await Handler(catalogue).metadata(M)
                assert told.platform == "onnxruntime_onnx"
                assert str(told.signatures["serving_default"].spec) == (
                    "(x: float32[?, 4]) -> (y: float32[?, 1])"
                )
                assert not only(catalogue).is_loaded
                told = await Handler(catalogue).metadata(ModelRef("f"))
                assert list(told.usual.outputs) == ["output"]

    run(main)


def test_a_model_that_cannot_be_loaded_says_why_and_backs_off(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"\x08\x09\x12\x00nothing of the kind")

    async def main() -> None:
        async with serving(m=str(tmp_path / "m.onnx")) as catalogue:
            for _ in range(3):
                with pytest.raises(Refused, match="m, version 1 cannot be loaded") as refused:
                    await answer(catalogue)
                assert refused.value.status is Status.UNAVAILABLE
            with pytest.raises(Refused, match="failed 3 times in a row; it is tried again") as left:
                await answer(catalogue)
            assert left.value.status is Status.UNAVAILABLE
            assert 0 < left.value.retry_after <= 0.2
            assert only(catalogue).failures == 3
            assert "failed 3 times" in only(catalogue).error
            (tmp_path / "m.onnx").write_bytes(times(5))
            await catalogue.load("m")  # at once: somebody has mended it
            assert only(catalogue).failures == 0
            assert await answer(catalogue) == 20

    run(main)


def test_requests_that_lose_their_worker_together_count_once_and_one_success_is_enough(model):
    async def main() -> None:
        async with serving(m=model) as catalogue:
            served = catalogue.resolve(M)

            async def lose() -> None:
                with pytest.raises(SessionBroken):
                    async with catalogue.session(served) as session:
                        pids.append(session.pid)
                        if len(pids) == 8:  # all have it, and none waits for another
                            os.kill(session.pid, signal.SIGKILL)
                            together.set()
                        await together.wait()
                        for _ in range(1000):
                            await session.arun("y", {"x": X})

            together, pids = asyncio.Event(), []
            await asyncio.gather(*(lose() for _ in range(8)))
            assert len(set(pids)) == 1
            assert only(catalogue).failures == 1
            assert await answer(catalogue) == 8
            assert only(catalogue).failures == 0

    run(main)


def test_a_request_s_keep_alive_sticks_and_zero_lets_the_model_go(model):
    async def main() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        stop = sojourn.events.subscribe(
            lambda event: loop.call_soon_threadsafe(heard.put_nowait, event.kind)
        )
        async with serving(m=ModelRules(path=model, keep_alive="5m")) as catalogue:
            assert only(catalogue).keep_seconds == 300
            served = catalogue.resolve(M)
            catalogue.keep(served, -1)
            assert await answer(catalogue) == 8
            assert only(catalogue).keep_seconds == float("inf")
            served.enter()
            catalogue.keep(served, 0)
            assert await answer(catalogue) == 8
            served.leave()
            assert catalogue.pool.stats().counters["opens"] == 1  # it left after that, not before
            while await asyncio.wait_for(heard.get(), 30) != "model.unloaded":
                pass
            assert not only(catalogue).is_loaded
            assert only(catalogue).receipt.clean
            assert await answer(catalogue) == 8  # the next request opens it again
            stop()

    run(main)


def test_the_versions_that_the_rules_choose_are_served(tmp_path):
    for number in (1, 2, 3, 10):
        write_version(tmp_path / "m", number)

    async def main() -> None:
        async with serving(m=str(tmp_path / "m")) as catalogue:
            assert list(states(catalogue)) == [10]
            assert await answer(catalogue) == 40
        rules = ModelRules(path=str(tmp_path / "m"), versions="latest 2", labels={"old": 3})
        async with serving(m=rules) as catalogue:
            assert list(states(catalogue)) == [3, 10]
            assert await answer(catalogue, ModelRef("m", label="old")) == 12
            assert [s.labels for s in catalogue.statuses("m")] == [("old",), ()]
            await catalogue.unload("m", version=10)
            assert await answer(catalogue) == 12  # the latest that is in service
        async with serving(m=ModelRules(path=str(tmp_path / "m"), versions=[1, 3])) as catalogue:
            assert await answer(catalogue, ModelRef("m", 1)) == 4
            assert await answer(catalogue) == 12

    run(main)


def test_requests_that_come_while_an_idle_model_leaves_get_a_fresh_one(model):
    async def main() -> None:
        async with serving(m=ModelRules(path=model, keep_alive=0)) as catalogue:

            async def ask() -> None:
                for _ in range(5):
                    assert await answer(catalogue) == 8
                    await asyncio.sleep(0.005)

            await asyncio.wait_for(asyncio.gather(ask(), ask()), 60)
            assert catalogue.pool.stats().counters["opens"] > 1

    run(main)


def test_a_model_whose_worker_dies_again_and_again_is_left_alone_for_ever_longer(model):
    async def main() -> None:
        async with serving(m=model) as catalogue:

            async def die() -> None:
                served = catalogue.resolve(M)
                with pytest.raises(SessionBroken):
                    async with catalogue.session(served) as session:
                        os.kill(session.pid, signal.SIGKILL)
                        while True:
                            await session.arun("y", {"x": X})

            waits = []
            while len(waits) < 2:
                try:
                    await die()
                except Refused as refused:
                    waits.append((refused, only(catalogue)))
                    await asyncio.sleep(refused.retry_after + 0.01)
            for refused, status in waits:
                assert refused.status is Status.UNAVAILABLE
                assert "times in a row; it is tried again in" in str(refused)
                assert str(refused).count("in a row") == 1
                assert status.retry_seconds > 0
            assert 3 <= waits[0][1].failures < waits[1][1].failures
            while only(catalogue).failures:
                try:
                    assert await answer(catalogue) == 8
                except (Refused, SessionBroken):
                    await asyncio.sleep(0.05)
            assert only(catalogue).error == ""

    run(main)


def test_an_untrusted_model_runs_in_the_sandbox(model):
    async def main() -> None:
        async with serving(m=ModelRules(path=model, untrusted=True)) as catalogue:
            served = catalogue.resolve(M)
            async with catalogue.session(served) as session:
                assert session.sandbox is not None
                assert (await session.arun("y", {"x": X}))[0, 0] == 8

    run(main)


def test_the_options_of_a_model_reach_the_pool(model):
    rules = ModelRules(
        path=model, copies=2, pinned=True, memory="300MiB", device="cpu", load="eager"
    )

    async def main() -> None:
        async with serving(m=rules) as catalogue:
            assert only(catalogue).copies == 2  # a pinned one is there whole
            assert {copy.bytes for copy in catalogue.pool.stats().copies} == {300 * 2**20}

    run(main)
