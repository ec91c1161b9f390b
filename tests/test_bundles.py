"""Awaited steps that go together in one message: each has its own answer, error and end."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import msgspec
import numpy as np
import pytest

import sojourn
from models import counter
from sojourn.process import awaiting, bundles
from sojourn.process.calls import FAILED, OK, SOME_FAILED
from sojourn.transport.headers import ProtocolError
from sojourn.transport.lane import CallerLane


def checked_double() -> Any:
    """Refuses 13, and only when it runs."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    with tf.control_dependencies([tf.debugging.assert_none_equal(x, 13.0)]):
        return {"x": x}, {"y": tf.identity(x) * 2, "z": x + 1}


@pytest.fixture
def session(zygote, monkeypatch):
    monkeypatch.setattr(awaiting, "_TOGETHER_SECONDS", 60.0)  # also where others take the processor
    with sojourn.open(checked_double) as session:
        yield session


@pytest.fixture
def sizes(monkeypatch):
    """How many steps each message asked for."""
    seen: list[int] = []
    send = CallerLane.send

    def noted(lane: CallerLane, meta: bytes, arrays: Any, **options: Any) -> None:
        seen.append(meta[-1] if meta[:1] == b"b" else 1)
        send(lane, meta, arrays, **options)

    monkeypatch.setattr(CallerLane, "send", noted)
    return seen


def _of(number: float) -> np.ndarray:
    return np.array([number], np.float32)


def test_each_gets_its_own_answer(session, sizes):
    async def main() -> list[Any]:
        steps = [session.arun(["z", "y"], {"x": _of(i)}) for i in range(100, 200)]
        return await asyncio.gather(*steps)

    answers = asyncio.run(main())
    assert [(z[0], y[0]) for z, y in answers] == [(i + 1, 2 * i) for i in range(100, 200)]
    assert max(sizes) > 1, "some have gone together"
    assert all(size & (size - 1) == 0 for size in sizes)


def test_one_that_fails_fails_alone(session, sizes):
    async def main() -> list[Any]:
        steps = [session.arun("y", {"x": _of(i)}) for i in range(64)]
        return await asyncio.gather(*steps, return_exceptions=True)

    answers = asyncio.run(main())
    assert isinstance(answers.pop(13), Exception)
    assert [answer[0] for answer in answers] == [2 * i for i in range(64) if i != 13]
    assert max(sizes) > 1


def test_one_that_is_cancelled_leaves_the_others_theirs(session, sizes):
    async def main() -> list[Any]:
        tasks = [asyncio.create_task(session.arun("y", {"x": _of(-i)})) for i in range(64)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(main())
    for i, answer in enumerate(answers):
        if i % 3 == 0:
            assert isinstance(answer, asyncio.CancelledError)
        else:
            assert answer[0] == -2 * i
    assert session.run("y", {"x": _of(4)})[0] == 8


def test_steps_that_change_state_are_all_run_once(zygote, monkeypatch):
    monkeypatch.setattr(awaiting, "_TOGETHER_SECONDS", 60.0)

    amounts = range(1, 100)  # all different: one left out is not made good by another run twice

    async def main() -> tuple[list[float], float]:
        with sojourn.open(counter) as session:
            steps = [session.arun("total", {"amount": np.float32(i)}) for i in amounts]
            return await asyncio.gather(*steps), float(session.run("value"))

    totals, value = asyncio.run(main())
    assert value == max(totals) == sum(amounts)
    # A step reads after it has added; steps beside it may have added by then as well.
    assert all(i <= total <= value for i, total in zip(amounts, totals, strict=True))


def test_a_worker_that_dies_fails_all_of_them(session):
    async def main() -> list[Any]:
        tasks = [asyncio.create_task(session.arun("y", {"x": _of(-i)})) for i in range(64)]
        await asyncio.sleep(0)
        os.kill(session.pid, signal.SIGKILL)
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(main())
    assert any(isinstance(answer, sojourn.SessionBroken) for answer in answers)
    for i, answer in enumerate(answers):
        assert isinstance(answer, sojourn.SessionBroken) or answer[0] == -2 * i


@pytest.mark.parametrize(
    "answer",
    [
        (OK, b"", [_of(1)] * 5),
        (SOME_FAILED, b"\xc1", []),
        (SOME_FAILED, msgspec.msgpack.encode([None] * 3), [_of(1)] * 3),
        (SOME_FAILED, msgspec.msgpack.encode([b"", b"", b"", b""]), [_of(1)]),
    ],
)
def test_an_answer_that_cannot_be_divided_is_not_believed(answer):
    with pytest.raises(ProtocolError):
        bundles._parts(answer, 4)


def test_an_answer_is_divided_by_what_succeeded():
    failures = msgspec.msgpack.encode([None, b"why", None])
    parts = bundles._parts((SOME_FAILED, failures, [_of(1), _of(2), _of(3), _of(4)]), 3)
    assert [status for status, _, _ in parts] == [OK, FAILED, OK]
    assert [len(arrays) for _, _, arrays in parts] == [2, 0, 2]
    assert parts[1][1] == b"why"
    assert parts[2][2][0][0] == 3
