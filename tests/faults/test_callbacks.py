"""Closing from where one would not expect it: inside an event, inside a function of the graph."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import models
import sojourn
from faults.programs import run_to_end
from faults.tools import Background

SUM = ("output", {"a": 1, "b": 2})


def closing_at(session: sojourn.Session, kind: str) -> Any:
    """Close the session from inside the first event of this kind."""
    seen = []

    def hear(event: Any) -> None:
        if event.kind == kind and event.session == session.name and not seen:
            seen.append(event)
            session.close()

    return sojourn.events.subscribe(hear, every_step=True)


@pytest.fixture
def session() -> Iterator[sojourn.Session]:
    with sojourn.open(models.adder) as session:
        session.run(*SUM)
        yield session


def test_a_subscriber_that_closes_it_as_a_step_begins_refuses_the_step(session):
    stop = closing_at(session, "session.running")
    running = Background(session.run, *SUM)
    with pytest.raises(sojourn.SessionClosed, match=r"was closed at .*test_callbacks.py"):
        running.result()
    stop()
    assert session.receipt.clean


@pytest.mark.parametrize("kind", ["session.ready", "session.step"])
def test_a_subscriber_that_closes_it_as_a_step_ends_keeps_the_result(session, kind):
    stop = closing_at(session, kind)
    assert Background(session.run, *SUM).result() == 3
    stop()
    assert session.receipt.clean


def test_a_subscriber_that_closes_it_as_it_is_closed_gets_no_second_receipt(session):
    stop = closing_at(session, "session.closed")
    receipt = Background(session.close).result()
    stop()
    assert session.close() is receipt


def test_a_subscriber_that_closes_it_as_it_breaks_leaves_nothing(session):
    stop = closing_at(session, "session.broken")
    session._stay.backend.kill()
    with pytest.raises((sojourn.SessionBroken, sojourn.SessionClosed)):
        Background(session.run, *SUM).result()
    stop()
    assert session.state is sojourn.State.CLOSED


def test_a_subscriber_that_fails_disturbs_nobody(session):
    def fail(event: Any) -> None:
        raise ZeroDivisionError

    stop = sojourn.events.subscribe(fail, every_step=True)
    assert session.run(*SUM) == 3
    session.close()
    stop()


def test_an_owner_who_closes_while_borrowers_run_races_with_nobody():
    for _ in range(5):
        session = sojourn.open(models.adder)
        leases = [session.lend() for _ in range(4)]

        def borrow(lease: Any) -> None:
            while True:
                assert lease.run(*SUM) == 3

        borrowers = [Background(borrow, lease) for lease in leases]
        time.sleep(0.05)
        assert session.close().clean
        for borrower in borrowers:
            with pytest.raises(sojourn.LeaseExpired):
                borrower.result()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # forgotten first, then closed
def test_a_finalizer_that_closes_it_on_another_thread_is_no_deadlock():
    class Holder:
        def __init__(self, session: sojourn.Session) -> None:
            self.session = session
            self.itself = self  # only the collector finds it

        def __del__(self) -> None:
            self.session.close()

    Holder(sojourn.open(models.adder))
    import gc

    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


# The drop-in needs TensorFlow in the client, which takes its time to load: one program for all.
DROP_IN = """
judgement.stop()  # TensorFlow's own memory would be found to be left
del os.environ["SOJOURN_PRELOAD"]
warnings.simplefilter("ignore")
assert "tensorflow" not in sys.modules
sojourn.compat.v1.Session  # which needs it
import tensorflow as tf
from tensorflow.python.ops import script_ops
from sojourn.process.calls import FAILED
v1 = tf.compat.v1

def outcome(act):
    try:
        return act()
    except (RuntimeError, tf.errors.OpError) as error:
        return type(error).__name__

with v1.Graph().as_default():
    def close(x):
        sess.close()
        return x
    sess = sojourn.compat.v1.Session()
    closes = v1.py_func(close, [tf.constant(1.0)], tf.float32)
    plain = tf.constant(2.0) + 1
    tell(sess.run(plain))
    started = time.monotonic()
    tell(outcome(lambda: sess.run(closes)) in ("CancelledError", "RuntimeError"))
    while sess.receipt is None and time.monotonic() - started < 120:
        time.sleep(0.01)  # the step may hear of it before the function that closes is through
    tell(sess.receipt.clean)

    sess = sojourn.compat.v1.Session()
    def fail(x):
        raise ValueError("in the callback")
    fails = v1.py_func(fail, [tf.constant(1.0)], tf.float32)
    tell(outcome(lambda: sess.run(fails)), sess.run(plain))
    def interrupt(x):
        raise KeyboardInterrupt
    interrupts = v1.py_func(interrupt, [tf.constant(1.0)], tf.float32)
    tell(outcome(lambda: sess.run(interrupts)) is not None, sess.run(plain))
    import msgspec
    from sojourn.engines.remote_session_functions import Question
    with v1.Graph().as_default():
        v1.py_func(lambda x: tell("called") or x, [tf.constant(1.0)], tf.float32)
    others = set(script_ops._py_funcs._funcs) - sess._link._functions.tokens
    questions = [b"", b"\\xff", b"\\x93\\x01"]
    questions += [msgspec.msgpack.encode(Question(token)) for token in [*others, "", "open"]]
    answer = sess._link._functions.answer
    tell(len(others) > 0, {answer(question, [])[0] for question in questions} == {FAILED})
    def kill(x):
        os.kill(sess._link.stay.pid, signal.SIGKILL)
        return x
    kills = v1.py_func(kill, [tf.constant(1.0)], tf.float32)
    try:
        sess.run(kills)
    except sojourn.SessionBroken:
        tell("broken")
    sess.close()
    tell(sess.receipt.clean)
"""


def test_a_function_of_the_graph_may_close_its_own_session_fail_or_kill_the_worker():
    assert run_to_end(DROP_IN, may_complain=True) == [
        "3.0",
        "True",
        "True",
        "InvalidArgumentError 3.0",
        "True 3.0",
        "True True",
        "broken",
        "True",
    ]
