"""Isolated generators: lazy, live, and ended however they are left."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sojourn
from clients import run_program
from sojourn.probes import processes

pytestmark = pytest.mark.usefixtures("zygote")


def workers() -> list[int]:
    """The workers that are alive now."""
    return [found.pid for found in processes.of_client(os.getpid()) if not found.is_zygote]


def wait_until_no_worker_is_left() -> None:
    for _ in range(500):
        if not workers():
            return
        time.sleep(0.01)
    raise AssertionError(f"still there: {workers()}")


@sojourn.isolated
def count(limit: int) -> Any:
    try:
        for i in range(limit):
            print("computing", i)
            received = yield i
            if received is not None:
                print("received", received)
    finally:
        print("cleaning up")
    return "all done"


def test_items_are_computed_one_by_one_as_they_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = count(3)
    assert workers() == []  # like any generator, it has not begun
    assert next(stream) == 0
    assert capsys.readouterr().out == "computing 0\n"
    assert len(workers()) == 1
    assert list(stream) == [1, 2]
    assert capsys.readouterr().out == "computing 1\ncomputing 2\ncleaning up\n"
    assert workers() == []
    assert count.receipt is not None
    assert count.receipt.clean
    assert list(stream) == []


def test_the_return_value_and_sent_values_cross(capsys: pytest.CaptureFixture[str]) -> None:
    def delegate() -> Iterator[int]:
        result = yield from count(2)
        assert result == "all done"

    assert list(delegate()) == [0, 1]
    capsys.readouterr()
    with count(5) as stream:
        with pytest.raises(TypeError, match="just-started"):
            stream.send("early")
        next(stream)
        assert stream.send({"lr": 0.1}) == 1
    assert "received {'lr': 0.1}" in capsys.readouterr().out


def test_an_error_can_be_thrown_into_it() -> None:
    @sojourn.isolated
    def careful() -> Iterator[str]:
        try:
            yield "waiting"
        except KeyError as error:
            yield f"caught {error.args[0]}"

    stream = careful()
    next(stream)
    assert stream.throw(KeyError("k")) == "caught k"
    with pytest.raises(RuntimeError, match="unexpected"):
        stream.throw(RuntimeError("unexpected"))
    assert workers() == []
    with pytest.raises(ValueError, match="never begun"):
        careful().throw(ValueError("never begun"))


def test_closing_early_lets_it_clean_up_and_ends_the_worker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = count(100)
    next(stream)
    stream.close()
    assert workers() == []
    assert capsys.readouterr().out.endswith("cleaning up\n")
    assert repr(stream) == "<stream of 'count' | ended>"
    stream.close()
    unused = count(3)
    unused.close()
    assert list(unused) == []


def test_leaving_the_loop_ends_the_worker() -> None:
    for item in count(100):
        if item == 1:
            break
    wait_until_no_worker_is_left()


def test_streams_left_open_at_exit_neither_stay_nor_hang(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sojourn\n"
        "@sojourn.isolated\n"
        "def pids():\n"
        "    while True:\n"
        "        yield os.getpid()\n"
        "kept = pids()\n"
        "print(next(kept))\n"
        "in_a_cycle = [pids()]\n"
        "in_a_cycle.append(in_a_cycle)\n"
        "print(next(in_a_cycle[0]))\n"
        "for pid in pids():\n"
        "    print(pid)\n"
        "    break\n"
    )
    done = run_program("-W", "error", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert not [pid for pid in done.stdout.split() if Path(f"/proc/{pid}").exists()]


def test_an_error_in_the_middle_arrives_after_the_items_before_it() -> None:
    @sojourn.isolated
    def breaks() -> Iterator[int]:
        yield 1
        raise LookupError("the second is missing")

    received = []
    with pytest.raises(LookupError, match="second is missing"):
        for item in breaks():
            received.append(item)  # noqa: PERF402
    assert received == [1]
    assert workers() == []


def test_an_item_that_cannot_be_sent_lets_it_clean_up(capsys: pytest.CaptureFixture[str]) -> None:
    @sojourn.isolated
    def locks() -> Iterator[Any]:
        try:
            yield threading.Lock()
        finally:
            print("cleaning up")

    stream = locks()
    with pytest.raises(sojourn.InputError, match="of type lock, cannot be sent back"):
        next(stream)
    assert capsys.readouterr().out == "cleaning up\n"
    assert (list(stream), workers()) == ([], [])


def test_a_worker_that_dies_between_items_is_reported() -> None:
    @sojourn.isolated
    def pids() -> Iterator[int]:
        while True:
            yield os.getpid()

    stream = pids()
    os.kill(next(stream), 9)
    with pytest.raises(sojourn.SessionBroken, match="killed by SIGKILL"):
        list(itertools.islice(stream, 3))
    assert workers() == []


def test_each_item_has_the_timeout_of_its_own() -> None:
    @sojourn.isolated(timeout=0.3)
    def slower() -> Iterator[int]:
        yield 1
        while True:
            pass

    stream = slower()
    assert next(stream) == 1
    with pytest.raises(sojourn.StepTimeout):
        next(stream)
    assert workers() == []


def test_a_generator_that_a_plain_function_returns_streams_too() -> None:
    make = sojourn.isolated(lambda n: (i * i for i in range(n)))
    assert list(make(4)) == [0, 1, 4, 9]
    make(4).close()
    assert workers() == []


def test_a_generator_that_a_plain_function_returned_cleans_up_when_it_is_forgotten(
    tmp_path: Path,
) -> None:
    def numbers() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            (tmp_path / "clean").touch()

    for _ in sojourn.isolated(lambda: numbers())():
        break
    wait_until_no_worker_is_left()
    assert (tmp_path / "clean").exists()


def test_a_training_loop_shows_its_progress_epoch_by_epoch() -> None:
    @sojourn.isolated(seed=1)
    def losses(epochs: int) -> Iterator[float]:
        import numpy as np
        import tensorflow as tf

        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.1), "mse")
        x = np.random.rand(64, 4)
        for _ in range(epochs):
            yield model.fit(x, x.sum(axis=1), verbose=0).history["loss"][0]

    seen = list(losses(4))
    assert len(seen) == 4
    assert seen[-1] < seen[0]


@sojourn.isolated
def slowly(limit: int) -> Any:
    for i in range(limit):
        time.sleep(0.2)
        yield i


def test_threads_that_ask_one_stream_at_a_time_lose_no_item_and_no_worker() -> None:
    stream, got = slowly(6), []
    refused: list[str] = []

    def ask() -> None:
        try:
            got.append(next(stream))
        except ValueError as error:
            refused.append(str(error))

    for _ in range(2):  # also as it begins
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got + list(stream) == list(range(6))
    assert refused == ["generator already executing"] * (6 - len(got))
    wait_until_no_worker_is_left()


def test_tasks_that_ask_one_stream_at_a_time_lose_no_item() -> None:
    async def main() -> None:
        stream = slowly(3)
        first, refused = await asyncio.gather(anext(stream), anext(stream), return_exceptions=True)
        assert first == 0
        assert isinstance(refused, ValueError)
        assert [item async for item in stream] == [1, 2]

    asyncio.run(main())
    wait_until_no_worker_is_left()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_there_is_one_handle_on_a_stream(duplicate: Callable[[Any], Any]) -> None:
    with count(3) as stream:
        assert next(stream) == 0
        with pytest.raises(TypeError, match=r"stream of 'count' cannot be pickled: .*Send what it"):
            duplicate(stream)
        assert list(stream) == [1, 2]
