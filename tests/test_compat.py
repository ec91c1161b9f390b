"""The life of a drop-in session: what TensorFlow's own does not have."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
    from tensorflow.python.framework import test_util

    from compat_helpers_scenarios import opened_by_helpers

import sojourn
from sojourn.compat.v1 import InteractiveSession, Session, link
from sojourn.compat.v1.plans import RunPlan
from sojourn.compat.v1.shipping import Shipment
from sojourn.compat.v1.worker_link import WorkerLink
from sojourn.probes import gpu
from sojourn.session.listing import Lister
from sojourn.testing.injection import interrupted
from stand_in_nvml import GIB, Device, StandIn

v1 = tf.compat.v1
pytestmark = [
    pytest.mark.usefixtures("zygote"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]
ISOLATIONS = pytest.mark.parametrize("isolation", ["process", "inline"])


@pytest.fixture
def graph() -> Any:
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None], name="x")
        v = v1.get_variable("v", initializer=[1.0])
        tf.identity(x * 2, name="y")
        tf.identity(v.assign_add([1.0]), name="add")
        v1.global_variables_initializer()
    return graph


def test_importing_sojourn_loads_no_tensorflow() -> None:
    code = "import sys, sojourn.compat; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_an_isolated_session_runs_in_a_process_of_its_own(graph: Any) -> None:
    with graph.as_default():
        where = tf.numpy_function(lambda: np.int64(os.getpid()), [], tf.int64)
    with Session(graph=graph) as s:
        pid = s._link.stay.pid
        assert pid != os.getpid()
        assert s.run(where) == os.getpid()  # but Python functions stay with their maker
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_function_is_called_where_no_further_thread_can_be_had(
    graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with graph.as_default():
        three = tf.numpy_function(lambda: np.float32(3), [], tf.float32)
    start, started = threading.Thread.start, []

    def scarce(thread: threading.Thread) -> None:
        started.append(thread.name)
        if started.count("sojourn-answers-short") > 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    with Session(graph=graph, name="short") as s:
        assert [s.run(three) for _ in range(3)] == [3, 3, 3]
    assert started.count("sojourn-answers-short") > 1
    assert s.receipt.clean


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Two GPUs as the driver would show them, and a TensorFlow that was built for such."""
    stand_in = StandIn(Device("GPU-aaaa"), Device("GPU-bbbb"))
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(link.tf_test, "is_built_with_gpu_support", lambda: True)
    gpu.forget()
    yield stand_in
    gpu.forget()


