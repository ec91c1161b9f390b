"""Lanes on which a worker asks and the client answers: nonsense there ends the worker, no more.

Only the drop-in opens such a lane, for the Python functions of a graph; here any session has one.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

import sojourn
from faults.lies import LIES
from faults.tools import wait_until
from sojourn.process.calls import OK


def asking(act: Any) -> Any:
    """A model whose step does `act(lane)` with the lane it may ask over, and takes its time."""

    def build() -> Any:
        from sojourn.engines.function import FunctionEngine

        FunctionEngine.connect = lambda self, call_back: None  # it has the lane; that is enough

        def ask() -> Any:
            import gc
            import time

            from sojourn.transport.lane import CallerLane

            lanes: list[Any] = []
            until = time.monotonic() + 60
            while not lanes and time.monotonic() < until:  # it comes by another way than the step
                lanes = [o for o in gc.get_objects() if type(o) is CallerLane]
            told = act(lanes[0])
            if told is None:
                time.sleep(60)
            return told

        return ask

    return build


def answering(session: sojourn.Session) -> list[Any]:
    """Have the client answer whatever is asked; what that is."""
    asked: list[Any] = []

    def answer(meta: bytes, arrays: Any) -> Any:
        asked.append((meta, [array.tolist() for array in arrays]))
        return OK, b"answered", [array + 1 for array in arrays]

    session._stay.backend.answer_with(answer)  # type: ignore[union-attr]
    return asked


def test_the_lane_is_a_good_one():
    def act(lane: Any) -> Any:
        import numpy as np

        _, meta, [view] = lane.exchange(b"a question", [np.ones((2, 2))])
        assert meta == b"answered"
        return view.copy()

    with sojourn.open(asking(act)) as session:
        asked = answering(session)
        assert session.run("output").tolist() == [[2, 2], [2, 2]]
    assert asked == [(b"a question", [[[1, 1], [1, 1]]])]
    assert session.receipt.clean


@pytest.mark.parametrize("lie", LIES)
def test_a_worker_whose_question_cannot_be_is_ended(lie):
    tell, _ = LIES[lie]

    def act(lane: Any) -> None:
        import numpy as np

        from sojourn.transport import messages
        from sojourn.transport.lane import ring

        lane.outbox.put(b"a question", [np.ones((2, 2))])
        tell(lane, b"a question")
        lane._mine[messages.SEQUENCE] = 1
        ring(lane._their_bell)

    with sojourn.open(asking(act)) as session:
        asked = answering(session)
        with pytest.raises(sojourn.SessionBroken, match="SIGKILL"):
            session.run("output", timeout=60)
        wait_until(lambda: not os.path.exists(f"/proc/{session.pid}"))
        assert asked == []
    assert session.receipt.clean


def test_words_that_make_no_sense_on_it_harm_nobody():
    def scribbling(seed: int) -> Any:
        def act(lane: Any) -> Any:
            import random

            from sojourn.transport.lane import ring

            chosen = random.Random(seed)
            values = [0, 1, 2, 3, 2**31, 2**63, 2**64 - 1]
            for _ in range(2000):
                lane._mine[chosen.randrange(6)] = chosen.choice(values)
                ring(lane._their_bell)
            return np.zeros(0)

        return act

    for seed in random.Random(6).sample(range(10_000), 6):
        with sojourn.open(asking(scribbling(seed))) as session:
            answering(session)
            try:
                session.run("output", timeout=60)
            except sojourn.SessionBroken as error:
                assert "SIGKILL" in str(error)  # noqa: PT017
        assert session.receipt.clean
