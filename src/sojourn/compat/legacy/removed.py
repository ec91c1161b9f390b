"""Names that TensorFlow removed and sojourn does not provide, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_KERAS = "tf.keras (model.compile and model.fit)"
_FORESTS = "the package tensorflow-decision-forests"
_TFP = "the package tensorflow-probability"
_TFA = "the package tensorflow-addons, or your own few lines"

# The longest key that a missing name starts with applies.
REPLACEMENTS = {
    "tf.estimator": f"{_KERAS}, or tf.compat.v1.train.MonitoredTrainingSession",
    "tf.python.estimator": f"{_KERAS}, or tf.compat.v1.train.MonitoredTrainingSession",
    "tf.estimator.BoostedTreesClassifier": _FORESTS,
    "tf.estimator.BoostedTreesRegressor": _FORESTS,
    "tf.feature_column": "tf.feature_column of TensorFlow 2, or Keras preprocessing layers",
    "tf.contrib": "see the TensorFlow 1 to 2 migration guide",
    "tf.contrib.autograph": "tf.autograph",
    "tf.contrib.bayesflow": _TFP,
    "tf.contrib.boosted_trees": _FORESTS,
    "tf.contrib.cloud": "the package tensorflow-io",
    "tf.contrib.cluster_resolver": "tf.distribute.cluster_resolver",
    "tf.contrib.cudnn_rnn": "tf.nn.rnn_cell.LSTMCell or tf.keras.layers.LSTM",
    "tf.contrib.data": "tf.data and tf.data.experimental",
    "tf.contrib.deprecated": "tf.summary",
    "tf.contrib.distribute": "tf.distribute",
    "tf.contrib.distributions": f"tf.distributions for the basic ones, or {_TFP}",
    "tf.contrib.estimator": _KERAS,
    "tf.contrib.factorization": "scikit-learn, or your own few lines",
    "tf.contrib.ffmpeg": "the package tensorflow-io",
    "tf.contrib.gan": "the package tf-gan",
    "tf.contrib.graph_editor": "tf.compat.v1.graph_util, or rebuild the graph",
    "tf.contrib.image": _TFA,
    "tf.contrib.integrate": "scipy.integrate, or " + _TFP,
    "tf.contrib.kfac": "the package kfac",
    "tf.contrib.keras": "tf.keras",
    "tf.contrib.learn": _KERAS,
    "tf.contrib.lite": "tf.lite",
    "tf.contrib.model_pruning": "the package tensorflow-model-optimization",
    "tf.contrib.mpi": "Horovod",
    "tf.contrib.nccl": "tf.distribute",
    "tf.contrib.opt": _TFA,
    "tf.contrib.predictor": "tf.compat.v1.saved_model.load, or sojourn.open",
    "tf.contrib.quantize": "the package tensorflow-model-optimization",
    "tf.contrib.resampler": _TFA,
    "tf.contrib.rnn": "tf.nn.rnn_cell or tf.keras.layers.RNN",
    "tf.contrib.saved_model": "tf.compat.v1.saved_model",
    "tf.contrib.seq2seq": _TFA,
    "tf.contrib.slim": "the package tf-slim",
    "tf.contrib.layers": "tf.layers, tf.keras.layers or the package tf-slim",
    "tf.contrib.summary": "tf.summary",
    "tf.contrib.tensor_forest": _FORESTS,
    "tf.contrib.tensorrt": "tf.experimental.tensorrt",
    "tf.contrib.timeseries": _KERAS,
    "tf.contrib.tpu": "tf.distribute.TPUStrategy",
    "tf.contrib.training": "tf.compat.v1.train",
    "tf.examples": "the program's own copy of that example",
    "tf.models": "the repository tensorflow/models",
    "tf.keras": "tf.keras of TensorFlow 2, with the program converted to it",
}


class RemovedName(AttributeError):
    """The program uses a name that TensorFlow removed. The message names the replacement."""


class RemovedModule(ModuleNotFoundError):
    """The program imports a module that TensorFlow removed. The message names the replacement."""


def advice(path: str) -> str | None:
    """Return what to use instead of `path` (such as ``tf.contrib.layers.foo``), if known."""
    parts = path.split(".")
    for end in range(len(parts), 1, -1):
        answer = REPLACEMENTS.get(".".join(parts[:end]))
        if answer:
            return answer
    return None


def describe(path: str) -> str:
    """Return a sentence for an error about `path`."""
    answer = advice(path)
    said = f"{path} was removed from TensorFlow and is not provided here"
    return f"{said}; use instead: {answer}" if answer else said


def missing_name(owner: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that explains what replaced the missing name."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        raise RemovedName(describe(f"{owner}.{name}"), name=name)

    return __getattr__
