"""State: saved durably, restored whole, reset, and brought back after a crash."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import models
import sojourn
from faults.tools import Background, stopped, wait_until
from sojourn.session import beginning, checkpoints, folders, keeping
from sojourn.session.steps import Step
from sojourn.transport.lane import BEGUN
from sojourn.transport.messages import SEQUENCE

pytestmark = pytest.mark.usefixtures("zygote")

DTYPES = "float16 float32 float64 bfloat16 int8 int32 int64 uint8 bool complex64".split()


def everything() -> Any:
    """Variables of every kind, optimizer slots, a table and a generator."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    w = v1.get_variable("w", [3, 2])
    loss = tf.reduce_sum(tf.matmul(x, w) ** 2)
    train = v1.train.AdamOptimizer(0.1).minimize(loss)
    reference = v1.Variable([1, 2, 3], name="reference", use_resource=False)
    text = v1.get_variable("text", initializer=tf.constant(["one", "two"]))
    changes = [v1.assign_add(reference, [1, 1, 1]).op, v1.assign(text, [b"\x00", "drei"])]
    dtypes = "float16 float32 float64 bfloat16 int8 int32 int64 uint8 bool complex64".split()
    several = {}
    for name in dtypes:
        value = tf.cast(tf.constant([0, 1, 2]), name)
        several[name] = v1.get_variable(f"of_{name}", initializer=value)
        changes.append(v1.assign(several[name], tf.reverse(value, [0])))
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1, name="table")
    changes.append(table.insert(tf.constant(["k"]), tf.constant(np.array([7]))))
    draws = tf.random.Generator.from_seed(1)
    outputs = {
        "w": w,
        "reference": reference,
        "text": text,
        "found": table.lookup(tf.constant(["k"])),
        "draw": draws.normal([2]),
        **several,
    }
    return {"x": x}, {**outputs, "train": train, "change": tf.group(*changes)}


STATE = ["w", "reference", "text", "found", *DTYPES, "w/Adam:0", "w/Adam_1:0"]
ONE = {"x": np.ones((1, 3))}


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def session(zygote: None) -> Iterator[sojourn.Session]:
    with sojourn.open(everything, name="everything", seed=1) as opened:
        opened.run(["train", "draw"], ONE)
        opened.run(STATE)
        yield opened


@pytest.fixture
def saved(session: sojourn.Session, tmp_path: Path) -> Path:
    session.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_everything_comes_back(session, tmp_path):
    session.reset()
    session.run(["change", "train"], ONE)
    before = session.run(STATE)
    session.save(tmp_path / "step-1")
    drawn = session.run("draw")
    session.run("train", ONE)
    session.reset()
    assert not same(session.run(STATE), before)
    session.restore(tmp_path / "step-1")
    assert same(session.run(STATE), before)
    np.testing.assert_array_equal(session.run("draw"), drawn)  # the generator goes on from there
    assert os.listdir(tmp_path) == ["step-1"]


def test_a_step_that_a_handler_runs_in_the_midst_of_a_save_does_not_make_it_fail(
    tmp_path, monkeypatch
):
    write = checkpoints.write

    def write_interrupted(*arguments):  # by a signal, whose handler runs a step
        session.run("value")
        write(*arguments)

    monkeypatch.setattr(checkpoints, "write", write_interrupted)
    with sojourn.open(models.counter) as session:
        session.save(tmp_path / "saved")
        session.restore(tmp_path / "saved")


def test_reset_gives_the_values_of_the_start(session):
    session.reset()
    start = session.run(STATE)
    assert start[3].tolist() == [-1]  # nothing in the table
    session.run(["change", "train"], ONE)
    assert not same(session.run(STATE), start)
    session.reset()
    assert same(session.run(STATE), start)


