"""sojourn: `ours.py HTTP GRPC FOLDER [many]`, until standard input ends."""

from __future__ import annotations

import itertools
import os
import sys

import workload

import sojourn
from sojourn.service.catalogue import Catalogue
from sojourn.service.rules import ModelRules

MANY = 20
BIG_BYTES = 400 * 2**20


def save(folder: str) -> None:
    """Write the SavedModels, in a worker: the one of all systems, a larger one, and a big one."""
    import tensorflow as tf

    w, b = workload.weights()
    x_spec = tf.TensorSpec([None, workload.ROWS], name=workload.INPUT)

    class Softmax(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = tf.Variable(w), tf.Variable(b)

        @tf.function(input_signature=[x_spec])
        def predict(self, x):
            return {workload.OUTPUT: tf.nn.softmax(x @ self.w + self.b)}

    class Layers(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = (workload.ROWS, 2048, 2048, workload.COLUMNS)
            pairs = itertools.pairwise(sizes)
            self.ws = [tf.Variable(tf.random.normal(pair, stddev=0.02)) for pair in pairs]

        @tf.function(input_signature=[x_spec])
        def predict(self, x):
            for w in self.ws[:-1]:
                x = tf.nn.relu(x @ w)
            return {workload.OUTPUT: tf.nn.softmax(x @ self.ws[-1])}

    class Big(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = tf.Variable(tf.random.normal([BIG_BYTES // 4 // 1024, 1024]))

        @tf.function(input_signature=[x_spec])
        def predict(self, x):
            return {workload.OUTPUT: x[:, :10] + self.kept[0, 0]}

    for name, made in (("softmax", Softmax()), ("mlp", Layers()), ("big", Big())):
        tf.saved_model.save(made, f"{folder}/{name}", made.predict)


def entries(folder: str, many: bool) -> dict[str, ModelRules]:
    if many:
        return {
            workload.NAME if n == 0 else f"model{n}": ModelRules(path=f"{folder}/softmax")
            for n in range(MANY)
        }
    rules = {"load": "eager", "pure": True}
    return {
        "softmax": ModelRules(path=f"{folder}/softmax", **rules),
        "softmax-alone": ModelRules(path=f"{folder}/softmax", max_batch=1, **rules),
        "mlp": ModelRules(path=f"{folder}/mlp", **rules),
        "mlp-alone": ModelRules(path=f"{folder}/mlp", max_batch=1, **rules),
        "big": ModelRules(path=f"{folder}/big"),
    }


def main() -> None:
    http, grpc, folder, *many = sys.argv[1:]
    with (
        sojourn.Pool() as pool,
        sojourn.Server(
            Catalogue(pool, entries(folder, bool(many))),
            http=f"127.0.0.1:{http}",
            grpc=f"127.0.0.1:{grpc}",
        ),
    ):
        sys.stdin.read()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main()
