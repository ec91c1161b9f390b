"""Spare workers: ready ahead of time, and like any other once they are taken."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from clients import client, remaining, told
from faults.tools import stop, wait_until
from sojourn.probes import processes
from sojourn.process import spares
from sojourn.process.spares import standing

pytestmark = pytest.mark.usefixtures("zygote")

SUM = ("output", {"a": 1, "b": 2})


@pytest.fixture
def spare() -> Iterator[int]:
    """The process of a worker that is ready for a plain session."""
    sojourn.warm_up(spares=1, wait=True)
    try:
        yield standing.pids[0]
    finally:
        sojourn.warm_up(spares=0)


class TestOfPlainSessions:
    def test_the_next_session_takes_it_and_another_is_made(self, spare):
        with sojourn.open(models.adder) as session:
            assert session.pid == spare
            assert session.run(*SUM) == 3
            wait_until(lambda: standing.pids)
            assert standing.pids != (spare,)

    def test_they_end_when_they_are_no_longer_wanted(self, spare):
        sojourn.warm_up(spares=0)
        assert standing.pids == ()
        wait_until(lambda: not os.path.exists(f"/proc/{spare}"))

    def test_without_them_a_closed_session_leaves_no_process(self):
        with sojourn.open(models.adder):
            assert standing.pids == ()

    @pytest.mark.parametrize("count", [-1, 1.5, "1"])
    def test_their_number_is_checked(self, count):
        with pytest.raises((TypeError, ValueError), match="spares"):
            sojourn.warm_up(spares=count)

    def test_a_limit_is_in_force_from_the_start_hence_not_in_a_spare_worker(self, spare):
        with sojourn.open(models.adder, memory="512MiB") as session:
            assert session.pid != spare
        assert standing.pids == (spare,)

    def test_a_setting_that_frameworks_read_once_is_heeded(self, spare, monkeypatch):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
        with sojourn.open(models.adder) as session:
            assert session.pid != spare
        wait_until(lambda: standing.pids)
        with sojourn.open(models.adder) as session:
            assert session.pid not in (spare, *standing.pids)

    def test_its_life_is_reported(self, spare):
        heard: list[sojourn.events.Event] = []
        unsubscribe = sojourn.events.subscribe(heard.append)
        try:
            with sojourn.open(models.adder) as session:
                name = session.name
        finally:
            unsubscribe()
        mine = [event for event in heard if event.detail.get("worker_pid") == spare]
        started = next(event for event in mine if event.kind == "worker.started")
        assert started.session == name
        assert started.detail["was_spare"]
        assert "worker.ended" in [event.kind for event in mine]
        assert "spare.ended" not in [event.kind for event in mine]


def test_a_spare_worker_that_died_is_never_handed_out(spare):
    os.kill(spare, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{spare}"))
    with sojourn.open(models.adder) as session:
        assert session.pid != spare
        assert session.run(*SUM) == 3
    wait_until(lambda: standing.pids)
    assert standing.pids != (spare,)


def surroundings() -> Any:
    """What a worker sees."""

    def look() -> str:
        with open("/proc/self/cmdline", "rb") as line:
            title = line.read().rstrip(b"\0").decode()
        seen = os.getcwd(), os.environ.get("SPARE_TEST"), sys.path[-1], title
        return repr((*seen, float(np.random.random())))

    return look


def test_a_spare_worker_that_is_stopped_is_not_handed_out(spare):
    stop(spare)
    with sojourn.open(models.adder, timeout=30) as session:
        assert session.pid != spare
        assert session.run(*SUM) == 3
    wait_until(lambda: not os.path.exists(f"/proc/{spare}"))


def test_a_spare_worker_that_does_not_answer_costs_an_open_a_part_of_its_time(spare, monkeypatch):
    monkeypatch.setattr(processes, "is_stopped", lambda pid: False)  # it was not, a moment ago
    monkeypatch.setattr(spares, "_HAND_OVER_SECONDS", 0.5)
    stop(spare)
    with sojourn.open(models.adder) as session:
        assert session.pid != spare
        assert session.run(*SUM) == 3
    wait_until(lambda: not os.path.exists(f"/proc/{spare}"))


def test_it_sees_the_world_as_its_session_does(spare, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARE_TEST", "seen")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "more")])
    with sojourn.open(surroundings, name="mine") as session:
        assert session.pid == spare
        folder, variable, path, title, first = eval(session.run("output"))
    assert folder == str(tmp_path)
    assert variable == "seen"
    assert path == str(tmp_path / "more")
    assert title.startswith("sojourn: mine")
    wait_until(lambda: standing.pids)
    ready = standing.pids[0]
    with sojourn.open(surroundings) as session:
        assert session.pid == ready
        assert eval(session.run("output"))[-1] != first


def warning() -> Any:
    def warn() -> int:
        logging.getLogger("spares.test").warning("heard")
        return 1

    return warn


def test_what_it_logs_is_heard_once(spare, caplog):
    with sojourn.open(warning) as session:
        assert session.pid == spare
        session.run("output")
    assert [record.message for record in caplog.records if record.name == "spares.test"] == [
        "heard"
    ]


def random_graph() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    w = v1.get_variable("w", [8, 8])
    return {"x": x}, {"y": tf.nn.dropout(tf.matmul(x, w), 0.5)}


def random_function() -> Any:
    """Random ops inside functions, which TensorFlow numbers by what was made before."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")

        @tf.function
        def noisy(x: Any) -> Any:
            return x + tf.random.normal([8])

        tf.identity(noisy(x) + noisy(x * 2), name="y")
    return graph


