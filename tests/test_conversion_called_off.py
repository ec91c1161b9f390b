"""An opening that tries engines can be called off, and has an end to its time."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sojourn
from sojourn.errors import SessionClosed, StepTimeout

pytestmark = [
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.skipif(
        importlib.util.find_spec("ai_edge_litert") is None, reason="LiteRT is not installed"
    ),
]


@pytest.fixture
def stuck(tmp_path: Path) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A builder that gets stuck where the model is converted, and what waits until it is."""
    built, arrived = str(tmp_path / "built"), str(tmp_path / "arrived")

    def build() -> Any:
        import os
        import threading

        import tensorflow as tf

        try:
            os.close(os.open(built, os.O_CREAT | os.O_EXCL))
        except FileExistsError:  # the first was TensorFlow's own session
            os.close(os.open(arrived, os.O_CREAT))
            threading.Event().wait()
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        return {"x": x}, {"y": x * 2.0}

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not Path(arrived).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    return build, wait


def test_a_pool_that_is_closed_does_not_wait_for_engines_that_are_tried(
    stuck: tuple[Callable[[], Any], Callable[[], None]], own_cache: Path
) -> None:
    build, wait = stuck
    raised: list[BaseException] = []

    def lease() -> None:
        try:
            pool.lease("stuck")
        except BaseException as error:
            raised.append(error)

    pool = sojourn.Pool()
    pool.register("stuck", build, engine="litert")
    thread = threading.Thread(target=lease)
    thread.start()
    wait()
    began = time.monotonic()
    pool.close(timeout=0)
    thread.join()
    assert time.monotonic() - began < 20
    assert isinstance(raised[0], SessionClosed)
    assert not list(own_cache.iterdir())


def test_the_timeout_of_an_open_holds_for_everything_that_is_tried(
    stuck: tuple[Callable[[], Any], Callable[[], None]], own_cache: Path
) -> None:
    sojourn.warm_up(wait=True)
    build, _ = stuck
    with pytest.raises(StepTimeout, match="was not open within 3 s"):
        sojourn.open(build, engine="litert", timeout=3)
    assert not list(own_cache.iterdir())


def test_a_cancelled_open_ends_what_it_tries(
    stuck: tuple[Callable[[], Any], Callable[[], None]], own_cache: Path
) -> None:
    build, wait = stuck

    async def main() -> None:
        async def opening() -> None:
            async with sojourn.aopen(build, engine="litert"):
                pass

        task = asyncio.ensure_future(opening())
        await asyncio.to_thread(wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name.startswith("sojourn-aside"):
            thread.join(20)
            assert not thread.is_alive()
    assert not list(own_cache.iterdir())
