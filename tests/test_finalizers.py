"""Python loses a Ctrl-C that comes while a finalizer runs, so none runs where all goes well.

Watched is the main thread, where signals are answered: no `__del__` of sojourn's, and no callback
of a weak reference that is written in Python, those of the standard library included.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from sojourn.testing.injection import interrupted
from sojourn.transport.copying import SHARED_BYTES

pytestmark = pytest.mark.usefixtures("zygote")
SUM = ("output", {"a": 1, "b": 2})
_OURS = os.path.dirname(sojourn.__file__)


def is_finalizer(frame: FrameType) -> bool:
    """Whether Python has called this because an object is gone."""
    code = frame.f_code
    if code.co_name == "__del__":
        return code.co_filename.startswith(_OURS)
    given = [frame.f_locals[name] for name in code.co_varnames[: min(code.co_argcount, 2)]]
    return any(isinstance(value, weakref.ref) and value() is None for value in given)


@contextmanager
def finalizers() -> Iterator[list[str]]:
    """Those that run on this thread."""
    seen: list[str] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and is_finalizer(frame):
            back = frame.f_back
            where = "" if back is None else f"{back.f_code.co_filename}:{back.f_lineno}"
            seen.append(f"{frame.f_code.co_qualname} in {where}")

    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def a_call() -> None:
    assert sojourn.isolated(len)([1]) == 1


def a_call_that_fails() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        sojourn.isolated(int)("x")


def a_call_with_a_large_array() -> None:
    assert sojourn.isolated(np.sum)(np.ones(SHARED_BYTES // 8)) == SHARED_BYTES // 8


def a_stream() -> None:
    def count() -> Iterator[int]:
        yield from range(2)

    assert list(sojourn.isolated(count)()) == [0, 1]


def a_session() -> None:
    with sojourn.open(models.adder) as session:
        assert session.run(*SUM) == 3


def a_loan() -> None:
    with sojourn.open(models.adder) as session, session.lend() as lease:
        assert lease.run(*SUM) == 3


def a_pool() -> None:
    with sojourn.Pool() as pool:
        pool.register("shared", models.adder)
        pool.register("mine", models.adder, exclusive=True)
        for name in ("shared", "mine", "shared", "mine"):
            with pool.lease(name) as session:
                assert session.run(*SUM) == 3


@pytest.mark.parametrize(
    "act",
    [a_call, a_call_that_fails, a_call_with_a_large_array, a_stream, a_session, a_loan, a_pool],
)
def test_nothing_that_could_lose_a_ctrl_c_runs_when_things_end_in_order(
    act: Callable[[], None],
) -> None:
    act()
    gc.collect()
    with finalizers() as seen:
        act()
        gc.collect()
    assert seen == []


def test_nor_when_a_drop_in_session_ends_in_order() -> None:
    import tensorflow as tf

    def act() -> None:
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32)
            y = x * 2
            with sojourn.compat.v1.Session(graph=graph) as session:
                for _ in range(5):
                    assert session.run(y, {x: 1}) == 2

    act()
    gc.collect()
    with finalizers() as seen:
        act()
        gc.collect()
    assert [one for one in seen if "tensorflow" not in one] == []


def test_what_watches_finalizers_finds_them() -> None:
    class Thing:
        pass

    live: weakref.WeakSet[Thing] = weakref.WeakSet()
    for watch in (live.add, lambda thing: weakref.finalize(thing, int)):
        thing = Thing()
        watch(thing)
        with finalizers() as seen:
            del thing
        assert len(seen) == 1


def test_a_ctrl_c_anywhere_around_a_call_is_raised_and_leaves_no_worker() -> None:
    ours = ("functions/calling.py", "functions/isolated.py", "session/ending.py")

    def call() -> None:
        sojourn.isolated(len)([1])

    call()
    with interrupted(0) as points:
        call()
    chosen = [n for n, at in enumerate(points, 1) if any(name in at for name in ours)]
    assert len(chosen) > 20
    lost = []
    for n in chosen:
        where: list[str] = []
        try:
            with interrupted(n) as where:
                call()
            lost += where  # there may be fewer points this time
        except KeyboardInterrupt:
            pass
    gc.collect()  # what was interrupted while it was made
    assert lost == []