def test_tensorflow_reads_what_was_saved(session, saved):
    @sojourn.isolated
    def read(path: str) -> Any:
        import tensorflow as tf

        reader = tf.train.load_checkpoint(path)
        return reader.get_tensor("reference"), reader.has_tensor("w/Adam")

    for path in (saved, saved / "state"):
        reference, has_slot = read(str(path))
        np.testing.assert_array_equal(reference, session.run("reference"))
        assert has_slot


def test_a_plain_checkpoint_of_tensorflows_is_restored_by_its_prefix(session, saved, tmp_path):
    before = session.run(STATE)
    for part in saved.glob("state.*"):
        shutil.copy(part, tmp_path / part.name.replace("state", "model.ckpt-5"))
    session.run("train", ONE)
    session.restore(tmp_path / "model.ckpt-5")
    assert same(session.run(STATE), before)


def test_the_manifest_has_the_checksum_of_every_file(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    assert sorted(manifest["files"]) == sorted(set(os.listdir(saved)) - {"manifest.json"})
    assert "w/Adam" in manifest["variables"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lead(path: Path, elsewhere: str) -> None:
    path.unlink()
    path.symlink_to(elsewhere)


def name_in_manifest(path: Path, name: str) -> None:
    manifest = msgspec.json.decode((path / "manifest.json").read_bytes(), type=checkpoints.Manifest)
    files = {name: checkpoints.FileFacts(1, "")}
    hostile = msgspec.structs.replace(manifest, files=files).sealed()
    (path / "manifest.json").write_bytes(msgspec.json.encode(hostile))


DATA = "state.data-00000-of-00001"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda p: os.truncate(p / DATA, 20), "state.data.* is truncated: 20 of"),
        (lambda p: flip(p / DATA), "state.data.* is damaged: its checksum differs"),
        (lambda p: flip(p / "state.index"), "state.index is damaged: its checksum differs"),
        (lambda p: (p / DATA).unlink(), "a part is missing: state.data"),
        (lambda p: (p / "manifest.json").unlink(), "a part is missing: manifest.json"),
        (lambda p: flip(p / "manifest.json"), "manifest.json is damaged"),
        (lambda p: os.truncate(p / "manifest.json", 9), "manifest.json is damaged"),
        (lambda p: shutil.rmtree(p), "there is nothing there"),
        (lambda p: os.truncate(p / "manifest.json", 2**36), "manifest.json is damaged: it has 64"),
        (lambda p: os.truncate(p / DATA, 2**36), "state.data.* is damaged"),
        (lambda p: lead(p / "manifest.json", "/dev/zero"), "manifest.json is not a file"),
        (lambda p: lead(p / "state.index", "/dev/zero"), "state.index is not a file"),
        (lambda p: name_in_manifest(p, "state.\0"), "none of a state: 'state"),
        (lambda p: name_in_manifest(p, "../state.index"), "none of a state: '../state"),
        (lambda p: name_in_manifest(p, "core"), "none of a state: 'core"),
    ],
)
def test_damage_is_named_and_harms_nothing(session, saved, damage, told):
    session.run("train", ONE)
    before = session.run(STATE)
    damage(saved)
    with pytest.raises(sojourn.CheckpointError, match=told):
        session.restore(saved)
    assert same(session.run(STATE), before)


def test_a_state_whose_files_are_links_is_restored(session, saved, tmp_path):
    before = session.run(STATE)
    (tmp_path / "blobs").mkdir()
    for part in list(saved.iterdir()):
        part.rename(tmp_path / "blobs" / part.name)
        part.symlink_to(tmp_path / "blobs" / part.name)
    session.run("train", ONE)
    session.restore(saved)
    assert same(session.run(STATE), before)


def test_the_state_of_another_model_is_refused(saved):
    def other() -> Any:
        import tensorflow as tf

        return {}, {"v": tf.compat.v1.get_variable("v", [2])}

    with sojourn.open(other) as session:
        before = session.run("v")
        with pytest.raises(sojourn.CheckpointError, match="it has no value for v; it has"):
            session.restore(saved)
        np.testing.assert_array_equal(session.run("v"), before)


