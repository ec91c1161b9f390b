"""The commonest faults, done to every kind of session there is."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sojourn
from clients import client, remaining, told
from faults import kinds
from faults.chances import share
from faults.kinds import KINDS, Kind
from faults.programs import run_to_end
from faults.tools import Background, stopped, wait_until

ENDED = (sojourn.SessionClosed, sojourn.LeaseExpired)


@pytest.fixture(scope="module")
def files(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    kinds.write_files(str(folder))
    return folder


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def session(kind: Kind, files: Path) -> Iterator[Any]:
    with kind.open(files) as session:
        kind.step(session)
        yield session


def gone(pid: int) -> None:
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_worker_of_any_kind_that_is_killed_idle_breaks_its_session(kind, session):
    pid = session.pid
    os.kill(pid, signal.SIGKILL)
    gone(pid)
    for _ in range(2):
        with pytest.raises(sojourn.SessionBroken, match="SIGKILL"):
            kind.step(session)


def test_a_worker_of_any_kind_that_is_killed_in_a_step_breaks_its_session(kind, session):
    pid = session.pid
    running = Background(session.run, kind.fetch, kind.slow)
    wait_until(lambda: session.state is sojourn.State.RUNNING)
    time.sleep(0.2)  # the step is under way
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(sojourn.SessionBroken, match=r"SIGKILL(.|\n)*outcome is unknown"):
        running.result()
    gone(pid)


def test_a_worker_of_any_kind_that_is_stopped_keeps_no_timeout_waiting(kind, session):
    with stopped(session.pid):
        started = time.monotonic()
        with pytest.raises(sojourn.StepTimeout):
            kind.step(session, timeout=0.1)
        assert time.monotonic() - started < 5
    kind.step(session)


def test_a_worker_of_any_kind_that_is_stopped_can_be_closed(kind, files):
    with kind.open(files) as session:
        kind.step(session)
        pid = session.pid
        os.kill(pid, signal.SIGSTOP)
        started = time.monotonic()
    assert time.monotonic() - started < 10
    gone(pid)


def test_a_slow_step_of_any_kind_is_left_behind_by_a_timeout_and_cut_off_by_the_end(kind, files):
    with kind.open(files) as session:
        pid = session.pid
        started = time.monotonic()
        with pytest.raises(sojourn.StepTimeout):
            session.run(kind.fetch, kind.slow, timeout=0.3)
        if isinstance(session, sojourn.Session):
            assert session.close(timeout=0.1).clean
    assert time.monotonic() - started < 20
    gone(pid)


def test_a_session_of_any_kind_may_be_closed_by_several_while_others_run(kind, files):
    with kind.open(files) as session:
        start = threading.Barrier(5)

        def run() -> int:
            start.wait()
            done = 0
            try:
                while True:
                    kind.step(session)
                    done += 1
            except ENDED:
                return done

        def close() -> Any:
            start.wait()
            time.sleep(0.05)
            return session.close()

        runners = [Background(run) for _ in range(3)]
        closers = [Background(close) for _ in range(2)]
        receipts = [closer.result() for closer in closers]
        assert all(runner.result() >= 0 for runner in runners)
        assert receipts[0] is receipts[1]
        with pytest.raises(ENDED):
            kind.step(session)


@pytest.mark.parametrize("name", ["graph", "saved-model", "keras", "untrusted"])
def test_a_subscriber_may_close_a_session_of_any_kind_as_a_step_begins(files, name):
    kind = KINDS[name]
    with kind.open(files) as session:
        kind.step(session)

        def hear(event: Any) -> None:
            if event.kind == "session.running" and event.session == session.name:
                session.close()

        stop = sojourn.events.subscribe(hear, every_step=True)
        with pytest.raises(sojourn.SessionClosed):
            Background(kind.step, session).result()
        stop()
        assert session.close() is session.receipt


FORKED = """
def fork_and_use(name, session, step):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            step()
            tell(name, "was used by a fork")
        except sojourn.SessionClosed as error:
            assert "is a fork of it" in str(error), error
        for _ in range(2):
            try:
                session.close()
            except sojourn.SessionClosed as error:
                assert "is a fork of it" in str(error), error
        del session
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
    tell(name, step())

warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads
"""
FORKS = """
with sojourn.open(models.adder) as session:
    fork_and_use("function", session, lambda: session.run(*SUM))
    with session.lend() as lease:
        fork_and_use("lease", lease, lambda: lease.run(*SUM))
with sojourn.Pool(memory="1GiB") as pool:
    pool.register("sum", models.adder)
    with pool.lease("sum") as pooled:
        fork_and_use("pool", pooled, lambda: pooled.run(*SUM))
tell(session.receipt.clean)
"""


def test_a_fork_of_the_client_may_neither_use_nor_end_a_session_of_any_kind():
    assert run_to_end(FORKED + FORKS) == ["function 3", "lease 3", "pool 3", "True"]


# An inline session loads TensorFlow into its client: one program for all.
IN_LINE = """
judgement.stop()  # TensorFlow's own memory would be found to be left
from faults.tools import Background
from sojourn.testing import leftovers, take_snapshot
from sojourn.testing.injection import interrupted
sys.unraisablehook = lambda told: None  # what is raised in a finalizer is told, not raised
warnings.simplefilter("ignore")  # who is interrupted has forgotten it

