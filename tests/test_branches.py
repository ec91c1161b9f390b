"""Which tensors may have no value: what is inside a branch, and not what comes out of it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_ops, control_flow_v2_toggles

import sojourn
from sojourn.engines.branches import Branches

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def old_control_flow() -> Any:
    was = control_flow_v2_toggles.control_flow_v2_enabled()
    control_flow_v2_toggles.disable_control_flow_v2()
    yield
    if was:
        control_flow_v2_toggles.enable_control_flow_v2()


def test_what_comes_out_of_branches_and_loops_always_has_a_value() -> None:
    with tf.Graph().as_default() as graph:
        p, x = v1.placeholder(tf.bool, [], name="p"), v1.placeholder(tf.float32, [], name="x")

        def inner() -> Any:
            loop = tf.while_loop(
                lambda i: tf.identity(i < 9.0, name="asked"),
                lambda i: v1.cond(p, lambda: tf.add(i, 1.0, name="counted"), lambda: i + 2.0),
                [x],
            )
            return tf.identity(loop, name="out_of_the_loop")

        outer = v1.cond(p, inner, lambda: tf.constant(1.0, name="made_inside"))
        tf.identity(outer, name="out")
    branches = Branches(graph)
    assert not branches.may_lack(["out", "x", "p"])
    for inside in ("counted", "out_of_the_loop", "made_inside"):
        name = next(op.name for op in graph.get_operations() if op.name.endswith(inside))
        assert branches.may_lack([name]), name


def test_a_graph_that_gets_its_first_branch_later_is_looked_at_again() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.constant(1.0, name="x")
        branches = Branches(graph)
        assert not branches.may_lack(["x"])
        tf.identity(control_flow_ops.switch(x, tf.constant(True))[0], name="dead")
        assert branches.may_lack(["x", "dead"])


@pytest.mark.usefixtures("zygote")
def test_a_fetched_tensor_of_a_branch_that_is_not_taken_is_an_error_not_an_empty_array() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.int32, [None], name="x")
        no, yes = control_flow_ops.switch(x, v1.placeholder(tf.bool, [], name="taken"))
        tf.identity(no, name="no")
        tf.identity(yes, name="yes")
    x = np.array([1, 2], np.int32)
    with sojourn.open(graph) as session:
        for _ in range(3):
            np.testing.assert_array_equal(session.run("yes:0", {"x": x, "taken": True}), x)
            with pytest.raises(Exception, match=r"Retval\[0\] does not have value"):
                session.run("no:0", {"x": x, "taken": True})
