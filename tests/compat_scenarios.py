"""Scenarios of programs that use a session. Each gets a session class and returns what it observed.

They run with TensorFlow's own class and with sojourn's, and both must observe the same.
"""

from __future__ import annotations

import collections
import functools
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_ops, script_ops
from tensorflow.python.training import queue_runner_impl

v1 = tf.compat.v1
_MADE_AT = re.compile(r"Detected at node .*?(?=\nNode: )", re.DOTALL)
_PASSED_THROUGH = re.compile(r"\nTraceback|\n\S*InTheCaller")
_CLOSED_AT = re.compile(r" It was closed at \S.*:\d+\.$")  # what sojourn adds to the message
SCENARIOS: dict[str, Callable[[Any], Any]] = {}


def scenario(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    SCENARIOS[function.__name__] = function
    return function


def outcome(function: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error, with the op that TensorFlow blames."""
    try:
        return function()
    except Exception as error:
        op = getattr(error, "op", None)
        message = getattr(error, "message", None) or str(error)
        # The rest of the message says where the op was made, and how the call got there.
        message = _MADE_AT.sub("", message).partition("\n\nOriginal stack trace")[0]
        message = _CLOSED_AT.sub("", _PASSED_THROUGH.split(message)[0])
        return type(error).__name__, message, op.name if op is not None else None


def several(*functions: Callable[[], Any]) -> list[Any]:
    return [outcome(function) for function in functions]


# -- fetches ---------------------------------------------------------------------------------------


@scenario
def every_fetch_structure(session: Any) -> Any:
    pair = collections.namedtuple("pair", "left right")
    with tf.Graph().as_default(), session() as s:
        a, b = tf.constant([1.0, 2.0], name="a"), tf.constant(3, name="b")
        v = v1.get_variable("v", initializer=[5.0])
        old = v1.get_variable("old", initializer=[6.0], use_resource=False)
        nothing = tf.no_op(name="nothing")
        sparse = tf.SparseTensor([[0, 1]], [7.0], [2, 2])
        slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]), tf.constant([3, 1]))
        open_slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]))
        ragged = tf.ragged.constant([[1, 2], [3]])
        s.run(v1.global_variables_initializer())
        structures = [
            a, b, v, old, nothing, "a:0", "b", "nothing", a.op, [], [a], (a, b), [a, a, [b, (a,)]],
            {"x": a, "y": [b, nothing]}, pair(a, b), pair([a], {"k": b}), {}, (), [nothing],
            collections.OrderedDict([("z", a), ("y", b)]), sparse, [sparse, a], slices, open_slices,
            ragged, {"r": ragged, "s": slices}, [v, old], None, [None], [a, None], 1, 1.5, b"a:0",
            "missing:0", "missing", "a:3", object, {"x": "y"},
            collections.defaultdict(list, {1: a}),
        ]  # fmt: skip
        return [
            outcome(lambda structure=structure: s.run(structure))
            for structure in structures
            for _ in range(3)
        ]


@scenario
def attrs_classes(session: Any) -> Any:
    import attr

    @attr.s
    class Two:
        first = attr.ib()
        second = attr.ib()

    with tf.Graph().as_default(), session() as s:
        a, b = tf.constant(1), tf.constant(2.5)
        two = s.run(Two(first=a, second=[b]))
        nested = s.run({"k": Two(a, Two(a, b))})
        return two.first, two.second, nested["k"].second.second


@scenario
def types_of_results(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        kinds = [
            tf.float16, tf.float32, tf.float64, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64,
            tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128,
        ]  # fmt: skip
        found = []
        for kind in kinds:
            scalar = tf.cast(tf.constant(1), kind)
            empty = tf.cast(tf.constant([], tf.int32), kind)
            found += [s.run([scalar, empty]), s.run(scalar), s.run(scalar[None, None])]
        text = tf.constant([[b"a\0", b""], [b"\xff", "ü".encode()]])
        found += [s.run(text), s.run(text[0, 0]), s.run([text[0:0], tf.constant("x")])]
        quantized = tf.quantization.quantize(tf.constant([0.5]), 0.0, 1.0, tf.quint8)
        return [*found, s.run(quantized)]


@scenario
def duplicates_and_fetched_feeds(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [None])
        y = x * 2
        return [
            s.run(fetches, {x: [1, 2]})
            for fetches in (x, [x, y], [x, x, y, y], {"x": x, "deep": [x, y]})
            for _ in range(4)
        ]


# -- feeds -----------------------------------------------------------------------------------------


@scenario
def every_feed(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        n = v1.placeholder(tf.int32, [], name="n")
        small = v1.placeholder(tf.uint8, [], name="small")
        text = v1.placeholder(tf.string, [None], name="text")
        anything = v1.placeholder(tf.float32, name="anything")
        constant = tf.constant(4.0, name="constant")
        v = v1.get_variable("v", initializer=[1.0])
        old = v1.get_variable("old", initializer=[1.0], use_resource=False)
        sparse = v1.sparse_placeholder(tf.float32)
        fed_sparse = v1.SparseTensorValue([[0, 0]], [2.0], [2, 2])
        slices = tf.IndexedSlices(v1.placeholder(tf.float32, [1]), v1.placeholder(tf.int32, [1]))
        outputs = {
            "x": tf.identity(x), "n": n + 0, "small": small + 0, "text": tf.identity(text),
            "anything": tf.identity(anything), "constant": constant + 1, "v": v + 1, "old": old + 1,
        }  # fmt: skip
        s.run(v1.global_variables_initializer())
        given = [
            ("x", {x: [[1, 2]]}), ("x", {x: ((1, 2), (3, 4))}), ("x", {x: np.ones((0, 2))}),
            ("x", {x: np.asfortranarray(np.arange(6.0).reshape(3, 2))}), ("x", {x: [1, 2]}),
            ("x", {x: np.ones((2, 3))}), ("x", {"x:0": np.ones((1, 2), ">f4")}), ("x", {}),
            ("x", {x: np.ones((1, 4), np.float16)[:, ::2]}), ("x", {x: "text"}), ("x", None),
            ("n", {n: 3}), ("n", {n: True}), ("n", {n: 2**40}), ("n", {n: 2.7}), ("n", {n: [1]}),
            ("n", {n: np.int64(5)}), ("n", {n: None}), ("small", {small: 256}), ("n", {n: "3"}),
            ("small", {small: -1}), ("small", {small: 255}), ("text", {text: ["a", b"b", "ü"]}),
            ("text", {text: np.array(["a", "bc"])}), ("text", {text: np.array([b"a", b"bc"])}),
            ("text", {text: [1]}), ("text", {text: [None]}), ("text", {text: []}),
            ("anything", {anything: 1}), ("anything", {anything: np.ones((1, 1, 1))}),
            ("constant", {constant: 9}), ("constant", {constant: [1, 2]}), ("v", {v: [3.0]}),
            ("old", {old: [3.0]}), ("x", {"x": [[1, 2]]}), ("x", {"missing:0": 1}), ("n", {n: n}),
            ("n", {1: 1}), ("n", {n.op: 1}), ("x", {(x, n): (np.ones((1, 2)), 2)}),
            ("n", {(x, n): (np.ones((1, 2)), 2)}), ("x", {x: [[1, 2]], "x:0": [[3, 4]]}),
        ]  # fmt: skip
        found = [
            outcome(lambda name=name, feeds=feeds: s.run(outputs[name], feeds))
            for name, feeds in given
            for _ in range(3)
        ]
        dense = tf.sparse.to_dense(sparse)
        for _ in range(3):
            found.append(s.run(dense, {sparse: fed_sparse}))
            found.append(s.run(slices.values + 1, {slices: (np.ones(1), np.zeros(1))}))
        return found


@scenario
def the_same_step_with_other_shapes_and_types(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [None, None], name="x")
        total = tf.reduce_sum(x)
        values = [np.ones((2, 2), np.float32), np.ones((3, 1)), [[1]], np.ones((2, 2), np.int64)]
        values += [np.ones((2, 2)) > 0, np.ones(3), [[]], np.ones((5, 5), np.float32), 7, [["a"]]]
        return [
            outcome(lambda value=value: s.run([total, x * 2], {x: value}))
            for _ in range(4)
            for value in values
        ]


@scenario
def a_fed_array_may_be_used_again(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [1024])
        v = v1.get_variable("v", [1024], use_resource=True)
        old = v1.get_variable("old", [1024], use_resource=False)
        put = tf.group(v.assign(x), old.assign(x))
        fed = np.zeros(1024, np.float32)
        seen = []
        for i in range(6):
            fed[:] = i
            s.run(put, {x: fed})
            if session.__module__.startswith("sojourn"):
                # With TensorFlow's own session, a variable may keep using the caller's memory.
                fed[:] = -1
            seen.append([np.unique(value) for value in s.run([v, old])])
        return seen


# -- growing graphs --------------------------------------------------------------------------------


@scenario
def a_graph_that_grows(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [], name="scope/x")
        seen = []
        y = x
        for i in range(5):
            y = tf.add(y, 1.0, name=f"step{i}")
            seen.append(s.run(y, {x: 1}))
            seen.append(s.run("step0:0", {"scope/x:0": 2}))
        parent = tf.constant(5, name="scope")  # an op with the name of a scope that already has ops
        late = v1.get_variable("late", initializer=3.0)
        s.run(late.initializer)
        with tf.control_dependencies([late.assign_add(1.0)]):
            after = late.read_value() + tf.cast(parent, tf.float32)
        return [*seen, s.run(after), s.run([late, parent]), y.eval({x: 0})]


@scenario
def control_flow_added_later(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.int32, [], name="x")
        seen = [s.run(x + 1, {x: 1})]
        counted = v1.while_loop(lambda i, t: i < x, lambda i, t: (i + 1, t + i), [0, 0])
        seen.append(s.run(counted, {x: 5}))
        chosen = v1.cond(x > 3, lambda: x * 2, lambda: x - 1)
        seen += [s.run(chosen, {x: 5}), s.run(chosen, {x: 1})]
        f = tf.cast(x, tf.float32)
        _, product = v1.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * f), [0, f])
        seen.append(s.run(tf.gradients(product, f), {x: 2}))
        array = tf.TensorArray(tf.float32, 2).write(0, f).write(1, f * 2).stack()
        return [*seen, s.run(array, {x: 3}), s.run(tf.map_fn(lambda e: e * 2, array), {x: 1})]


@scenario
def control_flow_of_both_generations(session: Any) -> Any:
    seen = []
    for enable in (v1.enable_control_flow_v2, v1.disable_control_flow_v2):
        was_on = v1.control_flow_v2_enabled()
        enable()
        try:
            with tf.Graph().as_default(), session() as s:
                x = v1.placeholder(tf.float32, [])
                _, y = tf.while_loop(lambda i, t: i < 4, lambda i, t, x=x: (i + 1, t * x), [0, x])
                z = tf.cond(x > 1, lambda y=y: y, lambda y=y: -y)
                gradient = tf.gradients(z, x)[0]
                seen += [s.run([y, z, gradient], {x: value}) for value in (0.5, 2, 3) * 2]
        finally:
            v1.enable_control_flow_v2() if was_on else v1.disable_control_flow_v2()
    return seen


@scenario
def functions_in_the_graph(session: Any) -> Any:
    @tf.function(autograph=False)
    def double(x):
        return x * 2

    @tf.function(autograph=False)
    def nested(x):
        return double(x) + tf.cond(x > 1, lambda: double(x), lambda: x)

    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [])
        seen = [s.run(double(x), {x: 2})]
        later = nested(x)
        gradients = tf.gradients(later, x)
        seen += [s.run(later, {x: value}) for value in (0, 3)]
        return [*seen, s.run(gradients, {x: 3})]


@scenario
def several_sessions_and_graphs(session: Any) -> Any:
    one, two = tf.Graph(), tf.Graph()
    with one.as_default():
        v = v1.get_variable("v", initializer=1.0)
        add = v.assign_add(1.0)
        init = v1.global_variables_initializer()
    with two.as_default():
        w = tf.constant(9.0, name="v")
    with session(graph=one) as a, session(graph=one) as b, session(graph=two) as c:
        a.run(init)
        b.run(init)
        seen = [a.run(add), a.run(add), b.run(v), c.run(w)]
        return seen + several(
            lambda: a.run(w), lambda: c.run(v), lambda: c.run("v:0"), lambda: a.run(v, {w: 1.0})
        )


# -- options, callables, partial runs --------------------------------------------------------------


@scenario
def options_and_metadata(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [], name="x")
        y = tf.identity(x * 2 + 1, name="y")
        seen = []
        for _ in range(3):
            told = v1.RunMetadata()
            options = v1.RunOptions(
                trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True
            )
            value = s.run(y, {x: 3}, options=options, run_metadata=told)
            stats = told.step_stats.dev_stats
            seen.append(
                (value, bool(stats), len(told.partition_graphs), bool(told.cost_graph.node))
            )
        plain = v1.RunMetadata()
        s.run(y, {x: 3}, run_metadata=plain)
        queue = tf.queue.FIFOQueue(1, tf.float32)
        late = several(lambda: s.run(queue.dequeue(), options=v1.RunOptions(timeout_in_ms=50)))
        wrong = several(
            lambda: s.run(y, {x: 1}, options=1), lambda: s.run(y, {x: 1}, run_metadata="no")
        )
        return seen, len(plain.step_stats.dev_stats), late[0][0], [each[0] for each in wrong]


@scenario
def callables(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [None], name="x")
        n = v1.placeholder(tf.float32, [], name="n")
        v = v1.get_variable("v", initializer=1.0)
        y, add = x + n, v.assign_add(1.0)
        s.run(v.initializer)
        made = s.make_callable(y, [x, n])
        nested = s.make_callable({"y": [y, x]}, feed_list=(x, n))
        single, op = s.make_callable(v), s.make_callable(add.op)
        many = s.make_callable([v, add])
        traced = s.make_callable(v, accept_options=True)
        traced_feed = s.make_callable(y, [x, n], accept_options=True)
        told = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        seen = [made([1], 2), made(np.ones(3), 0), nested([1], 1), single(), op(), single()]
        seen += [many()[0].dtype, traced(), traced(options=options, run_metadata=told)]
        seen += [bool(told.step_stats.dev_stats), traced_feed([1], 5, options=options)]
        return seen + several(
            lambda: made([[1]], 1),
            lambda: s.make_callable(y, x),
            lambda: s.make_callable("missing"),
            lambda: s.make_callable(tf.identity(n))(),
        )


@scenario
def callables_from_options(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [None], name="x")
        y = tf.identity(x * 2, name="y")
        options = tf.compat.v1.ConfigProto  # imported only for its protobuf module
        from tensorflow.core.protobuf import config_pb2

        made = s._make_callable_from_options(
            config_pb2.CallableOptions(feed=["x:0"], fetch=["y:0"], target=["y"])
        )
        told = config_pb2.RunMetadata()
        traced = config_pb2.CallableOptions(feed=["x:0"], fetch=["y:0"])
        traced.run_options.trace_level = config_pb2.RunOptions.FULL_TRACE
        value = s._make_callable_from_options(traced)(np.ones(1, np.float32), run_metadata=told)
        return [
            made(np.ones(2, np.float32)), value, bool(told.step_stats.dev_stats), y.name,
            options is not None,
        ]  # fmt: skip


@scenario
def partial_runs(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        a, b, c = (v1.placeholder(tf.float32, []) for _ in range(3))
        first = a + b
        second = first * c
        handle = s.partial_run_setup([first, second], [a, b, c])
        seen = [s.partial_run(handle, first, {a: 1, b: 2}), s.partial_run(handle, second, {c: 3})]
        other = s.partial_run_setup([first, second.op], [a, b, c])
        seen.append(s.partial_run(other, first, {a: 1, b: 1}))
        seen += several(
            lambda: s.partial_run(handle, second, {c: 3}),
            lambda: s.partial_run_setup(first, "missing:0"),
            lambda: s.partial_run(other, second, {c: 1}),
            lambda: s.partial_run_setup([]),
            lambda: s.partial_run_setup([first], [1]),
        )
        return [str(value).replace(other, "H").replace(handle, "H") for value in seen]


@scenario
def a_partial_run_that_nobody_set_up(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [])
        y = x + 1.0  # nothing has run yet: the session has not seen these ops
        seen = several(lambda: s.partial_run("nobody", y, {x: 1}))
        late = tf.constant(1.0)
        return seen + several(lambda: s.partial_run("nobody", late))


@scenario
def tensor_handles(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        handle = s.run(v1.get_session_handle(tf.constant([1.0, 2.0]) * 2))
        holder, back = v1.get_session_tensor(handle.handle, tf.float32)
        seen = [s.run(back, {holder: handle.handle}), handle.eval()]
        x = v1.placeholder(tf.float32)
        seen += [s.run(x + 1, {x: handle}), s.run([x, x * 2], {x: handle})]
        kept = [s.run(v1.get_session_handle(tf.constant(float(i)))) for i in range(12)]
        del kept
        handle.delete()
        return [*seen, outcome(handle.eval)[0]]


@scenario
def handles_of_resources(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        v = v1.get_variable("v", initializer=3.0, use_resource=True)
        s.run(v.initializer)
        handle = s.run(v.handle)
        given = v1.placeholder(tf.resource, [])
        read = tf.raw_ops.ReadVariableOp(resource=given, dtype=tf.float32)
        return str(handle.dtype), outcome(lambda: s.run(read, {given: handle}))


# -- state -----------------------------------------------------------------------------------------


@scenario
def training(session: Any) -> Any:
    seen = []
    for optimizer in (
        v1.train.GradientDescentOptimizer(0.1),
        v1.train.MomentumOptimizer(0.1, 0.9),
        v1.train.AdamOptimizer(),
        v1.train.AdagradOptimizer(0.1),
        v1.train.RMSPropOptimizer(0.1),
        v1.train.FtrlOptimizer(0.1),
    ):
        with tf.Graph().as_default(), session() as s:
            x = v1.placeholder(tf.float32, [None, 3])
            w = v1.get_variable("w", initializer=np.ones((3, 1), np.float32))
            step = v1.train.get_or_create_global_step()
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 2))
            train = optimizer.minimize(loss, global_step=step)
            s.run(v1.global_variables_initializer())
            fed = np.arange(6, dtype=np.float32).reshape(2, 3)
            seen += [s.run([train, loss], {x: fed}) for _ in range(8)]
            seen.append(s.run([w, step]))
    return seen


@scenario
def random_ops_with_seeds(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        v1.set_random_seed(5)
        a, b = v1.random_normal([3], seed=1), v1.random_uniform([2])
        return [s.run([a, b]) for _ in range(6)]


@scenario
def saver_and_summaries(session: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default(), session() as s:
        v = v1.get_variable("v", initializer=[1.0, 2.0])
        old = v1.get_variable("old", initializer=3, use_resource=False)
        v1.summary.scalar("sum", tf.reduce_sum(v))
        merged = v1.summary.merge_all()
        saver = v1.train.Saver()
        s.run(v1.global_variables_initializer())
        path = saver.save(s, f"{folder}/model", global_step=7)
        s.run([v.assign([8.0, 9.0]), old.assign(4)])
        changed = s.run([v, old])
        saver.restore(s, path)
        files = sorted(p.name for p in Path(folder).iterdir())
        v1.train.export_meta_graph(f"{folder}/m.meta")
        missing = outcome(lambda: saver.restore(s, f"{folder}/nowhere"))
        with v1.summary.FileWriter(folder) as writer:
            writer.add_summary(s.run(merged), 1)
        return changed, s.run([v, old]), files, missing[0], v1.train.latest_checkpoint(folder)[-7:]


@scenario
def tables_queues_and_datasets(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        keys, values = tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
        found = table.lookup(tf.constant(["b", "c"]))
        queue = tf.queue.FIFOQueue(3, tf.int32, shapes=[[]])
        put, take, size = queue.enqueue_many([[1, 2, 3]]), queue.dequeue(), queue.size()
        data = tf.data.Dataset.range(3).map(lambda e: e * 2)
        once = v1.data.make_one_shot_iterator(data).get_next()
        again = v1.data.make_initializable_iterator(data.batch(2))
        batch = again.get_next()
        before = outcome(lambda: s.run(found))
        s.run(v1.tables_initializer())
        seen = [before[0], s.run(found), s.run(put), s.run(take), s.run(size)]
        seen += [s.run(once) for _ in range(3)] + several(lambda: s.run(once))
        for _ in range(2):
            s.run(again.initializer)
            seen += [s.run(batch), s.run(batch), *several(lambda: s.run(batch))]
        s.run(queue.close(cancel_pending_enqueues=True))
        return [*seen, s.run([take, take]), outcome(lambda: s.run(put))[0]]


@scenario
def queue_runners_with_a_coordinator(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        queue = tf.queue.FIFOQueue(4, tf.int64)
        count = v1.get_variable("count", initializer=tf.constant(0, tf.int64), use_resource=False)
        runner = queue_runner_impl.QueueRunner(queue, [queue.enqueue(count.count_up_to(5))])
        queue_runner_impl.add_queue_runner(runner)
        taken = queue.dequeue()
        s.run(v1.global_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = v1.train.start_queue_runners(s, coordinator)
        seen = [s.run(taken) for _ in range(5)]
        ended = outcome(lambda: s.run(taken))[0]
        coordinator.request_stop()
        coordinator.join(threads)
        return seen, ended


# -- Python functions ------------------------------------------------------------------------------


class Peculiar(Exception):
    """Raised by a function in a graph."""


@scenario
def python_functions(session: Any) -> Any:
    calls = []

    def add(a, b):
        calls.append(type(a).__name__)
        return a + b

    def fail(kind):
        def function(a):
            raise kind(f"from {kind.__name__}")

        return function

    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32)
        added = tf.numpy_function(add, [x, tf.constant(1.0)], tf.float32)
        two = v1.py_func(lambda a: (a, a * 2), [x], [tf.float32, tf.float32])
        text = v1.py_func(lambda a: a + b"!", [tf.constant("hi")], tf.string)
        texts = v1.py_func(
            lambda a: np.array([v.upper() for v in a]), [tf.constant(["a", "b"])], tf.string
        )
        nothing = v1.py_func(lambda: calls.append("none"), [], [])
        stateless = v1.py_func(lambda a: a * 3, [x], tf.float32, stateful=False)
        seen = [s.run(added, {x: value}) for value in (1.0, [1.0, 2.0], np.ones((2, 2)))]
        seen += [s.run(two, {x: 2.0}), s.run(text), s.run(texts), s.run(nothing)]
        seen += [s.run(stateless, {x: 1}) for _ in range(5)]
        kinds = (ValueError, TypeError, StopIteration, MemoryError, NotImplementedError, KeyError)
        for kind in (*kinds, Peculiar, ZeroDivisionError):
            failing = tf.numpy_function(fail(kind), [x], tf.float32)
            seen.append(outcome(lambda failing=failing: s.run(failing, {x: 1})))
        wrong = tf.numpy_function(lambda a: np.int32(1), [x], tf.float32)
        bad = tf.numpy_function(lambda a: [a, object()], [x], [tf.float32, tf.float32])
        odd = tf.numpy_function(lambda a: np.zeros(0, [("f", np.float32)]), [x], tf.float32)
        seen += [outcome(lambda each=each: s.run(each, {x: 1}))[0] for each in (wrong, bad, odd)]
        return [*seen, calls]


@scenario
def eager_functions_and_their_gradients(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [])
        y = tf.py_function(lambda a: a * a + tf.constant(1.0), [x], tf.float32)
        gradient = tf.gradients(y, x)[0]
        nothing = script_ops.eager_py_func(lambda a: None, [x], [])
        return [s.run(y, {x: 3}), s.run([y, gradient], {x: 3}), s.run(nothing, {x: 1})]


@scenario
def generators_as_datasets(session: Any) -> Any:
    def numbers():
        yield from (1, 2, 3)

    with tf.Graph().as_default(), session() as s:
        data = tf.data.Dataset.from_generator(numbers, tf.int32, [])
        data = data.map(lambda e: tf.numpy_function(lambda v: v * 2, [e], tf.int32))
        element = v1.data.make_one_shot_iterator(data).get_next()
        return several(*[lambda: s.run(element)] * 3), outcome(lambda: s.run(element))[0]


@scenario
def a_function_that_uses_the_session(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        inner = tf.constant(20.0)
        outer = tf.numpy_function(lambda: s.run(inner) + np.float32(1), [], tf.float32)
        return s.run(outer)


# -- errors ----------------------------------------------------------------------------------------


@scenario
def branches_that_are_not_taken(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        taken = v1.placeholder(tf.bool, [], name="taken")
        seen: list[Any] = []
        for kind, value in ((tf.int32, 1), (tf.float32, 1.5), (tf.string, b"one")):
            x = v1.placeholder(kind, [None])
            no, yes = control_flow_ops.switch(x, taken)
            merged = control_flow_ops.merge([tf.identity(no), tf.identity(yes)])[0]
            for fetch in (tf.identity(no), [merged, tf.identity(yes)], tf.group(no)):
                feeds = [{taken: feed, x: [value]} for feed in (True, False, True, False, True)]
                seen += several(*(functools.partial(s.run, fetch, feed) for feed in feeds))
        return seen


@scenario
def errors_of_steps(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [None], name="x")
        v = v1.get_variable("v", initializer=1.0)
        old = v1.get_variable("old", initializer=1.0, use_resource=False)
        divided = tf.constant(1) // v1.placeholder_with_default(0, [], name="zero")
        checked = tf.debugging.check_numerics(x, "not a number here", name="checked")
        reshaped = tf.reshape(x, [3, 3], name="reshaped")
        asserted = v1.Assert(tf.reduce_all(x > 0), [x], name="asserted")
        reading = tf.io.read_file("/nowhere/at/all", name="reading")
        return several(
            lambda: s.run(x), lambda: s.run(v + 1), lambda: s.run(old + 1), lambda: s.run(divided),
            lambda: s.run(checked, {x: [np.nan]}), lambda: s.run(reshaped, {x: [1]}),
            lambda: s.run(asserted, {x: [-1]}), lambda: s.run(reading),
            lambda: s.run(checked, {x: [1]}), lambda: s.run(checked, {x: [np.inf]}),
            lambda: s.run(checked, {x: [np.inf]}), lambda: s.run(checked, {x: [np.inf]}),
            lambda: s.run(checked, {x: [np.inf]}), lambda: s.run(checked, {x: [2]}),
        )  # fmt: skip


@scenario
def errors_of_use(session: Any) -> Any:
    with tf.Graph().as_default():
        empty = outcome(lambda: session().run([]))
    with tf.Graph().as_default() as graph:
        c = tf.constant(1.0)
        closed = session()
        closed.run(c)
        closed.close()
        closed.close()
        entered = session()
        never = session()
        never.close()

        def twice() -> None:
            with entered, entered:
                pass

        return [
            empty, *several(
                lambda: closed.run(c), lambda: never.run(c), lambda: closed.partial_run_setup([c]),
                lambda: c.eval(), twice, lambda: session(graph="graph"), lambda: session(config=1),
                lambda: session(v1.ConfigProto()), lambda: session(1), lambda: c.op.run(),
                lambda: graph.prevent_fetching(c.op), lambda: session(graph=graph).run(c),
            ),
        ]  # fmt: skip


@scenario
def fetching_is_forbidden_later(session: Any) -> Any:
    with tf.Graph().as_default() as graph, session() as s:
        x = v1.placeholder(tf.float32, [])
        y = x + 1
        seen = [s.run(y, {x: 1}) for _ in range(5)]
        graph.prevent_feeding(x)
        tf.constant(1)
        seen += several(lambda: s.run(y, {x: 1}))
        graph.prevent_fetching(y.op)
        tf.constant(1)
        return seen + several(lambda: s.run(y), lambda: s.run(y, {x: 1}))


# -- life cycle ------------------------------------------------------------------------------------


@scenario
def defaults_and_nesting(session: Any) -> Any:
    one, two = tf.Graph(), tf.Graph()
    with one.as_default():
        a = tf.constant(1)
    with two.as_default():
        b = tf.constant(2)
    first, second = session(graph=one), session(graph=two)
    seen = [v1.get_default_session() is None]
    with first:
        seen += [v1.get_default_session() is first, v1.get_default_graph() is one, a.eval()]
        with second.as_default():
            seen += [v1.get_default_session() is second, v1.get_default_graph() is one, b.eval()]
            seen += several(a.eval)
        seen += [v1.get_default_session() is first, isinstance(first, v1.Session)]
    seen += [first.graph is one, first.sess_str, len(second.graph_def.node)]
    second.close()
    return seen + several(lambda: first.run(a), lambda: second.run(b))


@scenario
def a_block_that_raises(session: Any) -> Any:
    kept = []

    def block() -> None:
        with tf.Graph().as_default(), session() as s:
            kept.append((s, tf.constant(1)))
            raise KeyError("in the block")

    raised = outcome(block)
    s, c = kept[0]
    return raised, outcome(lambda: s.run(c)), v1.get_default_session() is None


@scenario
def many_threads(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.int32, [])
        y = x * 2
        v = v1.get_variable("v", initializer=0, use_resource=True)
        add = v.assign_add(1, read_value=False)
        s.run(v.initializer)
        found: list[Any] = []

        def work(i: int) -> None:
            found.extend(int(s.run([y, add], {x: 10 * i + k})[0]) for k in range(5))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(found), s.run(v)


@scenario
def closing_cancels_what_waits(session: Any) -> Any:
    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(1, tf.float32)
        take = queue.dequeue()
        s = session()
        s.run([queue.size(), queue.enqueue(1.0)])  # objects that only a first step makes now exist
        s.run(take)
        seen: list[Any] = []
        begins = threading.Event()

        def wait() -> None:
            begins.set()
            seen.append(outcome(lambda: s.run(take)))

        thread = threading.Thread(target=wait)
        thread.start()
        begins.wait()
        time.sleep(0.3)
        s.close()
        thread.join(120)
        return seen[0][0], thread.is_alive(), outcome(lambda: s.run(take))


@scenario
def used_until_it_is_closed(session: Any) -> Any:
    with tf.Graph().as_default():
        c = tf.constant(5.0)
        s = session()
        seen: list[Any] = []

        def use() -> None:
            try:
                while True:
                    s.run(c)
            except (RuntimeError, tf.errors.CancelledError) as error:
                # Which of the two happens is a matter of chance, with TensorFlow's own class too.
                seen.append("closed" in str(error) or "cancelled" in str(error))

        thread = threading.Thread(target=use)
        thread.start()
        time.sleep(0.2)
        s.close()
        thread.join(120)
        return seen


@scenario
def devices(session: Any) -> Any:
    config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
    with tf.Graph().as_default(), session(config=config) as s:
        with tf.device("/cpu:1"):
            a = tf.constant(1)
        with tf.device("/gpu:7"):
            b = tf.constant(2)
        listed = [(d.name, d.device_type, d.memory_limit_bytes) for d in s.list_devices()]
        seen = [listed, s.run([a, b])]
    with tf.Graph().as_default(), session(config=v1.ConfigProto()) as s:
        with tf.device("/gpu:7"):
            b = tf.constant(2)
        return [*seen, outcome(lambda: s.run(b))[0]]


@scenario
def time_limits_of_the_configuration(session: Any) -> Any:
    with tf.Graph().as_default():
        take = tf.queue.FIFOQueue(1, tf.float32).dequeue()
        with session(config=v1.ConfigProto(operation_timeout_in_ms=50)) as s:
            return [outcome(lambda: s.run(take))[0] for _ in range(4)]


# -- helpers built on sessions ---------------------------------------------------------------------


@scenario
def collections_and_meta_graphs(session: Any) -> Any:
    with tf.Graph().as_default(), session() as s:
        x = v1.placeholder(tf.float32, [], name="x")
        y = tf.multiply(x, v1.get_variable("v", initializer=4.0), name="y")
        v1.add_to_collection("outputs", y)
        s.run(v1.global_variables_initializer())
        meta = v1.train.export_meta_graph()
        frozen = v1.graph_util.convert_variables_to_constants(s, s.graph_def, ["y"])
    with tf.Graph().as_default(), session() as s:
        tf.import_graph_def(frozen, name="again")
        value = s.run("again/y:0", {"again/x:0": 2})
    with tf.Graph().as_default(), session() as s:
        v1.train.import_meta_graph(meta)
        s.run(v1.global_variables_initializer())
        return value, s.run(v1.get_collection("outputs"), {"x:0": 3})


@scenario
def saved_models(session: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model"
        with tf.Graph().as_default(), session() as s:
            x = v1.placeholder(tf.float32, [None], name="x")
            y = tf.multiply(x, v1.get_variable("v", initializer=3.0), name="y")
            s.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(s, path, {"x": x}, {"y": y})
        with tf.Graph().as_default(), session() as s:
            loaded = v1.saved_model.load(s, ["serve"], path)
            return list(loaded.signature_def), s.run("y:0", {"x:0": [1, 2]})
