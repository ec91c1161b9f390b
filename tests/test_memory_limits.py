"""Too little `memory=` is one error, whatever was refused, and never a riddle."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sojourn
from sojourn.engines import shortage

SIDE = 4096  # a matrix of this side takes 64 MiB
REFUSED = r"memory='{}' was reached: the worker held \d.* and asked for 64(\.0)? MiB more"

pytestmark = pytest.mark.usefixtures("zygote")
only_where_handlers_exist = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the handlers are written for x86-64"
)


def a_variable() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [], name="x")
    w = v1.get_variable("w", [SIDE, SIDE], initializer=v1.zeros_initializer())
    return {"x": x}, {"first": w[0, 0], "next": v1.assign_add(w, tf.fill([SIDE, SIDE], x))[0, 0]}


def a_keras_model() -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((SIDE,)), layers.Dense(SIDE, use_bias=False)])


def a_sum_of_ones(memory: str) -> sojourn.Session:
    def build() -> Any:
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, SIDE], name="x")
        return {"x": x}, {"sum": tf.reduce_sum(tf.concat([x, x], 0))}

    return sojourn.open(build, memory=memory)


def test_at_open_it_has_the_numbers_and_is_a_memory_error():
    with pytest.raises(sojourn.BudgetExceeded, match=REFUSED.format("128MiB")) as caught:
        sojourn.open(a_keras_model, memory="128MiB")
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value.__cause__, sojourn.RemoteTraceback)


def test_a_limit_below_what_every_worker_has_says_so():
    with pytest.raises(sojourn.BudgetExceeded, match=r"memory='32MiB' .*every worker has 64 MiB"):
        sojourn.open(a_keras_model, memory="32MiB")


@pytest.mark.parametrize(
    ("held", "asked", "words"),
    [
        (120, 64, "held 120 MiB and asked for 64 MiB more"),
        (2, 128, "held 32 MiB or more and asked for 128 MiB more"),  # it was freed meanwhile
        (2, 500, "held 2.0 MiB and asked for 500 MiB more"),
    ],
)
def test_the_numbers_add_up_to_more_than_the_limit(held: int, asked: int, words: str):
    assert shortage._numbers(160 * 2**20, held * 2**20, asked * 2**20) == words


@pytest.mark.parametrize(
    ("words", "asked"),
    [("5 bytes", 5), ("999. KiB", 999 * 2**10), ("64.0 MiB", 2**26), ("1000. GiB", 1000 * 2**30)],
)
def test_what_numpy_asked_for_is_understood_however_it_is_written(words: str, asked: int):
    assert shortage._asked(f"Unable to allocate {words} for an array") == asked


def test_numpys_words_for_a_large_array_are_no_trouble_for_the_worker():
    def build() -> Any:
        return lambda count: np.ones(int(count), np.uint8).sum()

    with sojourn.open(build, memory="80MiB") as session:
        with pytest.raises(sojourn.BudgetExceeded, match="asked for 128 MiB more"):
            session.run("output", {"count": 128 * 2**20})
        assert session.run("output", {"count": 3}) == 3


def small_objects_in_a_frame() -> None:
    kept = []
    while True:
        kept.append({"n": len(kept), "words": str(len(kept))})


def small_objects_everywhere() -> None:
    import builtins

    builtins.kept = []  # type: ignore[attr-defined]
    while True:
        builtins.kept.append(str(len(builtins.kept)) * 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("work", [small_objects_in_a_frame, small_objects_everywhere])
@pytest.mark.parametrize("memory", ["70MiB", "97MiB"])
def test_where_not_even_an_error_fits_any_more(work: Any, memory: str):
    with pytest.raises(sojourn.BudgetExceeded, match=f"memory='{memory}' was reached"):
        sojourn.isolated(work, memory=memory)()


def test_in_a_step_and_the_session_goes_on():
    with sojourn.open(a_variable, memory="130MiB") as session:
        with pytest.raises(sojourn.BudgetExceeded, match=REFUSED.format("130MiB")):
            session.run("next", {"x": 1})
        assert session.run("first") == 0
    assert session.receipt.clean


def test_what_is_fed_and_does_not_fit_is_refused_and_the_session_goes_on():
    with a_sum_of_ones("160MiB") as session:
        with pytest.raises(sojourn.BudgetExceeded, match="memory='160MiB' was reached"):
            session.run("sum", {"x": np.ones((2 * SIDE, SIDE), np.float32)})
        assert session.run("sum", {"x": np.ones((1, SIDE), np.float32)}) == 2 * SIDE
    assert session.receipt.clean


def test_in_a_reset_and_a_restore_and_the_session_goes_on(tmp_path: Path):
    with sojourn.open(a_variable) as session:
        session.run("next", {"x": 1})
        session.save(tmp_path / "state")
    with sojourn.open(a_variable, memory="80MiB") as session:
        for work in (session.reset, lambda: session.restore(tmp_path / "state")):
            with pytest.raises(sojourn.BudgetExceeded, match="memory='80MiB' was reached"):
                work()
            assert session.run("first") == 0
    assert session.receipt.clean


def test_in_isolated_functions_of_numpy_and_of_tensorflow():
    @sojourn.isolated(memory="80MiB")
    def in_numpy() -> float:
        return float(np.sqrt(np.ones((SIDE, SIDE), np.float32)).sum())

    @sojourn.isolated(memory="80MiB")
    def in_tensorflow() -> float:
        import tensorflow as tf

        return float(tf.reduce_sum(tf.transpose(tf.random.uniform([SIDE, SIDE]))))

    for function in (in_numpy, in_tensorflow):
        with pytest.raises(sojourn.BudgetExceeded, match=REFUSED.format("80MiB")):
            function()


def test_a_memory_error_of_code_without_a_limit_stays_what_it_is():
    @sojourn.isolated
    def fails() -> None:
        raise MemoryError("mine")

    with pytest.raises(MemoryError, match="mine") as caught:
        fails()
    assert not isinstance(caught.value, sojourn.BudgetExceeded)


def _full(then: Any) -> Any:
    """A function that takes all the memory it may have before it goes on."""

    def work() -> int:
        kept = []
        try:
            while True:
                kept.append(np.ones(2**17))
        except MemoryError:
            return int(then())

    return lambda: work


def _operator_new(count: int) -> int:
    new = ctypes.CDLL("libstdc++.so.6")._Znwm
    new.restype = ctypes.c_void_p
    return bool(new(ctypes.c_size_t(count)))


@only_where_handlers_exist
def test_code_in_c_plus_plus_finds_a_reserve_when_everything_else_is_used():
    with sojourn.open(_full(lambda: _operator_new(16 * 2**20)), memory="128MiB") as session:
        assert session.run("output") == 1
    assert session.receipt.clean


@only_where_handlers_exist
@pytest.mark.parametrize("end", [lambda: _operator_new(2**30), lambda: ctypes.string_at(0)])
def test_where_nothing_can_refuse_the_worker_ends_and_the_error_says_the_same(end):
    with sojourn.open(_full(end), memory="128MiB") as session:
        with pytest.raises(sojourn.BudgetExceeded, match="memory='128MiB' was reached") as caught:
            session.run("output")
        assert isinstance(caught.value, sojourn.SessionBroken)
        assert "SIG" not in str(caught.value)
    assert session.receipt.clean


def test_a_crash_far_from_the_limit_is_not_called_a_shortage():
    with sojourn.open(lambda: lambda: os.abort(), memory="256MiB") as session:
        with pytest.raises(
            sojourn.SessionBroken, match=r"SIGABRT \(its memory is limited"
        ) as caught:
            session.run("output")
        assert not isinstance(caught.value, sojourn.BudgetExceeded)