def test_another_shape_is_refused_before_anything_changes(tmp_path):
    def shaped(size: int) -> Any:
        def build() -> Any:
            import tensorflow as tf

            v1 = tf.compat.v1
            a = v1.get_variable("a", [2], initializer=v1.ones_initializer())
            return {}, {"a": a, "b": v1.get_variable("b", [size])}

        return build

    with sojourn.open(shaped(3)) as session:
        session.save(tmp_path / "three")
    with sojourn.open(shaped(4)) as session:
        with pytest.raises(sojourn.CheckpointError, match=r"b is float32\[3\] in it, and float32"):
            session.restore(tmp_path / "three")
        assert session.run("a").tolist() == [1, 1]


def test_a_table_that_refuses_its_values_leaves_every_variable_as_it_was(tmp_path):
    def wide(values: int, keys: int) -> Any:
        def build() -> Any:
            import tensorflow as tf

            v1 = tf.compat.v1
            x = v1.placeholder(tf.float32, [], name="x")
            weights = [v1.get_variable(f"w{i}", initializer=tf.zeros([1000])) for i in range(32)]
            table = tf.lookup.experimental.MutableHashTable(
                tf.string, tf.float32, tf.zeros([values]), name="table"
            )
            # Keys of a width that the graph does not tell: only the table itself can refuse them.
            empty = v1.placeholder_with_default(tf.zeros([keys], tf.int64), None)
            dense = tf.raw_ops.MutableDenseHashTableV2(
                empty_key=empty,
                deleted_key=empty - 1,
                value_dtype=tf.float32,
                initial_num_buckets=8,
            )
            key = tf.ones([1, keys], tf.int64)
            insert = tf.raw_ops.LookupTableInsertV2(table_handle=dense, keys=key, values=x[None])
            found = tf.raw_ops.LookupTableFindV2(
                table_handle=dense, keys=key, default_value=tf.constant(-1.0)
            )
            changes = [
                table.insert(tf.constant(["k"]), tf.zeros([1, values]) + x),
                insert,
                *[v1.assign(w, w * 0 + x) for w in weights],
            ]
            several = [*[w[0] for w in weights], table.lookup(tf.constant("k"))[0], found[0]]
            return {"x": x}, {"state": tf.stack(several), "change": tf.group(*changes)}

        return build

    with sojourn.open(wide(2, 2)) as session:
        session.run("change", {"x": 5})
        session.save(tmp_path / "two")
        session.run("change", {"x": 6})
        session.restore(tmp_path / "two")
        assert set(session.run("state")) == {5}
    for values, keys, told in ((3, 2, r"table-values is float32\[1, 2\]"), (2, 3, "key shape")):
        with sojourn.open(wide(values, keys)) as session:
            session.run("change", {"x": 7})
            with pytest.raises(sojourn.CheckpointError, match=told):
                session.restore(tmp_path / "two")
            assert set(session.run("state")[:32]) == {7}