def random_keras() -> Any:
    import keras

    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dropout(0.5)])


@pytest.mark.parametrize("build", [random_graph, random_function, random_keras])
def test_a_seed_gives_the_bits_of_a_fresh_worker(build):
    def results() -> tuple[int, list[np.ndarray]]:
        with sojourn.open(build, seed=7) as session:
            [x], [y, *_] = session.signature.inputs, session.signature.outputs
            feed = {x: np.ones((4, 8), np.float32)}
            return session.pid, [np.asarray(session.run(y, feed)) for _ in range(3)]

    _, fresh = results()
    sojourn.warm_up(spares=1, wait=True)
    try:
        spare = standing.pids
        pid, others = results()
    finally:
        sojourn.warm_up(spares=0)
    assert (pid,) == spare
    for one, other in zip(fresh, others, strict=True):
        np.testing.assert_array_equal(one, other)


# -- of a pool -----------------------------------------------------------------------------------


def ready(pool: sojourn.Pool) -> bool:
    return [spare.state for spare in pool.stats().spares] == ["ready"]


@pytest.fixture
def pool() -> Iterator[sojourn.Pool]:
    with sojourn.Pool(memory="1GiB", spares=1) as pool:
        pool.register("sum", models.softmax_regression)
        wait_until(lambda: ready(pool))
        yield pool


def test_a_spare_worker_of_a_pool_that_died_is_replaced_at_once(pool):
    [worker] = pool._driver.spares.values()
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: pool.stats().counters["spares_lost"] == 1)
    wait_until(lambda: ready(pool))
    with pool.lease("sum") as session:
        assert session.pid != worker.pid


class TestOfAPool:
    def test_it_is_charged_taken_and_replaced(self, pool):
        [spare] = pool.stats().spares
        assert 2**20 < spare.bytes == pool.stats().charged_bytes
        assert repr(pool).endswith("| 0 leased, 0 idle, 0 waiting, 1 spare>")
        [pid] = [worker.pid for worker in pool._driver.spares.values()]
        with pool.lease("sum") as session:
            assert session.pid == pid
        assert pool.stats().counters["spares_taken"] == 1
        wait_until(lambda: ready(pool))
        assert pool.stats().copies[0].bytes + pool.stats().spares[0].bytes == (
            pool.stats().charged_bytes
        )

    def test_a_model_with_a_limit_gets_a_worker_of_its_own(self, pool):
        pool.register("limited", models.adder, memory="256MiB")
        with pool.lease("limited") as session:
            assert session.run(*SUM) == 3
        assert ready(pool)

    def test_one_that_does_not_fit_after_all_is_ended(self, pool, monkeypatch):
        [worker] = pool._driver.spares.values()
        pid = worker.pid
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
        with pool.lease("sum") as session:
            assert session.pid != pid
            assert not os.path.exists(f"/proc/{pid}")

    def test_a_pool_that_closes_while_one_is_made_leaves_none(self):
        with sojourn.Pool(spares=2):
            pass

    def test_it_has_its_numbers_in_the_metrics(self, pool):
        assert "sojourn_pool_spares{" in sojourn.metrics()


# -- ends ----------------------------------------------------------------------------------------

STANDING = """
sojourn.warm_up(spares=1, wait=True)
pool = sojourn.Pool(spares=1)
pool.register("sum", models.adder)
while [spare.state for spare in pool.stats().spares] != ["ready"]:
    time.sleep(0.01)
tell("ready")
"""


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "sys.exit()",
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
        "os._exit(0)",
    ],
)
def test_none_outlives_its_program(end):
    with client(STANDING + end) as program:
        assert told(program) == ["ready"]
        program.wait(60)
        assert remaining(program.pid) == []


def test_a_fork_has_none_of_its_parents(spare):
    pid = os.fork()
    if pid == 0:
        os._exit(len(standing.pids))
    assert os.waitpid(pid, 0)[1] == 0
    with sojourn.open(models.adder) as session:
        assert session.pid == spare
        assert session.run(*SUM) == 3