def opened():
    return sojourn.open(models.adder, isolation="inline")

def run(session):
    try:
        while True:
            assert session.run(*SUM) == 3
    except sojourn.SessionClosed:
        return "closed"

for _ in range(5):
    session = opened()
    runners = [Background(run, session) for _ in range(3)]
    time.sleep(0.02)
    closers = [Background(session.close) for _ in range(2)]
    assert len({id(closer.result()) for closer in closers}) == 1
    assert {runner.result() for runner in runners} == {"closed"}
tell("races")

with opened() as session:
    stop = sojourn.events.subscribe(
        lambda event: session.close() if event.kind == "session.running" else None, every_step=True
    )
    tell(Background(run, session).result())
    stop()

def act():
    with opened() as session:
        session.run(*SUM)
with interrupted(0) as points:
    act()
before = take_snapshot()
for n in chosen(len(points)):
    where = []
    try:
        with interrupted(n) as where:
            act()
    except KeyboardInterrupt:
        pass
    left = leftovers(before)
    assert not left, (n, where, left)
tell("interrupts")

with opened() as session:
    fork_and_use("inline", session, lambda: session.run(*SUM))
never_closed = opened()
never_closed.run(*SUM)
"""


def test_an_inline_session_may_be_closed_interrupted_forked_and_forgotten_at_exit(request):
    chosen = f"def chosen(total):\n    return {share(request, 150, 30)}\n"
    assert run_to_end(FORKED + chosen + IN_LINE, may_complain=True) == [
        "races",
        "closed",
        "interrupts",
        "inline 3",
    ]


# So does the drop-in.
DROP_IN = """
judgement.stop()  # TensorFlow's own memory would be found to be left
del os.environ["SOJOURN_PRELOAD"]
warnings.simplefilter("ignore")
import tensorflow as tf
from faults.tools import Background, stopped, wait_until
v1 = tf.compat.v1
with v1.Graph().as_default() as graph:
    n = v1.placeholder(tf.int32, [], name="n")
    total = tf.while_loop(lambda i: i < n, lambda i: [i + 1], [tf.constant(0)])[0]

def opened():
    sess = sojourn.compat.v1.Session(graph=graph)
    assert sess.run(total, {n: 7}) == 7
    return sess

def outcome(act, *args):
    try:
        return act(*args)
    except (sojourn.SojournError, RuntimeError, tf.errors.OpError) as error:
        return type(error).__name__

def pid_of(sess):
    return sess._link.stay.pid

def gone(pid):
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))

with opened() as sess:
    os.kill(pid_of(sess), signal.SIGKILL)
    gone(pid_of(sess))
    tell("killed idle", outcome(sess.run, total, {n: 7}))
with opened() as sess:
    running = Background(outcome, sess.run, total, {n: 10**9})
    time.sleep(0.5)
    os.kill(pid_of(sess), signal.SIGKILL)
    tell("killed in a step", running.result())
sess = opened()
os.kill(pid_of(sess), signal.SIGSTOP)
started = time.monotonic()
sess.close()
gone(pid_of(sess))
tell("stopped", time.monotonic() - started < 20, sess.receipt.clean)
for _ in range(3):
    sess = opened()
    def run():
        while sess.run(total, {n: 7}) == 7:
            pass
    runners = [Background(outcome, run) for _ in range(3)]
    time.sleep(0.1)
    closers = [Background(sess.close) for _ in range(2)]
    [closer.result() for closer in closers]
    told = {runner.result() for runner in runners}
    assert told <= {"RuntimeError", "CancelledError", "SessionClosed"}, told
    assert sess.receipt.clean
tell("closed by several")
with opened() as sess:
    child = os.fork()
    if child == 0:
        tell("in a fork", outcome(sess.run, total, {n: 7}))
        outcome(sess.close)
        os._exit(0)  # TensorFlow itself cannot be ended in a fork
    tell("forked", os.waitpid(child, 0)[1], sess.run(total, {n: 7}))
never_closed = opened()
"""


def test_a_drop_in_session_may_be_killed_stopped_closed_forked_and_forgotten_at_exit():
    assert run_to_end(DROP_IN, may_complain=True) == [
        "killed idle WorkerLost",
        "killed in a step WorkerLost",
        "stopped True True",
        "closed by several",
        "in a fork RuntimeError",
        "forked 0 7",
    ]


def test_a_client_killed_in_steps_of_tensorflow_takes_its_workers_along(files):
    code = f"""
del os.environ["SOJOURN_PRELOAD"]
from pathlib import Path
from faults.kinds import KINDS
for name in ("graph", "saved-model", "untrusted", "pool-lease"):
    kind = KINDS[name]
    def run(kind=kind):
        with kind.open(Path({str(files)!r})) as session:
            kind.step(session)
            tell(session.pid)
            session.run(kind.fetch, kind.slow)
    threading.Thread(target=run).start()
"""
    with client(code) as process:
        pids = [int(told(process)[0]) for _ in range(4)]
        time.sleep(0.5)  # the steps are under way
        process.kill()
        assert remaining(process.pid) == []
        for pid in pids:
            gone(pid)
