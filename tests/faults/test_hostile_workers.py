"""A worker that has turned against its client gets no further than being ended.

The models below reach into the worker's own side of the transport, as code that has taken over a
worker could.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import msgspec
import numpy as np
import pytest

import models
import sojourn
from faults.lies import LIES
from faults.tools import Background, wait_until

TYPED = (sojourn.StepTimeout, sojourn.SessionBroken)
SQUARE = ("output", {"number": np.ones((2, 2))})


def with_its_lane(act: Any) -> Any:
    """A model whose first step does `act(lane)` in the worker, and then takes its time."""

    def build() -> Any:
        def hostile(number: Any) -> Any:
            import gc
            import time

            from sojourn.transport.server_lane import ServerLane

            if int(number) == 1:
                for lane in [o for o in gc.get_objects() if type(o) is ServerLane]:
                    act(lane)
                time.sleep(60)
            return number

        return hostile

    return build


def outcome(session: sojourn.Session, number: int) -> Exception | None:
    seconds = 0.5 if number == 1 else 60.0  # the others are answered, on a busy machine late
    try:
        session.run("output", {"number": number}, timeout=seconds)
    except TYPED as error:
        return error
    return None


def test_words_that_make_no_sense_while_the_caller_waits_are_a_typed_error():
    def scribble(seed: int) -> Any:
        def act(lane: Any) -> None:
            import random
            import time

            from sojourn.transport.lane import ring

            chosen = random.Random(seed)
            values = [0, 1, 2, 3, 2**31, 2**63, 2**64 - 1]
            for _ in range(2000):
                lane._mine[chosen.randrange(5)] = chosen.choice(values)
                ring(lane._their_bell)
            time.sleep(60)

        return act

    for seed in random.Random(5).sample(range(10_000), 6):
        with sojourn.open(with_its_lane(scribble(seed))) as session:
            assert isinstance(outcome(session, 1), TYPED)
        assert session.receipt.clean


def test_an_answer_with_another_sequence_is_no_answer():
    def act(lane: Any) -> None:
        from sojourn.transport.lane import ring

        lane._mine[0] = 10**9
        ring(lane._their_bell)

    with sojourn.open(with_its_lane(act)) as session:
        assert isinstance(outcome(session, 1), sojourn.StepTimeout)
        assert outcome(session, 2) is None  # another lane


def test_a_bell_that_is_full_or_stolen_blocks_nobody():
    def act(lane: Any) -> None:
        import os
        import threading

        from sojourn.transport.lane import silence

        silence(lane._my_bell)  # it may still be rung from a call that was seen by spinning
        os.eventfd_write(lane._my_bell, 2**64 - 2)  # one more would block its writer

        def steal() -> None:
            while True:
                try:
                    os.read(lane._their_bell, 8)
                except BlockingIOError:
                    pass

        threading.Thread(target=steal, daemon=True).start()

    with sojourn.open(with_its_lane(act)) as session:
        assert isinstance(outcome(session, 1), sojourn.StepTimeout)
        assert Background(session.run, "output", {"number": 2}).result() == 2
    assert session.receipt.clean


def test_a_worker_that_closes_its_sockets_is_ended():
    def act(lane: Any) -> None:
        import gc
        import socket

        for sock in [o for o in gc.get_objects() if isinstance(o, socket.socket)]:
            sock.close()

    with sojourn.open(with_its_lane(act)) as session:
        assert isinstance(outcome(session, 1), TYPED)
        with pytest.raises(sojourn.SessionBroken):
            session.run("output", {"number": 2})  # needs a new lane
        wait_until(lambda: not os.path.exists(f"/proc/{session.pid}"))
    assert session.receipt.clean


def lying(tell: Any) -> Any:
    """A model whose worker answers its first step as it should. From then on `tell(lane, meta)`
    changes each answer after it was written, and before the client is told of it."""

    def build() -> Any:
        steps = []

        def lie(number: Any) -> Any:
            import gc

            from sojourn.transport import messages
            from sojourn.transport.lane import ring
            from sojourn.transport.server_lane import ServerLane

            def answer(lane: Any, status: int, meta: bytes, arrays: Any) -> None:
                lane.outbox._layouts.clear()  # so that it has a header
                lane.outbox.last.clear()
                lane.outbox.put(meta, arrays)
                tell(lane, meta)
                lane._mine[messages.STATUS] = status
                lane._mine[messages.SEQUENCE] = lane._sequence
                ring(lane._their_bell)

            for lane in [o for o in gc.get_objects() if steps and type(o) is ServerLane]:
                lane.answer = lambda *told, lane=lane: answer(lane, *told)
            steps.append(number)
            return number

        return lie

    return build


def must_break(tell: Any, says: str, run: Any = sojourn.Session.run) -> None:
    """The client refuses the answer, ends the worker, and says why."""
    with sojourn.open(lying(tell)) as session:
        assert session.run(*SQUARE).tolist() == [[1, 1], [1, 1]]
        with pytest.raises(sojourn.SessionBroken, match=rf"broke the protocol \(.*{says}"):
            run(session, *SQUARE, timeout=60)
        wait_until(lambda: not os.path.exists(f"/proc/{session.pid}"))
    assert session.receipt.clean


@pytest.mark.parametrize("lie", LIES)
def test_a_worker_whose_answer_cannot_be_is_ended(lie):
    tell, says = LIES[lie]
    must_break(tell, says)


def awaited(session: sojourn.Session, *step: Any, **options: Any) -> None:
    """Several steps that wait together: none of them hangs."""

    async def run() -> None:
        steps = [session.arun(*step, **options) for _ in range(4)]
        failures = await asyncio.gather(*steps, return_exceptions=True)
        assert all(isinstance(failure, sojourn.SessionBroken) for failure in failures)
        try:
            raise min(failures, key=lambda failure: "broke the protocol" not in str(failure))
        finally:
            del failures  # else it would be kept by itself

    asyncio.run(run())


@pytest.mark.parametrize(
    "lie",
    [
        "a size beyond the memory",
        "memory that shrinks",
        "two hundred descriptors",
        "memory without end",
    ],
)
def test_a_worker_whose_answer_to_awaited_steps_cannot_be_is_ended(lie):
    tell, says = LIES[lie]
    must_break(tell, says, awaited)


def test_a_worker_that_dies_half_way_through_an_answer_broke_in_that_step():
    """Part of the answer is written, larger memory announced or not; nothing of it is believed."""

    def dying(moment: str) -> Any:
        def tell(lane: Any, meta: bytes) -> None:
            import os
            import signal

            from sojourn.transport import messages

            if moment == "half a header":
                lane.outbox._buffer[8:40] = bytes(32)
            if moment == "memory announced":
                lane._mine[messages.GENERATION] += 1
            os.kill(os.getpid(), signal.SIGKILL)

        return tell

    for moment in ("whole but not told", "half a header", "memory announced"):
        with sojourn.open(lying(dying(moment))) as session:
            session.run(*SQUARE)
            with pytest.raises(sojourn.SessionBroken, match=r"SIGKILL.*outcome is unknown"):
                session.run(*SQUARE)
            wait_until(lambda session=session: not os.path.exists(f"/proc/{session.pid}"))
        assert session.receipt.clean


def saying(answer: bytes) -> Any:
    """A model that fails, in a worker that tells of failures like this."""

    def build() -> Any:
        def fail() -> Any:
            from sojourn.process import crossing

            crossing.record = lambda error: answer
            raise ValueError

        return fail

    return build


RECORD = {"module": "sojourn.errors", "name": "", "message": "m", "traceback": "t"}


@pytest.mark.parametrize(
    "answer",
    [b"", b"\xff", b"\x93\x01\x02", msgspec.msgpack.encode({"module": 3})],
    ids=["empty", "no-message", "another-message", "another-type"],
)
def test_an_error_that_cannot_be_read_breaks_the_session(answer):
    with sojourn.open(saying(answer)) as session:
        with pytest.raises(sojourn.SessionBroken, match="broke the protocol"):
            session.run("output")
        wait_until(lambda: not os.path.exists(f"/proc/{session.pid}"))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sojourn.errors", "annotations"),
        ("sojourn.errors", "__name__"),
        ("sojourn.errors", "RemoteTraceback"),
        ("builtins", "exec"),
        ("os", "_exit"),
    ],
)
def test_an_error_can_only_be_an_error(module, name):
    answer = msgspec.msgpack.encode({**RECORD, "module": module, "name": name})
    with (
        sojourn.open(saying(answer)) as session,
        pytest.raises(sojourn.EngineError, match=f"{name}: m"),
    ):
        session.run("output")


@pytest.mark.parametrize("results", [0, 2, 100])
def test_more_or_fewer_results_than_were_asked_for_break_the_session(results):
    def build() -> Any:
        def change(number: Any) -> Any:
            from sojourn.engines.function import FunctionPlan

            FunctionPlan.run = lambda self, arrays: [number] * results
            return number

        return change

    with sojourn.open(build) as session:
        session.run("output", {"number": 1})
        with pytest.raises(sojourn.SessionBroken, match=f"{results} results for 1"):
            session.run("output", {"number": 1})
    assert session.receipt.clean


@pytest.mark.parametrize(
    "change",
    [{"inputs": []}, {"slots": []}, {"slots": [7]}, {"slots": [-2]}, {"outputs": []}],
    ids=lambda change: f"{change}",
)
def test_a_plan_for_something_else_breaks_the_session(change):
    def build() -> Any:
        from sojourn.engines.base import Host

        plan = Host._plan

        def lie(self: Any, arguments: Any, arrays: Any) -> Any:
            facts, arrays = plan(self, arguments, arrays)
            return {**facts, **change}, arrays

        Host._plan = lie
        return models.adder()

    # The operations of the host were bound before the model could replace them.
    def build_in_time() -> Any:
        import gc

        from sojourn.engines.base import Host

        function = build()
        for host in [o for o in gc.get_objects() if type(o) is Host]:
            host._operations["plan"] = host._plan
        return function

    with (
        sojourn.open(build_in_time) as session,
        pytest.raises(sojourn.SessionBroken, match="a plan for something else"),
    ):
        session.run("output", {"a": 1, "b": 2})
    assert session.receipt.clean
