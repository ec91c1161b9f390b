"""The same work gives the same bits, alone and among noisy neighbours."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sojourn

pytestmark = pytest.mark.usefixtures("zygote")

X = np.random.default_rng(3).normal(size=(64, 16)).astype(np.float32)


def training() -> Any:
    """Random weights, dropout, shuffling by numpy: everything that needs a seed."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 16], name="x")
    order = tf.constant(np.random.permutation(16))
    h = tf.gather(x, order, axis=1)
    for i, size in enumerate((64, 32)):
        w = v1.get_variable(f"w{i}", [h.shape[1], size])
        h = tf.nn.dropout(tf.nn.relu(tf.matmul(h, w)), 0.3)
    loss = tf.reduce_mean((tf.reduce_sum(h, 1) - tf.reduce_sum(x, 1)) ** 2)
    train = v1.train.AdamOptimizer(0.01).minimize(loss)
    return {"x": x}, {"loss": loss, "train": train}


def keras_training() -> Any:
    """A step of `model.train_on_batch` for each call."""
    import keras
    import numpy as np

    model = keras.Sequential(
        [keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.4),
         keras.layers.Dense(1)]
    )  # fmt: skip
    model.compile("adam", "mse")

    def step(x: Any) -> Any:
        model.train_on_batch(x, x.sum(1, keepdims=True))
        return np.concatenate([weight.ravel() for weight in model.get_weights()])

    return step


def trained(**options: Any) -> list[np.ndarray]:
    with sojourn.open(training, **options) as session:
        for _ in range(12):
            session.run("train", {"x": X})
        return session.run(["w0:0", "w1:0"])


def trained_with_keras(**options: Any) -> list[np.ndarray]:
    with sojourn.open(keras_training, **options) as session:
        return [session(x=X) for _ in range(3)]


def among_neighbours(work: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
    """The same while other sessions train on the same processors."""
    stop = threading.Event()

    def noise(seed: int) -> None:
        with sojourn.open(training, seed=seed) as session:
            while not stop.is_set():
                session.run("train", {"x": X})

    neighbours = [threading.Thread(target=noise, args=(i,)) for i in (8, 9)]
    for neighbour in neighbours:
        neighbour.start()
    try:
        return work()
    finally:
        stop.set()
        for neighbour in neighbours:
            neighbour.join()


@pytest.mark.parametrize("train", [trained, trained_with_keras])
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_training_gives_the_same_bits_alone_and_among_neighbours(train, deterministic):
    options = {"seed": 5, "deterministic": deterministic}
    alone = train(**options)
    beside = among_neighbours(lambda: train(**options))
    for one, other in zip(alone, beside, strict=True):
        assert one.tobytes() == other.tobytes()
    assert train(seed=6)[0].tobytes() != alone[0].tobytes()


def test_a_reset_starts_the_same_training_again():
    with sojourn.open(training, seed=5) as session:
        start = session.run("w0:0")
        session.run("train", {"x": X})
        session.reset()
        assert session.run("w0:0").tobytes() == start.tobytes()


def test_without_a_seed_every_session_starts_elsewhere():
    assert trained()[0].tobytes() != trained()[0].tobytes()


@pytest.mark.parametrize("as_file", [False, True])
def test_a_finished_graph_without_seeds_is_seeded_op_by_op(as_file, tmp_path):
    path = str(tmp_path / "graph.pb")

    def build() -> Any:
        import tensorflow as tf

        graph = tf.Graph()
        with graph.as_default():
            tf.identity(tf.random.uniform([4]), name="a")
            tf.identity(tf.random.uniform([4]), name="b")
        if not as_file:
            return graph
        with open(path, "wb") as file:
            file.write(graph.as_graph_def().SerializeToString())
        return path

    drawn = []
    for seed in (1, 1, 2):
        with sojourn.open(build, seed=seed, outputs=["a", "b"]) as session:
            drawn.append(session.run("a").tobytes())
            assert session.run("b").tobytes() != drawn[-1]
    assert drawn[0] == drawn[1]
    assert drawn[1] != drawn[2]


def test_the_example_gives_the_same_bits(capsys):
    example = Path(__file__).parent.parent / "examples" / "state_same_bits.py"
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.count("True") == 2
