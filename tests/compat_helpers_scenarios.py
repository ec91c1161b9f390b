"""Scenarios of TensorFlow's classes on top of sessions: supervisors, monitored sessions, hooks."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session as tf_session
from tensorflow.python.client import timeline
from tensorflow.python.training import monitored_session, session_manager

from compat_scenarios import outcome, scenario, several

v1 = tf.compat.v1


class _Namespace:
    """TensorFlow's session module with another session class in it."""

    def __init__(self, session: Any) -> None:
        self.Session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(tf_session, name)


@contextlib.contextmanager
def opened_by_helpers(session: Any) -> Iterator[None]:
    """Make TensorFlow's own helpers open sessions of this class."""
    before = session_manager.session
    session_manager.session = _Namespace(session)
    try:
        yield
    finally:
        session_manager.session = before


def _model() -> tuple[Any, Any, Any]:
    step = v1.train.get_or_create_global_step()
    w = v1.get_variable("w", initializer=[1.0, 2.0])
    loss = tf.reduce_sum(tf.square(w))
    return step, loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)


@scenario
def monitored_sessions(session: Any) -> Any:
    with opened_by_helpers(session), tf.Graph().as_default():
        step, loss, train = _model()
        seen = []
        with v1.train.MonitoredSession(hooks=[v1.train.StopAtStepHook(last_step=4)]) as s:
            while not s.should_stop():
                seen.append(s.run([train, loss])[1])
        with v1.train.SingularMonitoredSession() as s:
            seen.append(s.run(step))
            seen.append(isinstance(s.raw_session(), v1.Session))
            seen.append(s.run_step_fn(lambda step_context: step_context.session.run(loss)))
        return [*seen, outcome(lambda: s.run(step))[0]]


@scenario
def monitored_training_with_every_hook(session: Any) -> Any:
    class Noting(v1.train.SessionRunHook):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def begin(self) -> None:
            self.seen.append("begin")

        def after_create_session(self, session: Any, coordinator: Any) -> None:
            self.seen.append("created")

        def before_run(self, context: Any) -> Any:
            return v1.train.SessionRunArgs({"loss": loss})

        def after_run(self, context: Any, values: Any) -> None:
            self.seen.append(values.results)

        def end(self, session: Any) -> None:
            self.seen.append(session.run(step))

    with (
        tempfile.TemporaryDirectory() as folder,
        opened_by_helpers(session),
        tf.Graph().as_default(),
    ):
        step, loss, train = _model()
        v1.summary.scalar("loss", loss)
        x = v1.placeholder_with_default(0.0, [], name="x")
        noting = Noting()
        hooks = [
            noting,
            v1.train.StopAtStepHook(num_steps=5),
            v1.train.LoggingTensorHook({"loss": loss}, every_n_iter=2),
            v1.train.NanTensorHook(loss),
            v1.train.FinalOpsHook([loss]),
            v1.train.FeedFnHook(lambda: {x: 3.0}),
            v1.train.ProfilerHook(save_steps=2, output_dir=folder),
        ]
        fed = []
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=2, save_summaries_steps=2,
            log_step_count_steps=2,
        ) as s:  # fmt: skip
            while not s.should_stop():
                fed.append(s.run([train, x])[1])
        kinds = sorted({p.name.split("-")[0].split(".")[0] for p in Path(folder).iterdir()})
        with v1.train.MonitoredTrainingSession(checkpoint_dir=folder) as s:
            restored = s.run(step)
        return [*noting.seen, fed, hooks[4].final_ops_values, kinds, restored]


@scenario
def a_step_that_fails_in_a_monitored_session(session: Any) -> Any:
    with opened_by_helpers(session), tf.Graph().as_default():
        _, loss, _ = _model()
        x = v1.placeholder(tf.float32, [], name="x")
        nan = loss * x

        def stopped_by_nan() -> None:
            with v1.train.MonitoredSession(hooks=[v1.train.NanTensorHook(nan)]) as s:
                s.run(nan, {x: np.nan})

        def aborted() -> Any:
            attempts = []
            fails = tf.numpy_function(lambda: attempts.append(1), [], [])
            creator = monitored_session.ChiefSessionCreator()
            with v1.train.MonitoredSession(creator) as s:
                s.run(fails)
                return len(attempts)

        return several(stopped_by_nan, aborted)


@scenario
def session_managers(session: Any) -> Any:
    with (
        tempfile.TemporaryDirectory() as folder,
        opened_by_helpers(session),
        tf.Graph().as_default(),
    ):
        v = v1.get_variable("v", initializer=3.0)
        saver = v1.train.Saver()
        manager = session_manager.SessionManager(ready_op=v1.report_uninitialized_variables())
        seen = []
        with manager.prepare_session("", init_op=v.initializer, saver=saver) as s:
            seen.append(s.run(v))
            s.run(v.assign(8.0))
            saver.save(s, f"{folder}/model")
        recovered, is_loaded = manager.recover_session("", saver, checkpoint_dir=folder)
        seen += [is_loaded, recovered.run(v)]
        recovered.close()
        failing = outcome(lambda: manager.prepare_session("", init_op=tf.no_op()))
        late = outcome(lambda: manager.wait_for_session("", max_wait_secs=1))
        return [*seen, failing[0], late[0]]


