"""Live models, and functions that build models in the worker."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import sojourn

LIVE = os.path.join(os.path.dirname(__file__), "live_models.py")

pytestmark = pytest.mark.usefixtures("zygote")


def test_live_models_open_give_what_they_give_at_home_and_add_nothing_to_tensorflows_log():
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", LIVE],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("all is well")
    assert "INFO:sojourn.session:session.ready" in done.stderr
    assert "INFO:absl" not in done.stderr
    assert "INFO:tensorflow" not in done.stderr


def keras_model() -> Any:
    import keras

    return keras.Sequential(
        [keras.Input((4,), name="x"), keras.layers.Dense(2, kernel_initializer="ones", name="y")]
    )


def saved_function() -> Any:
    import tensorflow as tf

    count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="by")])
    def step(by: Any) -> Any:
        return count.assign_add(by)

    return step


def whole_graph() -> Any:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [], name="x")
        tf.add(x, 1, name="y")
    return graph


def plain_function_with_state() -> Any:
    import tensorflow as tf

    weight = tf.Variable(2.0)  # eager, so that the function can use it later

    def multiply(x: Any) -> Any:
        return (weight * x).numpy()

    return multiply


def hidden_graph_code() -> Any:
    # Nothing in this code says that it wants a graph: it is found out by trying.
    import tensorflow as tf

    return {}, {"three": tf.constant(1) + tf.constant(2)}


@pytest.mark.parametrize(
    ("build", "inputs", "output"),
    [
        (keras_model, {"x": np.ones((1, 4))}, [[4, 4]]),
        (saved_function, {"by": 5}, 5),
        (whole_graph, {"x": 1}, 2),
        (plain_function_with_state, {"x": 4.0}, 8),
        (hidden_graph_code, {}, 3),
    ],
)
def test_a_builder_may_return_any_kind_of_model(build, inputs, output):
    with sojourn.open(build) as session:
        np.testing.assert_array_equal(session(**inputs), output)


def called_once() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Dense(2, kernel_initializer="ones")])
    model(np.ones((3, 4), np.float32))
    return model


def in_pairs() -> Any:
    import keras

    x = keras.Input((4,), batch_size=2)
    return keras.Model(x, keras.ops.reshape(x, (2, 4)))


def remembers_two_rows() -> Any:
    import keras

    x = keras.Input((4, 3), batch_size=2)
    return keras.Model(x, keras.layers.LSTM(3, stateful=True)(x))


@pytest.mark.parametrize(
    ("build", "rows"), [(called_once, None), (in_pairs, 2), (remembers_two_rows, 2)]
)
def test_a_keras_model_takes_any_number_of_rows_unless_it_counts_on_one(build, rows):
    with sojourn.open(build) as session:
        [(name, spec)] = session.signature.inputs.items()
        assert spec.shape[0] == rows
        x = np.ones((rows or 5, *spec.shape[1:]), np.float32)
        assert len(session(**{name: x})) == len(x)


def test_a_model_that_has_not_changed_is_reset_to_itself(tmp_path):
    with sojourn.open(keras_model) as session:
        session.reset()
        session.save(tmp_path / "ones")
        session.restore(tmp_path / "ones")
        session.reset()
        np.testing.assert_array_equal(session(x=np.ones((1, 4))), [[4, 4]])


def test_a_builder_may_return_a_path(tmp_path):
    def build() -> str:
        return str(tmp_path / "nowhere")

    with pytest.raises(sojourn.ModelError, match="there is nothing at"):
        sojourn.open(build)


def test_a_builder_may_return_a_function_of_a_saved_model_that_it_loads(tmp_path):
    path = str(tmp_path / "model")

    @sojourn.isolated
    def save() -> None:
        import tensorflow as tf

        class Model(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.by = tf.Variable(3.0)

            @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
            def f(self, x: Any) -> Any:
                return {"y": x * self.by}

        tf.saved_model.save(Model(), path)

    def build() -> Any:
        import tensorflow as tf

        return tf.saved_model.load(path).f

    save()
    with sojourn.open(build) as session:
        assert session(x=2.0) == 6.0


def test_an_error_of_the_builders_own_arrives_as_it_is():
    def build() -> Any:
        raise LookupError("no such recipe")

    with pytest.raises(LookupError, match="no such recipe"):
        sojourn.open(build)


def test_a_builder_that_names_its_tensors_is_told_to_give_them():
    def build() -> Any:
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.identity(x, name="y")
        return {"x": "x:0"}, {"y": "y:0"}

    with pytest.raises(sojourn.ModelError, match="must be tensors, not 'x:0'"):
        sojourn.open(build)


@pytest.mark.parametrize("nothing", [None, 7, [1, 2]])
def test_a_builder_that_returns_no_model_is_reported(nothing):
    with pytest.raises(sojourn.ModelError, match="returned"):
        sojourn.open(lambda: nothing)


def test_what_is_no_model_at_all_is_refused_with_what_is():
    with pytest.raises(sojourn.ModelError, match="a model must be a path, a Keras model"):
        sojourn.open(3)


@pytest.mark.parametrize(
    "options",
    [
        {"isolation": "thread"},
        {"restart": "always"},
        {"restart": "from-checkpoint", "isolation": "inline"},
        {"deterministic": True},
        {"device": "tpu"},
        {"device": "cpu:1"},
        {"memory": "much"},
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_starts(options):
    with pytest.raises(ValueError):
        sojourn.open(keras_model, **options)
