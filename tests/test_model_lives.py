"""Versions come, take over and leave, while requests go on: from folders and from new settings."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import shutil
import signal
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sojourn
from served_models import M, X, answer, save_signatures, states, times, write_version
from sojourn.errors import ModelError
from sojourn.service import lives, watching
from sojourn.service.catalogue import Catalogue
from sojourn.service.config import read_config
from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.grpc.messages import TENSORS, TFSERVING
from sojourn.service.handler import Handler
from sojourn.service.inference import Inference, ModelRef
from sojourn.service.operating import Operating, Operation
from sojourn.service.page.page import Page
from sojourn.service.rules import ModelRules
from sojourn.service.served import VersionState
from sojourn.service.warming import RECORDED, read_records
from sojourn.service.watching import Found, Key, Quiet, Watcher, compare

pytestmark = pytest.mark.usefixtures("zygote")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "QUIET_SECONDS", 0.1)


@asynccontextmanager
async def serving(entries: Any = None, **more: Any) -> AsyncIterator[Catalogue]:
    pool = sojourn.Pool()
    catalogue = Catalogue(pool, entries, **more)
    try:
        await catalogue.start()
        yield catalogue
    finally:
        await catalogue.close()
        await asyncio.to_thread(pool.close)


async def until(condition: Callable[[], object]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), 60)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def watched(folder: Path, **settings: str) -> dict[str, Any]:
    config = read_config(None, {}, {"paths": [str(folder)], **settings})
    return {"entries": config.entries(), "find": config.entries, "watch_seconds": 0.05}


def test_a_new_version_takes_over_without_a_failed_request_and_the_old_one_leaves_a_receipt(
    tmp_path,
):
    write_version(tmp_path / "m", 1)
    heard = []
    stop = sojourn.events.subscribe(heard.append)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            handler = Handler(catalogue)
            answers: list[tuple[int, float]] = []

            async def ask() -> None:
                while (2, 8.0) not in answers[-9:]:
                    got = await handler.infer(Inference(M, {"x": X}))
                    answers.append((got.version, float(got.outputs["y"][0, 0])))

            asking = [asyncio.create_task(ask()) for _ in range(8)]
            await until(lambda: len(answers) > 20)
            write_version(tmp_path / "m", 2)
            await asyncio.wait_for(asyncio.gather(*asking), 60)
            assert set(answers) == {(1, 4.0), (2, 8.0)}
            await until(lambda: states(catalogue)[1] is VersionState.END)
            old, new = catalogue.statuses("m")
            assert old.receipt.clean
            assert new.is_loaded
            with pytest.raises(Refused, match="another version replaces it"):
                catalogue.resolve(ModelRef("m", 1))
            await handler.close()

    try:
        run(main)
    finally:
        stop()
    kinds = [event.kind for event in heard if event.kind.startswith("model.")]
    assert kinds[:2] == ["model.loaded", "model.unloaded"]


def test_a_version_that_cannot_be_loaded_leaves_the_old_one_in_service_until_it_is_mended(tmp_path):
    write_version(tmp_path / "m", 1)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            assert await answer(catalogue) == 4
            write_version(tmp_path / "m", 2, b"\x08\x09\x12\x00nothing of the kind")
            await until(lambda: states(catalogue).get(2) is VersionState.END)
            assert "model.onnx" in catalogue.statuses("m")[1].error
            for _ in range(5):
                await asyncio.sleep(0.05)  # and it is not tried again and again
                assert await answer(catalogue) == 4
            with pytest.raises(Refused, match="cannot be loaded"):
                catalogue.resolve(ModelRef("m", 2))
            (tmp_path / "m/2/model.onnx").write_bytes(times(2))
            await until(
                lambda: states(catalogue) == {1: VersionState.END, 2: VersionState.AVAILABLE}
            )
            assert await answer(catalogue) == 8
            shutil.rmtree(tmp_path / "m/2")  # and back
            await until(
                lambda: states(catalogue) == {1: VersionState.AVAILABLE, 2: VersionState.END}
            )
            assert await answer(catalogue) == 4

    run(main)


def load_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: Exception, version: int, times: int
) -> list[int]:
    """Have the first so many loads of a version fail by this; returns which were tried."""
    load, tried = Catalogue._load, []

    async def load_or_not(catalogue: Catalogue, served: Any) -> None:
        tried.append(served.version)
        if served.version == version and tried.count(version) <= times:
            raise error
        await load(catalogue, served)

    monkeypatch.setattr(Catalogue, "_load", load_or_not)
    return tried


@pytest.mark.parametrize(
    "error",
    [
        sojourn.BudgetExceeded("m needs 3.1 GiB, and 2.4 GiB are leased"),
        sojourn.SessionBroken("the worker was killed"),
        sojourn.PlatformError("no process to be had"),
        OSError(errno.ESTALE, "Stale file handle"),
    ],
)
def test_a_version_that_fails_for_what_may_pass_is_tried_again_by_itself(
    tmp_path, monkeypatch, error
):
    write_version(tmp_path / "m", 1)
    monkeypatch.setattr(lives, "RETRY_SECONDS", 0.1)
    load_that_fails(monkeypatch, error, 2, times=3)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            write_version(tmp_path / "m", 2)

            def is_told() -> bool:  # in one go: it is tried again soon
                status = catalogue.statuses("m")[-1]
                if not status.retry_seconds:
                    return False
                assert "; it is tried again in" in status.error
                with pytest.raises(Refused, match="it is tried again in") as refused:
                    catalogue.resolve(ModelRef("m", 2))
                return 0 < refused.value.retry_after <= status.retry_seconds <= 0.4

            await until(is_told)
            assert await answer(catalogue) in (4, 8)
            await until(lambda: states(catalogue).get(2) is VersionState.AVAILABLE)
            assert await answer(catalogue) == 8
            await until(lambda: states(catalogue)[1] is VersionState.END)
            assert not catalogue.statuses("m")[1].error

    run(main)


def test_what_is_tried_again_is_not_if_something_else_has_become_of_it(tmp_path, monkeypatch):
    for version in (1, 2):
        write_version(tmp_path / "m", version)
    monkeypatch.setattr(lives, "RETRY_SECONDS", 1.0)
    tried = load_that_fails(monkeypatch, sojourn.SessionBroken("it was killed"), 2, times=1)

    async def main() -> None:
        (rules,) = watched(tmp_path)["entries"].values()
        eager = msgspec.structs.replace(rules, load="eager")
        async with serving({"m": eager}) as catalogue:
            assert states(catalogue) == {2: VersionState.END}
            write_version(tmp_path / "m", 3)
            await catalogue.reload({"m": eager})
            await asyncio.sleep(1.5)
            assert tried == [2, 3]
            assert await answer(catalogue) == 12
            tried.clear()
            write_version(tmp_path / "m", 4)
            load_that_fails(monkeypatch, sojourn.SessionBroken("it was killed"), 4, times=1)
            await catalogue.reload({"m": eager})
            await catalogue.unload("m")
            await asyncio.sleep(1.5)
            assert tried == []
            assert VersionState.AVAILABLE not in states(catalogue).values()

    run(main)


def test_new_settings_that_fail_for_what_may_pass_are_tried_again(tmp_path, monkeypatch):
    write_version(tmp_path / "m", 1)
    monkeypatch.setattr(lives, "RETRY_SECONDS", 1.0)

    async def main() -> None:
        rules = ModelRules(path=str(tmp_path / "m"), load="eager")
        async with serving({"m": rules}) as catalogue:
            load_that_fails(monkeypatch, sojourn.PlatformError("no process"), 1, times=1)
            await catalogue.reload({"m": msgspec.structs.replace(rules, max_runs=5)})
            (status,) = catalogue.statuses("m")
            assert "new settings cannot be used: no process; it is tried again" in status.error
            await until(lambda: not catalogue.statuses("m")[0].error)
            assert catalogue.resolve(M).options.max_runs == 5
            assert await answer(catalogue) == 4

    run(main)


def test_models_come_and_go_with_their_files(tmp_path):
    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            assert catalogue.names() == ()
            (tmp_path / "m.onnx").write_bytes(times(3))
            await until(
                lambda: (
                    "m" in catalogue.names()
                    and VersionState.AVAILABLE in states(catalogue).values()
                )
            )
            assert await answer(catalogue) == 12
            os.remove(tmp_path / "m.onnx")
            await until(lambda: not catalogue.names())
            with pytest.raises(Refused, match=r"not found for request: Latest\(m\)"):
                catalogue.resolve(M)
            assert catalogue.pool.stats().copies == ()

    run(main)


def test_a_model_that_is_replaced_in_place_is_opened_again_if_it_can_be(tmp_path):
    file = tmp_path / "m.onnx"
    file.write_bytes(times(3))

    def replace(content: bytes) -> None:
        (tmp_path / "new").write_bytes(content)
        os.rename(tmp_path / "new", file)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            assert await answer(catalogue) == 12
            replace(b"\x08\x09\x12\x00nothing of the kind")
            await until(lambda: "its new files cannot be used" in catalogue.statuses("m")[0].error)
            assert await answer(catalogue) == 12
            replace(times(5))
            await until(lambda: catalogue.resolve(M).generation == 2)
            assert await answer(catalogue) == 20
            (status,) = catalogue.statuses("m")
            assert (status.error, status.copies) == ("", 1)
            assert catalogue.names() == ("m",)

    run(main)


def test_what_somebody_has_unloaded_stays_out_whatever_comes(tmp_path):
    write_version(tmp_path / "m", 1)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            await catalogue.unload("m")
            write_version(tmp_path / "m", 2)
            (tmp_path / "other.onnx").write_bytes(times(3))
            await until(lambda: "other" in catalogue.names())
            with pytest.raises(Refused, match="unloaded by request"):
                catalogue.resolve(M)
            await catalogue.load("m")
            assert await answer(catalogue) == 8

    run(main)


def test_what_a_reload_brings_is_not_taken_away_by_the_next_look(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/m.onnx").write_bytes(times(2))
    (tmp_path / "b/n.onnx").write_bytes(times(3))
    config = read_config(None, {}, {"paths": [str(tmp_path / "a")]})

    async def main() -> None:
        nonlocal config
        async with serving(config.entries(), find=lambda: config.entries()) as catalogue:
            await catalogue.watch(0.01)
            assert await answer(catalogue) == 8
            config = read_config(None, {}, {"paths": [str(tmp_path / "b")]})
            await catalogue.reload(config.entries())
            for _ in range(5):
                assert await answer(catalogue, ModelRef("n")) == 12
                await asyncio.sleep(0.02)
            assert catalogue.names() == ("n",)

    run(main)


def test_what_somebody_has_changed_is_not_undone_by_what_is_new_in_a_folder(tmp_path):
    for name in ("m", "n", "o"):
        write_version(tmp_path / name, 1)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            m = ModelRules(path=str(tmp_path / "m"), labels={"a": 1})
            await catalogue.reload({"m": m, "n": str(tmp_path / "n")})
            write_version(tmp_path / "m", 2)
            write_version(tmp_path / "p", 1)
            await until(lambda: "p" in catalogue.names() and 2 in states(catalogue))
            assert await answer(catalogue, ModelRef("m", label="a")) == 4
            assert catalogue.names() == ("m", "n", "p")

    run(main)


def test_a_model_stays_as_it_was_until_what_replaces_it_is_complete():
    before = {"m": Found(ModelRules(path="m.onnx"), {1: "m.onnx"})}
    watcher = Watcher(dict, None, 1)
    watcher._last = before
    after = {"m": ModelRules(path="m")}
    half = Key("m", 3, "m/3")
    assert watcher._found(after, [half]) == before
    watcher._quiet.take({half: ()})
    assert watcher._found(after, [half]) == {"m": Found(after["m"], {3: "m/3"})}
    assert watcher._found(after, []) == {"m": Found(after["m"], {})}


@given(
    *[st.dictionaries(st.sampled_from("abc"), st.tuples(st.booleans(), st.integers(1, 2)))] * 2,
)
def test_news_are_exactly_what_is_different(one, other):
    def found(looks: Any) -> dict[str, Found]:
        return {n: Found(ModelRules(path="p", pure=p), {v: "p"}) for n, (p, v) in looks.items()}

    before, after = found(one), found(other)
    news = compare(before, after, ())
    assert bool(news) == (before != after)
    assert news.gone == before.keys() - after.keys()
    assert all(before.get(n) != f for n, f in news.changed.items())
    assert all(before[n].versions != after[n].versions for n in news.same_rules)
    assert all(compare(after, after, [Key(n, 1, "p")]).changed for n in after)


def test_a_version_whose_files_still_change_is_not_taken():
    quiet = Quiet(1.0)
    key = Key("m", 2, "m/2")
    for second, size in enumerate([1, 2, 3, 3, 4]):
        assert quiet.update({key: (("f", size, 0, 0),)}, second * 0.9) == set()
    assert quiet.update({key: (("f", 4, 0, 0),)}, 4.7) == {key}
    assert quiet.update({key: (("f", 4, 0, 0),)}, 9) == set()
    assert quiet.update({key: (("f", 5, 0, 0),)}, 10) == set()  # and again
    assert quiet.update({key: (("f", 5, 0, 0),)}, 11) == {key}
    quiet.update({}, 12)
    assert quiet.taken == {}


@given(st.lists(st.tuples(st.floats(0.01, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_nothing_is_taken_before_it_has_been_quiet_for_long_enough(looks):
    quiet = Quiet(1.0)
    key = Key("m", 1, "m")
    now = changed_at = 0.0
    before = None
    for seconds, size in looks:
        now += seconds
        if size != before:
            before, changed_at = size, now
        if key not in quiet.taken:
            taken = quiet.update({key: (("f", size, 0, 0),)}, now)
            assert bool(taken) == (now - changed_at >= 1.0)


def test_new_settings_are_proven_before_they_take_over_and_soft_ones_reopen_nothing(tmp_path):
    (tmp_path / "m.onnx").write_bytes(times(2))
    rules = ModelRules(path=str(tmp_path / "m.onnx"))

    async def main() -> None:
        async with serving({"m": rules}) as catalogue:
            assert await answer(catalogue) == 8
            served = catalogue.resolve(M)
            soft = ModelRules(path=rules.path, timeout=5, keep_alive="1h", labels={"a": 1})
            await catalogue.reload({"m": soft})
            assert catalogue.resolve(ModelRef("m", label="a")) is served
            assert served.options.timeout == 5
            assert catalogue.statuses()[0].keep_seconds == 3600
            await catalogue.reload({"m": ModelRules(path=rules.path, device="gpu")})
            (status,) = catalogue.statuses("m")
            assert "its new settings cannot be used" in status.error
            assert await answer(catalogue) == 8
            assert (status.generation, status.copies) == (1, 1)
            await catalogue.reload({"m": ModelRules(path=rules.path, max_runs=100)})
            assert catalogue.resolve(M) is not served
            assert served.receipt.clean
            assert await answer(catalogue) == 8
            (status,) = catalogue.statuses("m")
            assert (status.error, status.generation, status.copies) == ("", 2, 1)
            (tmp_path / "n.onnx").write_bytes(times(5))
            await catalogue.reload({"n": str(tmp_path / "n.onnx")})
            assert catalogue.names() == ("n",)
            assert await answer(catalogue, ModelRef("n")) == 20

    run(main)


def test_requests_go_on_while_new_settings_are_tried(tmp_path):
    (tmp_path / "m.onnx").write_bytes(times(2))
    path = str(tmp_path / "m.onnx")

    async def main() -> None:
        async with serving({"m": path}) as catalogue:
            count = 0

            async def ask() -> None:
                nonlocal count
                while not changed.done():
                    assert await answer(catalogue) == 8
                    count += 1

            changed = asyncio.ensure_future(
                catalogue.reload({"m": ModelRules(path=path, max_runs=10**6)})
            )
            await asyncio.gather(changed, ask(), ask())
            assert count > 0

    run(main)


# Warm-up


def record(folder: Path, *requests: tuple[str, np.ndarray]) -> None:
    """What TensorFlow Serving would record."""
    (folder / "assets.extra").mkdir(exist_ok=True)
    with open(folder / RECORDED, "wb") as file:
        for signature, array in requests:
            log = TFSERVING.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            proto = TENSORS.TensorProto()
            proto.dtype = 1
            for size in array.shape:
                proto.tensor_shape.dim.add().size = size
            proto.tensor_content = array.tobytes()
            request.inputs["x"].ParseFromString(proto.SerializeToString())
            content = log.SerializeToString()
            file.write(struct.pack("<Q", len(content)) + bytes(4) + content + bytes(4))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, zygote: None) -> Path:
    path = tmp_path_factory.mktemp("saved") / "scaler"
    sojourn.isolated(save_signatures)(str(path))
    return path


def test_a_version_is_run_with_what_was_recorded_beside_it(saved, tmp_path):
    model = tmp_path / "m"
    shutil.copytree(saved, model)
    rows = np.ones((3, 2), np.float32)
    record(model, ("serving_default", rows), ("total", rows), ("", rows))
    eager = ModelRules(path=str(model), load="eager")

    async def main() -> None:
        async with serving({"m": eager}) as catalogue:
            assert (await catalogue.unload("m"))[0].runs == 3
            record(model, ("serving_default", np.ones((3, 7), np.float32)))
            with pytest.raises(Exception, match=r"\[\?, 2\]"):
                await catalogue.load("m")
            assert catalogue.statuses("m")[0].state is VersionState.END
            record(model, ("nothing", rows))
            with pytest.raises(ModelError, match="no signature 'nothing'"):
                await catalogue.load("m")
            shutil.rmtree(model / "assets.extra")
            await catalogue.load("m")
            assert (await catalogue.unload("m"))[0].runs == 1  # zeros

    run(main)


def test_a_warm_up_leaves_no_trace_in_the_model(saved):
    rules = ModelRules(path=str(saved), load="eager", signature="count")

    async def main() -> None:
        async with serving({"m": rules}) as catalogue:
            async with catalogue.session(catalogue.resolve(M)) as session:
                assert await session.arun("runs", {"by": 1.0}) == 1
            receipts = await catalogue.unload("m")
            assert receipts[0].runs == 2

    run(main)


def test_versions_with_a_label_stay_in_service(tmp_path):
    for number in (1, 2, 3):
        write_version(tmp_path / "m", number)
    rules = ModelRules(path=str(tmp_path / "m"), labels={"stable": 1, "next": 9})

    async def main() -> None:
        async with serving({"m": rules}) as catalogue:
            assert list(states(catalogue)) == [1, 3]
            assert await answer(catalogue, ModelRef("m", label="stable")) == 4
            with pytest.raises(Refused, match=r"not found for request: Label\(m, next\)"):
                catalogue.resolve(ModelRef("m", label="next"))

    run(main)


def test_what_was_deleted_says_so_and_what_never_served_is_forgotten_with_it(tmp_path):
    write_version(tmp_path / "m", 1)
    write_version(tmp_path / "m", 2)

    async def main() -> None:
        async with serving({"m": str(tmp_path / "m")}, watch_seconds=0.05) as catalogue:
            assert await answer(catalogue) == 8
            write_version(tmp_path / "m", 3, b"nonsense")
            await until(lambda: states(catalogue).get(3) is VersionState.END)
            shutil.rmtree(tmp_path / "m" / "3")
            await until(lambda: 3 not in states(catalogue))
            shutil.rmtree(tmp_path / "m" / "2")
            await until(lambda: states(catalogue)[2] is VersionState.END)
            assert await answer(catalogue) == 4
            with pytest.raises(Refused, match=r"Specific\(m, 2\); its files are gone"):
                catalogue.resolve(ModelRef("m", 2))
            await catalogue.unload("m")
            with pytest.raises(Refused, match="it was unloaded by request"):
                catalogue.resolve(M)

    run(main)


def test_a_version_that_vanishes_before_it_can_be_loaded_is_not_found(tmp_path):
    write_version(tmp_path / "m", 1)
    write_version(tmp_path / "m", 2)

    async def main() -> None:
        async with serving({"m": str(tmp_path / "m")}) as catalogue:
            async with catalogue._models["m"].lock:  # another is being loaded
                loading = asyncio.ensure_future(catalogue.load("m", version=1))
                await asyncio.sleep(0)
                shutil.rmtree(tmp_path / "m" / "1")
            with pytest.raises(Refused, match=r"Specific\(m, 1\)"):
                await loading
            await catalogue.unload("m")
            with pytest.raises(Refused, match=r"Specific\(m, 1\)"):
                await catalogue.load("m", version=1)
            with pytest.raises(Refused, match="unloaded by request"):
                catalogue.resolve(M)

    run(main)


def test_a_label_moves_when_the_version_it_is_meant_for_can_serve(tmp_path):
    write_version(tmp_path / "m", 1)
    write_version(tmp_path / "m", 2)
    write_version(tmp_path / "m", 3, b"nonsense")
    stable = ModelRef("m", label="stable")

    def rules(version: int) -> ModelRules:
        path = str(tmp_path / "m")
        return ModelRules(path=path, versions=[version], labels={"stable": version})

    async def main() -> None:
        async with serving({"m": rules(1)}) as catalogue:
            moving = asyncio.ensure_future(catalogue.reload({"m": rules(2)}))
            while not moving.done():
                assert await answer(catalogue, stable) in (4, 8)
            assert await answer(catalogue, stable) == 8
            await catalogue.reload({"m": rules(3)})
            assert await answer(catalogue, stable) == 8
            assert {s.version: s.labels for s in catalogue.statuses("m")}[2] == ("stable",)
            await catalogue.unload("m", version=2)
            with pytest.raises(Refused, match="version 3 cannot be loaded"):
                catalogue.resolve(stable)

    run(main)


def test_a_server_starts_although_a_model_is_missing_and_says_so(tmp_path):
    (tmp_path / "m.onnx").write_bytes(times(2))
    entries = {"m": str(tmp_path / "m.onnx"), "gone": str(tmp_path / "gone"), "wrong": "x" * 5000}

    async def main() -> None:
        async with serving(entries) as catalogue:
            assert await answer(catalogue) == 8
            for name, words in (("gone", "there is nothing at"), ("wrong", "name too long")):
                (status,) = catalogue.statuses(name)
                assert status.state is VersionState.END
                assert words in status.error
                with pytest.raises(Refused, match="cannot be loaded"):
                    catalogue.resolve(ModelRef(name))

    run(main)


def test_a_model_that_takes_for_ever_to_load_holds_up_no_other(tmp_path, monkeypatch):
    for name in ("m", "stuck"):
        write_version(tmp_path / name, 1)
    load, stuck = Catalogue._load, asyncio.Event()

    async def load_or_not(catalogue: Catalogue, served: Any) -> None:
        if served.name == "stuck":
            stuck.set()
            await asyncio.Event().wait()
        await load(catalogue, served)

    monkeypatch.setattr(Catalogue, "_load", load_or_not)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            write_version(tmp_path / "stuck", 2)
            await asyncio.wait_for(stuck.wait(), 60)
            write_version(tmp_path / "m", 2)
            await until(lambda: states(catalogue).get(2) is VersionState.AVAILABLE)
            assert await answer(catalogue) == 8
            shutil.rmtree(tmp_path / "m")
            await until(lambda: "m" not in catalogue.names())
            assert await answer(catalogue, ModelRef("stuck")) == 4  # the old one serves on

    run(main)


async def given_up(operation: Coroutine[Any, Any, object], when: Callable[[], object]) -> None:
    """Have a client ask for this, who leaves then."""
    client = asyncio.create_task(operation)
    await until(when)
    client.cancel()
    await asyncio.wait([client])
    assert client.cancelled()


def test_an_unload_whose_client_has_left_comes_to_its_end(tmp_path):
    async def main() -> None:
        async with serving({"m": str(write_version(tmp_path / "m", 1))}) as catalogue:
            handler = Handler(catalogue)
            await handler.load("m")
            served = catalogue.resolve(M)
            served.enter()
            await given_up(
                handler.unload("m"), lambda: states(catalogue)[1] is VersionState.UNLOADING
            )
            served.leave()
            await until(lambda: states(catalogue)[1] is VersionState.END)
            (status,) = catalogue.statuses("m")
            assert status.receipt.clean
            await handler.load("m")
            assert await answer(catalogue) == 4
            await handler.close()

    run(main)


def of_all(catalogue: Catalogue) -> set[VersionState]:
    return {status.state for status in catalogue.statuses()}


@pytest.mark.parametrize("way", ["load", "reload", "serve_only"])
def test_a_load_whose_client_has_left_comes_to_its_end(tmp_path, monkeypatch, way):
    paths = {name: str(write_version(tmp_path / name, 1)) for name in ("m", "other")}
    rules = {name: ModelRules(path=path, load="eager") for name, path in paths.items()}
    load, go_on = Catalogue._load, asyncio.Event()

    async def load_later(catalogue: Catalogue, served: Any) -> None:
        await go_on.wait()
        await load(catalogue, served)

    async def main() -> None:
        async with serving({} if way == "reload" else paths) as catalogue:
            handler = Handler(catalogue)
            if way != "reload":
                await handler.unload("m")
            monkeypatch.setattr(Catalogue, "_load", load_later)
            asked = {
                "load": lambda: handler.load("m"),
                "reload": lambda: handler.reload(rules),
                "serve_only": lambda: handler.serve_only(catalogue.rules()),
            }[way]()
            await given_up(asked, lambda: VersionState.LOADING in of_all(catalogue))
            go_on.set()
            await until(lambda: of_all(catalogue) == {VersionState.AVAILABLE})
            assert await answer(catalogue) == 4
            assert await answer(catalogue, ModelRef("other")) == 4
            await handler.close()

    run(main)


def test_a_configuration_is_taken_over_whole_if_its_client_has_left():
    steps: list[str] = []
    go_on = asyncio.Event()

    async def read_again() -> list[str]:
        steps.append("read")
        await go_on.wait()
        steps.append("taken over")
        return []

    async def main() -> None:
        async with serving() as catalogue:
            page = Operating(Handler(catalogue), Operation(reload=read_again)).page
            assert page is not None
            assert page.reload is not None
            await given_up(page.reload(), lambda: steps)  # type: ignore[arg-type]
            go_on.set()
            await until(lambda: steps == ["read", "taken over"])

    run(main)


def test_a_handler_that_is_closed_calls_off_what_is_being_loaded(tmp_path, monkeypatch):
    began = asyncio.Event()

    async def load_never(catalogue: Catalogue, served: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Catalogue, "_load", load_never)

    async def main() -> None:
        async with serving({"m": str(write_version(tmp_path / "m", 1))}) as catalogue:
            handler = Handler(catalogue)
            client = asyncio.create_task(handler.load("m"))
            await began.wait()
            await asyncio.wait_for(handler.close(), 10)
            with pytest.raises(asyncio.CancelledError):
                await client

    run(main)


def test_a_model_that_vanishes_and_comes_back_while_a_request_has_it_is_served(tmp_path):
    write_version(tmp_path / "m", 1)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            served = catalogue.resolve(M)
            served.enter()
            os.rename(tmp_path / "m", tmp_path / ".m")
            await until(lambda: states(catalogue)[1] is VersionState.UNLOADING)
            os.rename(tmp_path / ".m", tmp_path / "m")
            await asyncio.sleep(0.3)  # it is seen to be there again
            served.leave()
            await until(lambda: states(catalogue)[1] is VersionState.AVAILABLE)
            assert await answer(catalogue) == 4

    run(main)


def test_a_version_that_comes_while_the_server_starts_is_not_overlooked(tmp_path, monkeypatch):
    write_version(tmp_path / "m", 1)
    load = Catalogue._load

    async def load_slowly(catalogue: Catalogue, served: Any) -> None:
        if served.version == 1:
            write_version(tmp_path / "m", 2)
        await load(catalogue, served)

    monkeypatch.setattr(Catalogue, "_load", load_slowly)

    async def main() -> None:
        async with serving(**watched(tmp_path, load="eager")) as catalogue:
            await until(lambda: states(catalogue).get(2) is VersionState.AVAILABLE)
            assert await answer(catalogue) == 8

    run(main)


def test_versions_that_left_long_ago_are_forgotten_and_what_was_counted_of_them_too(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(lives, "KEPT_VERSIONS", 1)
    write_version(tmp_path / "m", 1)

    async def main() -> None:
        async with serving({"m": str(tmp_path / "m")}) as catalogue:
            handler = Handler(catalogue)
            page = Page(handler)
            for number in (2, 3, 4):
                await handler.infer(Inference(M, {"x": X}))
                assert page._done()["m"].requests == 1
                shutil.rmtree(tmp_path / f"m/{number - 1}")
                write_version(tmp_path / "m", number)
                await catalogue.load("m")
            assert states(catalogue) == {3: VersionState.END, 4: VersionState.AVAILABLE}
            await handler.infer(Inference(M, {"x": X}))
            assert [one.version for one in handler.statistics()] == [3, 4]
            assert page._done()["m"].requests == 1  # and not what is left of all of them
            await handler.close()

    run(main)


def test_evictions_that_wait_for_busy_models_hold_up_nothing_else(tmp_path, monkeypatch):
    write_version(tmp_path / "m", 1)
    is_free = threading.Event()

    async def main() -> None:
        async with serving({"m": str(tmp_path / "m")}) as catalogue:
            handler = Handler(catalogue)
            monkeypatch.setattr(catalogue.pool, "evict", lambda *_, **__: is_free.wait(60))
            waiting = [asyncio.create_task(handler.evict("m")) for _ in range(40)]
            try:
                await asyncio.sleep(0)  # they have begun
                assert await asyncio.wait_for(asyncio.to_thread(int), 20) == 0
            finally:
                is_free.set()
            assert await asyncio.gather(*waiting) == [True] * 40

    run(main)


def test_a_model_that_is_replaced_again_and_again_has_two_names_in_the_pool(tmp_path):
    for name in ("m", "m#2"):
        (tmp_path / f"{name}.onnx").write_bytes(times(2))
    other = ModelRules(path=str(tmp_path / "m#2.onnx"))
    path = str(tmp_path / "m.onnx")

    async def main() -> None:
        async with serving({"m": path, "m#2": other}) as catalogue:
            names = []
            for runs in range(1, 5):
                rules = ModelRules(path=path, max_runs=100 * runs)
                await catalogue.reload({"m": rules, "m#2": other})
                assert await answer(catalogue) == 8
                assert await answer(catalogue, ModelRef("m#2")) == 8
                names.append(catalogue.resolve(M).pool_name)
            assert names == ["m#3", "m", "m#3", "m"]
            assert (len(catalogue._by_key), catalogue.second_names) == (3, {"m#3"})

    run(main)


@pytest.mark.parametrize("cut", [1, 13, -1])
def test_records_that_end_too_early_are_refused(tmp_path, cut):
    record(tmp_path, ("a", X), ("b", X))
    content = (tmp_path / RECORDED).read_bytes()
    assert len(list(read_records(str(tmp_path / RECORDED)))) == 2
    (tmp_path / RECORDED).write_bytes(content[:cut])
    with pytest.raises(ModelError, match="middle of a record"):
        list(read_records(str(tmp_path / RECORDED)))


def test_whatever_is_done_to_a_model_every_request_is_answered_and_nothing_hangs(tmp_path):
    """Versions come and go, somebody loads and unloads, settings change, workers die."""
    write_version(tmp_path / "m", 1)
    draw = random.Random(15)

    async def main() -> None:
        async with serving(**watched(tmp_path)) as catalogue:
            handler = Handler(catalogue)
            outcomes: Counter[str] = Counter()
            is_over = False

            async def ask() -> None:
                while not is_over:
                    keep = draw.choice([None, None, None, 0, -1])
                    inference = Inference(M, {"x": X}, keep_alive=keep)
                    try:
                        got = await asyncio.wait_for(handler.infer(inference), 30)
                        assert got.outputs["y"][0, 0] == 4 * got.version
                        outcomes["answered"] += 1
                    except Refused as refused:
                        outcomes[refused.status.name] += 1
                        await asyncio.sleep(0.01)

            async def kill() -> None:
                for copy in catalogue.pool._driver.residents.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(copy.stay.pid, signal.SIGKILL)

            async def change() -> None:
                rules = ModelRules(path=str(tmp_path / "m"), max_runs=draw.randint(1000, 2000))
                await catalogue.reload({"m": rules})

            newest = 1

            async def bring() -> None:
                nonlocal newest
                newest += 1
                write_version(tmp_path / "m", newest)

            todo = [kill, change, bring, lambda: catalogue.unload("m"), lambda: catalogue.load("m")]
            asking = [asyncio.create_task(ask()) for _ in range(6)]
            for _ in range(10):
                together = [draw.choice(todo)() for _ in range(draw.randint(1, 3))]
                done = await asyncio.wait_for(asyncio.gather(*together, return_exceptions=True), 60)
                for error in done:
                    assert not isinstance(error, Exception) or refusal(error).status in (
                        Status.UNAVAILABLE,
                        Status.NOT_FOUND,
                    ), repr(error)
                await asyncio.sleep(draw.random() / 10)
            await catalogue.load("m")
            await until(lambda: catalogue.resolve(M).version == newest)
            is_over = True
            await asyncio.wait_for(asyncio.gather(*asking), 60)
            assert (await handler.infer(Inference(M, {"x": X}))).version == newest
            assert outcomes["answered"] > 10
            assert outcomes.keys() <= {"answered", "UNAVAILABLE", "NOT_FOUND"}
            await handler.close()

    run(main)