@scenario
def supervisors(session: Any) -> Any:
    with (
        tempfile.TemporaryDirectory() as folder,
        opened_by_helpers(session),
        tf.Graph().as_default(),
    ):
        step, loss, train = _model()
        v1.summary.scalar("loss", loss)
        supervisor = v1.train.Supervisor(
            logdir=folder, save_model_secs=0, save_summaries_secs=0, global_step=step
        )
        seen = []
        with supervisor.managed_session() as s:
            seen += [s.run([train, loss])[1] for _ in range(3)]
            supervisor.saver.save(s, supervisor.save_path, global_step=step)
            seen.append(supervisor.should_stop())
        with supervisor.managed_session() as s:
            seen.append(s.run(step))
        return seen


@scenario
def timelines(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        a = tf.random.normal([4, 4], name="a")
        b = tf.matmul(a, a, name="b")
        told = v1.RunMetadata()
        s.run(b, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=told)
        made = timeline.Timeline(told.step_stats)
        text = made.generate_chrome_trace_format(show_memory=True)
        made.analyze_step_stats()
        names = {
            node.node_name for device in told.step_stats.dev_stats for node in device.node_stats
        }
        return len(text) > 100, {"a/RandomStandardNormal", "b"} <= names


@scenario
def interactive_sessions(session: Any) -> Any:
    from sojourn.compat.v1 import InteractiveSession

    if session is v1.Session:
        opened = v1.InteractiveSession
    else:

        def opened(**given: Any) -> Any:
            return InteractiveSession(isolation=session._isolation, **given)

    with tf.Graph().as_default():
        c = tf.constant(4.0)
        s = opened()
        seen = [c.eval(), v1.get_default_session() is s, isinstance(s, v1.InteractiveSession)]
        s.close()
        s.close()
        seen += [v1.get_default_session() is None, *several(c.eval, lambda: s.run(c))]
    graph = tf.Graph()
    s = opened(graph=graph)
    seen.append(v1.get_default_graph() is graph)
    seen.append(tf.constant(5).eval())
    s.close()
    return [*seen, v1.get_default_graph() is graph]


@scenario
def resets(session: Any) -> Any:
    with tf.Graph().as_default():
        c = tf.constant(1)
        s = session()
        seen = [s.run(c)]
        session.reset("")
        seen += several(lambda: s.run(c))
        s.close()
        return seen + several(lambda: s.run(c))


@scenario
def sessions_under_tensorflows_own_names(session: Any) -> Any:
    from sojourn.compat.v1 import InteractiveSession

    class Other(session):  # type: ignore[misc]
        pass

    if session is v1.Session:
        # TensorFlow's own class cannot be replaced by a subclass, so it is compared as it is.
        names = {}
    else:
        interactive = type("Interactive", (InteractiveSession,), {"_isolation": session._isolation})
        names = {"Session": Other, "InteractiveSession": interactive}
    with contextlib.ExitStack() as stack:
        for name, stand_in in names.items():
            stack.enter_context(mock.patch.object(tf_session, name, stand_in))
        stack.enter_context(tf.Graph().as_default())
        c = tf.constant(2)
        with tf_session.Session() as s:
            seen = [c.eval(), isinstance(s, v1.Session), isinstance(s, tf_session.Session)]
        s = tf_session.InteractiveSession()
        seen += [c.eval(), v1.get_default_session() is s]
        s.close()
        seen.append(v1.get_default_session() is None)
        with monitored_session.SingularMonitoredSession() as monitored:
            seen += [monitored.run(c), type(monitored.raw_session()) is tf_session.Session]
        s = tf_session.Session()
        s.run(c)
        tf_session.Session.reset("")
        seen += several(lambda: s.run(c))
        s.close()
        return seen


@scenario
def clocks_that_somebody_turns(session: Any) -> Any:
    """Mock `time.time` and `time.sleep`, as tests of training loops do, at first without values."""
    with (
        mock.patch.object(time, "time") as now,
        mock.patch.object(time, "sleep", side_effect=AssertionError("nobody shall sleep")),
        tf.Graph().as_default(),
        session() as s,
    ):
        step = v1.train.get_or_create_global_step()
        go_on = step.assign_add(1)
        s.run(step.initializer)
        seen = []
        for _ in range(6):
            seen.append(s.run(go_on))
            now.return_value = 1000.0 * len(seen)
        return seen