def test_the_bytes_on_gpus_are_asked_of_the_driver(
    graph: Any, nvml: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(graph=graph, config=v1.ConfigProto()) as s:
        nvml.devices[1].processes[s._link.stay.pid] = GIB
        assert s._link.stay.footprint().device_bytes == {"GPU-bbbb": GIB}
        monkeypatch.setattr(gpu, "wait_until_back", lambda pids: gpu.held_by(pids))
    assert s.receipt.held_on_device == {"GPU-bbbb": GIB}
    assert s.receipt.residue.device_bytes == {"GPU-bbbb": GIB}
    assert not s.receipt.clean


def test_a_session_is_listed_with_the_devices_that_it_may_use(
    graph: Any, nvml: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without one, TensorFlow's own default says how many there are, and here there are none.
    plain = v1.ConfigProto()

    def listed(config: Any = plain, **options: Any) -> str:
        with Session(graph=graph, config=config, name="listed", **options):
            [one] = [each for each in Lister().list() if each.client_pid == os.getpid()]
            return one.device

    assert listed() == "gpu:0,1"
    assert listed(isolation="inline") == "gpu:0,1"
    assert listed(config=v1.ConfigProto(device_count={"GPU": 0})) == "cpu"
    only = v1.ConfigProto(gpu_options=v1.GPUOptions(visible_device_list="1"))
    assert listed(config=only) == "gpu:1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert listed() == "gpu:0"
    monkeypatch.setattr(link.tf_test, "is_built_with_gpu_support", lambda: False)
    assert listed() == "cpu"


@pytest.mark.parametrize("memory", [0, "0", "lots"])
def test_a_limit_of_memory_that_makes_no_sense_is_refused(graph: Any, memory: Any) -> None:
    with pytest.raises(ValueError, match="memory"):
        Session(graph=graph, memory=memory)


@ISOLATIONS
def test_a_step_after_the_close_names_the_line_that_closed_it(graph: Any, isolation: str) -> None:
    session = Session(graph=graph, isolation=isolation)
    session.close()
    closed = r"^Attempted to use a closed Session\. It was closed at .*test_compat\.py:\d+\.$"
    with pytest.raises(RuntimeError, match=closed):
        session.run("y:0", {"x:0": [1.0]})
    with pytest.raises(RuntimeError, match=closed):
        session.partial_run_setup(["y:0"], ["x:0"])
    with pytest.raises(RuntimeError, match=closed):
        session.partial_run("a handle", ["y:0"], {"x:0": [1.0]})


def test_a_session_that_is_pickled_says_what_to_send_instead(graph: Any) -> None:
    with (
        Session(graph=graph) as session,
        pytest.raises(TypeError, match=r"cannot be pickled: .*open a session there"),
    ):
        pickle.dumps(session)


def test_a_session_has_no_public_method_that_tensorflows_own_does_not_have() -> None:
    def methods(session: type) -> set[str]:
        names = {name for name, _ in inspect.getmembers(session, inspect.isfunction)}
        return {name for name in names if not name.startswith("_") or name.endswith("__")}

    assert methods(Session) <= methods(v1.Session)


@ISOLATIONS
def test_a_closed_session_has_a_receipt(graph: Any, isolation: str) -> None:
    s = Session(graph=graph, isolation=isolation, name="counted")
    assert s.receipt is None
    for _ in range(5):
        s.run("y:0", {"x:0": [1]})
    s.close()
    receipt = s.receipt
    assert receipt is not None
    assert (receipt.session, receipt.runs) == ("counted", 5)
    assert receipt.clean == (isolation == "process") or receipt.held_bytes == 0
    s.close()
    assert s.receipt is receipt


def test_events_name_the_users_line(graph: Any) -> None:
    told: list[sojourn.events.Event] = []
    stop = sojourn.events.subscribe(told.append)
    try:
        with Session(graph=graph, name="told") as s:
            s.run("y:0", {"x:0": [1]})
    finally:
        stop()
    mine = [event for event in told if event.session == "told"]
    opened = next(event for event in mine if event.kind == "session.opening")
    assert opened.place is not None
    assert opened.place.file == __file__
    closed = next(event for event in mine if event.kind == "session.receipt")
    assert closed.place is not None
    assert closed.place.file == __file__


@ISOLATIONS
def test_a_forgotten_session_is_closed_and_reported(graph: Any, isolation: str) -> None:
    s = Session(graph=graph, isolation=isolation)
    s.run("y:0", {"x:0": [1]})
    stay = s._link.stay
    with pytest.warns(ResourceWarning, match=r"test_compat\.py:\d+, was never closed"):  # noqa: PT031
        del s
        gc.collect()
    for thread in threading.enumerate():
        if thread.name == "sojourn-forgotten":
            thread.join(120)
    assert stay.receipt is not None


def test_nothing_is_kept_alive_by_plans_and_callables(graph: Any) -> None:
    s = Session(graph=graph, isolation="inline")
    for _ in range(6):
        s.run("y:0", {"x:0": [1]})
    s.close()
    stay = s._link.stay
    del s  # by reference counts alone
    assert stay.receipt is not None
    assert not [o for o in gc.get_objects() if type(o) is Session and o._link.stay is stay]


def test_a_dead_worker_is_reported_with_how_it_died(graph: Any) -> None:
    s = Session(graph=graph)
    s.run("y:0", {"x:0": [1]})
    os.kill(s._link.stay.pid, signal.SIGKILL)
    with pytest.raises(sojourn.SessionBroken, match="SIGKILL"):
        for _ in range(100):
            s.run("y:0", {"x:0": [1]})
    with pytest.raises(sojourn.SessionBroken):
        s.run("y:0", {"x:0": [1]})
    s.close()
    assert s.receipt is not None


def test_files_are_where_the_caller_is(tmp_path: Any, monkeypatch: Any) -> None:
    with tf.Graph().as_default(), Session() as s:
        write = tf.io.write_file("here.txt", "text")
        for folder in ("one", "two", "three", "four", os.fsdecode(b"\xff")):
            (tmp_path / folder).mkdir()
            monkeypatch.chdir(tmp_path / folder)
            s.run(write)
            assert (tmp_path / folder / "here.txt").read_text() == "text"
        for _ in range(20):  # a name that is longer than a path can be
            os.mkdir("f" * 250)
            os.chdir("f" * 250)
        s.run(write)
        assert os.path.exists("here.txt")


def test_a_monitored_session_recovers_when_its_worker_dies(tmp_path: Any) -> None:
    opened: list[Any] = []

    class Noted(Session):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            opened.append(self)

    with opened_by_helpers(Noted), tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        go_on = step.assign_add(1)
        seen = []
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=1, save_summaries_steps=None,
            log_step_count_steps=None,
        ) as s:  # fmt: skip
            for i in range(6):
                if i == 3:
                    os.kill(opened[0]._link.stay.pid, signal.SIGKILL)
                seen.append(int(s.run(go_on)))
    assert seen == [1, 2, 3, 4, 5, 6]
    assert len(opened) == 2
    v1.summary.FileWriterCache.clear()


@ISOLATIONS
def test_results_outlive_the_session(graph: Any, isolation: str) -> None:
    with Session(graph=graph, isolation=isolation) as s:
        s.run("init")
        kept = [s.run("add:0") for _ in range(8)]
    assert [value.tolist() for value in kept] == [[float(i)] for i in range(2, 10)]


def test_only_known_isolations_and_targets(graph: Any) -> None:
    with pytest.raises(ValueError, match="isolation must be"):
        Session(graph=graph, isolation="thread")
    with pytest.raises(tf.errors.NotFoundError, match="No session factory registered"):
        Session("nowhere", graph=graph)


def test_the_workers_traceback_is_the_cause(graph: Any) -> None:
    with Session(graph=graph) as s:
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value") as caught:
            s.run("y:0")
        assert caught.value.op.name == "x"
        assert isinstance(caught.value.__cause__, sojourn.RemoteTraceback)


def test_the_same_structure_takes_the_cached_plan(graph: Any) -> None:
    with Session(graph=graph) as s:
        for i in range(4):
            assert s.run(["y:0", {"k": "y:0"}], {"x:0": [i]})[1]["k"].tolist() == [2.0 * i]
        assert s._plans.find(["y:0", {"k": "y:0"}], {"x:0": [1]}) is not None
        wanted = {"k": "y:0"}
        for _ in range(4):
            assert list(s.run(wanted, {"x:0": [1]})) == ["k"]
        del wanted["k"]
        wanted["other"] = "x:0"
        assert s.run(wanted, {"x:0": [1]}).keys() == {"other"}


def test_a_graph_may_grow_in_one_thread_while_another_runs() -> None:
    with tf.Graph().as_default() as graph, Session() as s:
        one = tf.constant(1.0, name="one")
        stop = threading.Event()
        failed: list[BaseException] = []

        def build() -> None:
            with graph.as_default():
                value = one
                while not stop.wait(0.001):
                    value = tf.add(value, 1.0)

        def use() -> None:
            try:
                for _ in range(40):
                    assert s.run(graph.get_operations()[-1].outputs[0]) >= 1
            except BaseException as error:
                failed.append(error)

        builder, user = threading.Thread(target=build), threading.Thread(target=use)
        builder.start()
        user.start()
        user.join()
        stop.set()
        builder.join()
        assert not failed


def test_a_graph_whose_way_to_the_worker_is_interrupted_arrives_later(monkeypatch: Any) -> None:
    with tf.Graph().as_default(), Session() as session:
        x = tf.constant(1.0)
        assert session.run(x) == 1.0
        y = x + tf.constant(2.0)

        def stopped(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Shipment, "arrived", stopped)
            with pytest.raises(KeyboardInterrupt):
                session.run(y)
        assert session.run(y) == 3.0
        assert session.run(y * 2.0) == 6.0


def test_a_plan_that_another_thread_has_dropped_is_dropped_once(monkeypatch: Any) -> None:
    with tf.Graph().as_default(), Session() as session:
        x = tf.constant(1.0)
        for _ in range(3):
            session.run(x)
        plans = session._plans._plans
        assert list(filter(None, plans.values()))
        tf.constant(2.0)  # a plan is looked at again when the graph has grown

        def dropped(_: Any) -> bool:
            plans.clear()
            return False

        monkeypatch.setattr(RunPlan, "still_holds", dropped)
        assert session.run(x) == 1.0


@ISOLATIONS
def test_a_close_that_is_interrupted_at_any_point_ends_the_worker_or_the_next_close_does(
    graph: Any, isolation: str
) -> None:
    def close(n: int) -> list[str]:
        session = Session(graph=graph, isolation=isolation)
        session.run("init")
        with contextlib.suppress(KeyboardInterrupt), interrupted(n) as where:
            session.close()
        session.close()
        assert session.receipt is not None, where
        assert session.receipt.clean or isolation == "inline", where
        with pytest.raises(RuntimeError, match="closed Session"):
            session.run("y:0")
        return where

    ours = [n for n, place in enumerate(close(0), 1) if "/compat/v1/" in place]
    assert len(ours) > 5
    for n in ours:
        close(n)


def test_ctrl_c_while_a_close_cancels_is_answered_at_once_and_ends_the_worker(
    graph: Any, monkeypatch: Any
) -> None:
    session = Session(graph=graph)
    session.run("init")

    def stuck(_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(WorkerLink, "cancel", stuck)
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert session.receipt is not None
    assert session.receipt.clean


@pytest.mark.parametrize("make", [v1.Session, Session])
def test_a_graph_that_no_device_can_run_is_refused_in_the_same_words_each_time(
    make: Any,
) -> None:
    with tf.Graph().as_default(), make() as session:
        x = tf.constant(1.0)
        assert session.run(x) == 1.0
        unheard_of = v1.placeholder(tf.dtypes.as_dtype("float8_e4m3fnuz"), [None])
        tf.concat([unheard_of, unheard_of], 0, name="without_a_kernel")
        for fetch in (x, tf.constant(2.0), x):
            with pytest.raises(tf.errors.InvalidArgumentError, match="without_a_kernel"):
                session.run(fetch)


def test_a_second_interactive_session_is_warned_of(graph: Any, caplog: Any) -> None:
    one = InteractiveSession(graph=graph)
    two = InteractiveSession(graph=graph)
    assert v1.get_default_session() is two
    two.close()
    one.close()
    assert v1.get_default_session() is None
    assert one.receipt is not None
    assert one.receipt.clean


def test_interactive_sessions_are_counted_together(graph: Any) -> None:
    class Derived(InteractiveSession):
        pass

    before = v1.InteractiveSession._active_session_count
    s = Derived(graph=graph)
    counts = {
        kind._active_session_count for kind in (v1.InteractiveSession, InteractiveSession, Derived)
    }
    assert counts == {before + 1}
    s.close()
    Derived._active_session_count = 0  # which is how TensorFlow's own tests begin
    assert v1.InteractiveSession._active_session_count == 0


def test_a_session_with_a_target_needs_no_worker(graph: Any) -> None:
    with Session("grpc://127.0.0.1:9", graph=graph) as s:  # it connects with the first step
        assert s._link.stay.pid == os.getpid()
    assert s.receipt is not None


@ISOLATIONS
def test_tensorflows_own_test_case_runs_on_it(monkeypatch: Any, isolation: str) -> None:
    noted: list[str] = []

    class Noting(Session):
        _isolation = isolation

        def run(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().run(*args, **kwargs)
            except tf.errors.OpError as error:
                noted.append(type(error).__name__)
                raise

    class Case(test_util.TensorFlowTestCase):  # type: ignore[misc]
        def runTest(self) -> None:
            with tf.Graph().as_default(), self.session() as s:
                x = v1.placeholder(tf.float32, [])
                self.assertAllEqual(s.run(x * 2, {x: 2}), 4)
                with self.assertRaisesOpError("must feed a value"):
                    s.run(x + 1)
            with tf.Graph().as_default(), self.cached_session() as s:
                assert isinstance(s, Noting)
                assert self.evaluate(tf.constant(3)) == 3
                threads = [self.checkedThread(s.run, (tf.constant(i),)) for i in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

    monkeypatch.setattr(test_util, "ErrorLoggingSession", Noting)
    result = unittest.TestResult()
    Case().run(result)
    assert not result.errors + result.failures
    assert noted == ["InvalidArgumentError"]


def test_a_fork_leaves_its_parents_session_alone(graph: Any) -> None:
    with Session(graph=graph) as s:
        assert s.run("y:0", {"x:0": [1]}).tolist() == [2.0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            try:
                s.run("y:0", {"x:0": [1]})
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert s.run("y:0", {"x:0": [3]}).tolist() == [6.0]


def test_a_memory_limit_is_tensorflows_error_and_ours():
    with tf.Graph().as_default() as graph:
        size = v1.placeholder(tf.int32, [])
        ones = tf.reduce_sum(tf.ones([size, 2**18]))
    with Session(graph=graph, memory="128MiB") as session:
        with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM when allocating") as caught:
            session.run(ones, {size: 4096})
        assert isinstance(caught.value, sojourn.BudgetExceeded)
        assert "memory='128MiB' was reached: the worker held " in str(caught.value)
        assert session.run(ones, {size: 4}) == 2**20