def test_a_save_replaces_only_saved_state(session, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    for path in ("file", "folder"):
        with pytest.raises(sojourn.CheckpointError, match="not replaced by saved state"):
            session.save(tmp_path / path)
    assert (tmp_path / "folder" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.ENOSPC, "the disk is full: .* free"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "not permitted"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
def test_trouble_with_the_disk_is_named_and_harms_nothing(
    session, saved, monkeypatch, code, told, call
):
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(code, os.strerror(code), "somewhere")

    before = session.run(STATE)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(sojourn.CheckpointError, match=told):
            session.save(saved.parent / "new")
    assert os.listdir(saved.parent) == ["saved"]
    session.restore(saved)
    assert same(session.run(STATE), before)


def test_a_disk_that_fills_up_while_tensorflow_writes_is_named(tmp_path):
    def produce(prefix: bytes) -> checkpoints.Written:
        Path(os.fsdecode(prefix) + ".data").write_bytes(b"half")
        raise sojourn.CheckpointError("TensorFlow could not write it: No space left on device")

    with pytest.raises(sojourn.CheckpointError, match="the disk is full"):
        checkpoints.write(str(tmp_path / "full"), produce, "test")
    assert os.listdir(tmp_path) == []


def test_a_file_system_that_cannot_exchange_folders_works_too(session, saved, monkeypatch):
    monkeypatch.setattr(folders, "_exchange", lambda above, one, other: False)
    session.run("train", ONE)
    before = session.run(STATE)
    session.save(saved)
    session.run("train", ONE)
    session.restore(saved)
    assert same(session.run(STATE), before)
    assert os.listdir(saved.parent) == ["saved"]


def beside(path: Path, role: str) -> Path:
    """What a save of this path that was killed leaves."""
    return path.parent / folders.hidden(path.name, role)


def test_what_a_killed_save_leaves_is_gone_after_the_next(session, saved):
    left, replaced = beside(saved, "saving"), beside(saved, "replaced")
    left.mkdir()
    (left / DATA).write_bytes(b"half")
    replaced.mkdir()
    session.restore(saved)
    assert os.listdir(saved.parent) == ["saved"]
    # Killed between the two renames where folders cannot be exchanged:
    os.rename(saved, replaced)
    session.restore(saved)
    assert os.listdir(saved.parent) == ["saved"]


def test_steps_wait_while_it_is_saved(session, tmp_path, monkeypatch):
    inside, go_on, seen = threading.Event(), threading.Event(), []
    fill = checkpoints._fill

    def slowly(*args: Any) -> None:
        inside.set()
        go_on.wait(10)
        seen.append(session._stay.lifecycle.under_way)
        fill(*args)

    monkeypatch.setattr(checkpoints, "_fill", slowly)
    saver = threading.Thread(target=session.save, args=(tmp_path / "saved",))
    runner = threading.Thread(target=session.run, args=("train", ONE))
    saver.start()
    inside.wait(10)
    runner.start()
    go_on.set()
    saver.join()
    runner.join()
    assert seen == [1]


# -- steps that still run --------------------------------------------------------------------

LONG, FOR_EVER = 300_000, 2**31 - 1  # what to count to


def both_or_none() -> Any:
    """A step adds 1 to `a`, counts to `n`, adds 1 to `b`: between two steps they are the same."""
    import tensorflow as tf

    v1 = tf.compat.v1
    n = v1.placeholder(tf.int32, [], name="n")
    a = v1.get_variable("a", [], initializer=v1.zeros_initializer(), use_resource=True)
    b = v1.get_variable("b", [], initializer=v1.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([v1.assign_add(a, 1.0)]):
        zero, most = tf.constant(0), tf.identity(n)
    [total] = tf.while_loop(lambda i: i < most, lambda i: [i + 1], [zero], parallel_iterations=1)
    with tf.control_dependencies([total]):
        done = tf.identity(v1.assign_add(b, 1.0))
    return {"n": n}, {"done": done, "a": a.read_value(), "b": b.read_value()}


def both(session: sojourn.Session, path: Path | None = None) -> list[float]:
    if path is not None:
        session.restore(path)
    return [float(value) for value in session.run(["a", "b"])]


@pytest.fixture
def stepping() -> Iterator[sojourn.Session]:
    with sojourn.open(both_or_none) as session:
        session.run("done", {"n": 1})
        yield session


def give_up_a_step(session: sojourn.Session, n: int = LONG) -> None:
    with pytest.raises(sojourn.StepTimeout, match="outcome is unknown"):
        session.run("done", {"n": n}, timeout=0.05)


@pytest.mark.quick
def test_a_save_waits_for_a_step_that_was_given_up(stepping, tmp_path):
    give_up_a_step(stepping)
    stepping.save(tmp_path / "saved")
    assert both(stepping, tmp_path / "saved") == [2, 2]


def test_a_save_after_a_ctrl_c_in_the_middle_of_sending_does_not_wait_for_ever(
    stepping, tmp_path, monkeypatch
):
    def press(bell: int) -> None:
        raise KeyboardInterrupt

    time.sleep(0.05)  # until the worker looks for the next step no longer
    with monkeypatch.context() as pressed:
        pressed.setattr("sojourn.transport.lane.ring", press)
        with pytest.raises(KeyboardInterrupt):
            stepping.run("done", {"n": 1})
    stepping.save(tmp_path / "saved")
    assert both(stepping, tmp_path / "saved") == [2, 2]


def test_a_parked_state_has_no_half_of_a_step_that_was_given_up(stepping, tmp_path):
    give_up_a_step(stepping)
    stepping._stay.keeping.park(str(tmp_path / "parked"))
    with sojourn.open(both_or_none) as successor:
        assert both(successor, tmp_path / "parked") == [2, 2]


@pytest.mark.parametrize("way", ["restore", "reset"])
def test_a_step_that_was_given_up_changes_nothing_after_a_restore_or_reset(stepping, tmp_path, way):
    stepping.save(tmp_path / "saved")
    give_up_a_step(stepping)
    if way == "restore":
        stepping.restore(tmp_path / "saved")
    else:
        stepping.reset()
    lanes = stepping._stay.backend.worker._lanes._all
    wait_until(lambda: all(lane.has_answer for lane in lanes))
    assert both(stepping) == ([1, 1] if way == "restore" else [0, 0])


@pytest.mark.parametrize("isolation", ["process", "inline"])
@pytest.mark.parametrize("way", ["awaited", "cancelled"])
def test_a_save_on_the_loops_own_thread_waits_for_its_steps(isolation, way, tmp_path):
    async def main(session: sojourn.Session) -> None:
        await session.arun("done", {"n": 1})
        step = asyncio.ensure_future(session.arun("done", {"n": LONG}))
        while float(await session.arun("a")) < 2:
            await asyncio.sleep(0)
        if way == "cancelled":
            step.cancel()
            await asyncio.wait([step])
        session.save(tmp_path / "saved")
        if way == "awaited":
            assert await asyncio.wait_for(step, 20) == 2

    with sojourn.open(both_or_none, isolation=isolation) as session:
        asyncio.run(main(session))
        assert both(session, tmp_path / "saved") == [2, 2]


def test_two_event_loops_that_save_on_their_own_threads_do_not_wait_for_each_other(
    stepping, tmp_path
):
    both_are_inside = threading.Barrier(2)

    async def main(path: Path) -> None:
        step = asyncio.ensure_future(stepping.arun("done", {"n": 1}))
        await asyncio.sleep(0)
        both_are_inside.wait(20)
        stepping.save(path)
        await step

    paths = [tmp_path / "one", tmp_path / "two"]
    for saving in [Background(lambda path=path: asyncio.run(main(path))) for path in paths]:
        saving.result(20)
    assert both(stepping) == [3, 3]
    for path in paths:
        a, b = both(stepping, path)
        assert a == b


def test_a_step_that_does_not_end_is_named_and_nothing_changes(stepping, tmp_path, monkeypatch):
    stepping.save(tmp_path / "saved")
    give_up_a_step(stepping, FOR_EVER)
    monkeypatch.setattr(keeping, "_SETTLE_SECONDS", 0.1)
    for work in (
        lambda: stepping.save(tmp_path / "saved"),
        lambda: stepping.restore(tmp_path / "saved"),
        stepping.reset,
    ):
        with pytest.raises(sojourn.CheckpointError, match=r"still runs after 0.1 s"):
            work()
    assert both(stepping) == [2, 1]
    assert stepping.close().clean


def test_a_worker_that_dies_while_a_save_waits_for_its_step_is_told_of(stepping, tmp_path):
    give_up_a_step(stepping, FOR_EVER)
    saving = Background(stepping.save, tmp_path / "saved")
    wait_until(lambda: stepping._stay.lifecycle._alone)
    os.kill(stepping.pid, signal.SIGKILL)
    with pytest.raises(sojourn.SessionBroken, match="it was being saved"):
        saving.result(20)
    assert not (tmp_path / "saved").exists()


def test_a_plain_function_has_no_state_to_save(tmp_path):
    with (
        sojourn.open(lambda: lambda a: a) as session,
        pytest.raises(sojourn.CheckpointError, match="nothing to save"),
    ):
        session.save(tmp_path / "nothing")


# -- crashes -----------------------------------------------------------------------------------


def counting() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    count = v1.get_variable("count", [], initializer=v1.zeros_initializer())
    return {}, {"next": v1.assign_add(count, 1.0), "count": count}


def kill_idle(session: sojourn.Session) -> None:
    pid = session.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.quick
def test_a_worker_that_died_is_replaced_with_the_last_acknowledged_state(tmp_path):
    with sojourn.open(counting, restart="from-checkpoint") as session:
        session.run("next")
        session.save(tmp_path / "one")
        session.run("next")
        first = session.pid
        kill_idle(session)
        assert session.run("count") == 1
        assert session.pid != first
        assert session.run("next") == 2
        kill_idle(session)
        assert session.run("next") == 2
        kill_idle(session)
        session.save(tmp_path / "two")  # also what is no step
        assert session.run("count") == 1
    assert session.receipt.clean


def test_a_step_that_was_under_way_as_the_worker_died_is_not_repeated(tmp_path):
    with sojourn.open(models.sleeper, restart="from-checkpoint") as session:
        session.run("output", {"seconds": 0.0})
        running = Background(session.run, "output", {"seconds": 60.0})
        wait_until(lambda: session.state is sojourn.State.RUNNING)
        lanes = session._stay.backend.worker._lanes._all
        wait_until(lambda: any(lane._theirs[BEGUN] == lane._sequence for lane in lanes))
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(sojourn.SessionBroken, match="outcome is unknown"):
            running.result()
        assert session.run("output", {"seconds": 0.0}) == 0.0


@pytest.mark.parametrize("restart", [None, "from-checkpoint"])
def test_a_step_that_the_worker_never_took_has_not_begun(restart):
    with sojourn.open(counting, restart=restart) as session:
        session.run("next")
        [lane] = session._stay.backend.worker._lanes._all
        with stopped(session.pid):
            running = Background(session.run, "next")
            wait_until(lambda: lane._mine[SEQUENCE] != lane._theirs[SEQUENCE])
            os.kill(session.pid, signal.SIGKILL)
        lane = None  # the error that follows refers to this frame
        if restart is not None:
            assert running.result() == 1  # by the next worker, which starts from the beginning
        else:
            with pytest.raises(sojourn.SessionBroken, match=r"SIGKILL.*has not begun"):
                running.result()
    assert session.receipt.runs == (1 if restart is None else 2)  # what has not begun is no run


@pytest.mark.parametrize("use", ["run", "arun", "save"])
def test_a_worker_that_is_back_just_when_a_use_was_refused_is_used(monkeypatch, tmp_path, use):
    with sojourn.open(models.counter, restart="from-checkpoint") as session:
        session.run("value")
        kill_idle(session)
        stay = session._stay
        for name in ("begin_step", "begin_alone"):
            begin = getattr(stay.lifecycle, name)

            def begin_late(step: Step, begin: Any = begin) -> Any:
                try:
                    return begin(step)
                except sojourn.SojournError:
                    monkeypatch.undo()
                    stay.come_back(None)  # as another thread may have done
                    raise

            monkeypatch.setattr(stay.lifecycle, name, begin_late)
        if use == "save":
            session.save(tmp_path / "state")
        elif use == "run":
            with session.lend() as lease:
                assert lease.run("value") == 0
        else:
            assert asyncio.run(session.arun("value")) == 0


def test_a_step_that_takes_long_to_prepare_is_the_same_step_for_the_next_worker(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(beginning, "_PATIENCE_SECONDS", 0.05)

    class Lazy:
        """Data that are fetched when they are needed."""

        def __init__(self) -> None:
            self.is_wanted, self.is_there = threading.Event(), threading.Event()

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            self.is_wanted.set()
            self.is_there.wait(60)
            return np.float32([10]).reshape(())

    amount = Lazy()
    with sojourn.open(models.counter, restart="from-checkpoint") as session:
        session.run("total", {"amount": 1.0})
        session.save(tmp_path / "state")
        running = Background(session.run, "total", {"amount": amount})
        assert amount.is_wanted.wait(60)
        kill_idle(session)
        session.run("store", {"amount": 100.0})  # what the next worker is asked for first
        successor = session.pid
        amount.is_there.set()
        assert running.result() == 110
        assert (session.pid, session.state) == (successor, sojourn.State.READY)
    assert session.receipt.runs == 3


def test_those_who_are_late_to_see_a_worker_die_do_not_break_its_successor(monkeypatch):
    told: list[type[BaseException]] = []
    with sojourn.open(models.sleeper, restart="from-checkpoint") as session:
        stay = session._stay
        session.run("output", {"seconds": 0.0})
        broken_by = stay.broken_by

        def late(*args: Any) -> Exception:
            if threading.current_thread() is not threading.main_thread():
                assert stay.lifecycle.wait_for(frozenset({sojourn.State.OPENING}), 60)
            return broken_by(*args)

        monkeypatch.setattr(stay, "broken_by", late)

        def sleep() -> None:
            try:
                session.run("output", {"seconds": 60.0})
            except sojourn.SojournError as error:
                told.append(type(error))

        thread = threading.Thread(target=sleep)
        thread.start()
        lanes = stay.backend.worker._lanes._all
        wait_until(
            lambda: any(
                lane._theirs[BEGUN] == lane._sequence and not lane.has_answer for lane in lanes
            )
        )
        os.kill(session.pid, signal.SIGKILL)
        assert session.run("output", {"seconds": 0.0}) == 0
        thread.join()
        assert told == [sojourn.SessionBroken]
        assert session.state is sojourn.State.READY
    assert str(session.receipt).startswith("closed")


def test_without_a_save_it_comes_back_as_it_was_opened():
    with sojourn.open(counting, restart="from-checkpoint") as session:
        session.run("next")
        kill_idle(session)
        assert session.run("count") == 0


def test_a_step_that_was_given_up_does_not_hold_up_the_next_worker(tmp_path):
    with sojourn.open(both_or_none, restart="from-checkpoint") as session:
        session.run("done", {"n": 1})
        session.save(tmp_path / "one")
        give_up_a_step(session, FOR_EVER)
        kill_idle(session)
        session.save(tmp_path / "two")
        assert both(session, tmp_path / "two") == [1, 1]


def test_a_state_that_was_damaged_meanwhile_is_not_come_back_with(tmp_path):
    with sojourn.open(counting, restart="from-checkpoint") as session:
        session.save(tmp_path / "one")
        kill_idle(session)
        flip(tmp_path / "one" / DATA)
        with pytest.raises(sojourn.CheckpointError, match="damaged"):
            session.run("count")
        flip(tmp_path / "one" / DATA)
        assert session.run("count") == 0
    assert session.receipt.clean


@pytest.mark.parametrize("moment", ["session.opening", "worker.started", "session.ready"])
def test_a_subscriber_that_hears_of_a_comeback_may_close_the_session(moment):
    with sojourn.open(counting, restart="from-checkpoint") as session:
        kill_idle(session)
        receipts: list[sojourn.Receipt] = []

        def close(event: Any) -> None:
            if event.kind == moment and not receipts:
                receipts.append(session.close())

        unsubscribe = sojourn.events.subscribe(close)
        try:
            with pytest.raises(sojourn.SessionClosed):
                session.run("next")
        finally:
            unsubscribe()
        assert session.state is sojourn.State.CLOSED
        assert receipts == [session.receipt]
    assert receipts[0].clean


def test_a_step_with_a_timeout_does_not_wait_longer_for_a_comeback(tmp_path):
    def slow_the_second_time() -> Any:
        import os
        import time

        if os.path.exists(slow):
            time.sleep(60)
        return counting()

    slow = str(tmp_path / "slow")
    with sojourn.open(slow_the_second_time, restart="from-checkpoint") as session:
        kill_idle(session)
        Path(slow).touch()
        with pytest.raises(sojourn.StepTimeout, match="has not begun"):
            session.run("next", timeout=0.5)
        os.unlink(slow)
        assert session.run("next", timeout=60) == 1
    assert session.receipt.clean


def test_the_receipt_counts_steps_and_nothing_else(tmp_path):
    with sojourn.open(counting) as session:
        session.run("next")
        session.run(["next", "count"])
        session.save(tmp_path / "one")
        session.restore(tmp_path / "one")
        session.reset()
        assert session.placement
        with pytest.raises(sojourn.InputError):
            session.run("nothing of that name")
        with pytest.raises(sojourn.InputError):
            session.run("count", {"count": "not a number"})
    assert session.receipt.runs == 2


def test_a_session_without_restart_stays_broken():
    with sojourn.open(counting) as session:
        os.kill(session.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(sojourn.SessionBroken):
                session.run("next")


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 6, 10, 20])
def test_a_worker_killed_in_the_middle_of_a_save_leaves_the_old_state(
    tmp_path, monkeypatch, milliseconds
):
    with sojourn.open(models.wide_counter, restart="from-checkpoint") as session:
        session.run("store", {"amount": 1.0})
        session.save(tmp_path / "one")
        session.run("store", {"amount": 2.0})
        backend = session._stay.backend
        call = backend.call
        killers, victim = [], session.pid

        def killed(name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "save":
                killers.append(threading.Timer(milliseconds / 1000, os.kill, [victim, 9]))
                killers[0].start()
            return call(name, *args, **kwargs)

        kept = 1.0
        with monkeypatch.context() as patched:
            patched.setattr(backend, "call", killed)
            try:
                session.save(tmp_path / "one")
                kept = 2.0  # it was too late
            except sojourn.SessionBroken as error:
                assert "nothing has changed" in str(error)  # noqa: PT017
        killers[0].join()
        assert os.listdir(tmp_path) == ["one"]
        wait_until(lambda: not os.path.exists(f"/proc/{victim}"))
        assert session.run("value")[0] == kept
        session.restore(tmp_path / "one")
        assert session.run("value")[0] == kept
    assert session.receipt.clean


def test_kills_at_random_moments_lose_nothing_that_was_acknowledged():
    # A share of what benchmarks/save_kills.py does at length.
    soak = Path(__file__).parent.parent / "benchmarks" / "save_kills.py"
    done = subprocess.run(
        [sys.executable, str(soak), "--kills", "15", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(part["kills"] for part in json.loads(done.stdout).values()) == 15


def test_the_code_of_the_page_runs(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent / "docs" / "state.md"
    [block] = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(block, {"session": session})
    assert os.listdir(tmp_path / "ckpt") == ["step-100"]


def test_the_example_saves_restores_and_comes_back(capsys):
    example = Path(__file__).parent.parent / "examples" / "state_save_and_restore.py"
    runpy.run_path(str(example), run_name="__main__")
    shown = capsys.readouterr().out
    assert "restored exactly: True" in shown
    assert "and back: True" in shown
    assert "reset: 0.0" in shown
