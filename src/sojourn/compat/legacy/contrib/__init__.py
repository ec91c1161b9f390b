"""The small, much-used parts of `tf.contrib`, over what TensorFlow still has.

A part is here when it is thin. Everything else fails with the name of its replacement.
"""

from __future__ import annotations

import importlib
from typing import Any

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.namespaces import Namespace

_HERE = (
    "crf",
    "examples",
    "framework",
    "layers",
    "learn",
    "legacy_seq2seq",
    "rnn",
    "seq2seq",
    "slim",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _HERE:
        return importlib.import_module(f"{__name__}.{name}")
    made = _elsewhere(name)
    if made is not None:
        globals()[name] = made
        return made
    return removed.missing_name("tf.contrib")(name)


def _elsewhere(name: str) -> Any:
    """Parts that only moved: what they were, under the old name."""
    import tensorflow as tf
    from tensorflow.compat import v1

    def over(*modules: Any, **names: Any) -> Namespace:
        return Namespace(
            f"tensorflow.contrib.{name}", modules, names, shown_as=f"tf.contrib.{name}"
        )

    if name == "losses":
        from sojourn.compat.legacy.contrib.slim import losses

        return losses
    if name == "metrics":
        kept = {f"streaming_{each}": getattr(v1.metrics, each) for each in dir(v1.metrics)}
        return over(v1.metrics, **kept, accuracy=_accuracy)
    if name == "data":
        return over(tf.data.experimental, v1.data)
    if name == "distributions":
        return over(v1.distributions)
    if name == "lookup":
        from tensorflow.python.ops import lookup_ops

        return over(v1.lookup, lookup_ops)
    if name == "eager":
        return over(v1, Variable=tf.Variable, Iterator=iter)
    if name == "summary":
        return over(tf.summary)
    if name == "keras":
        from sojourn.compat.legacy import keras

        return keras.namespace()
    if name == "util":
        from tensorflow.python.framework import tensor_util

        return over(tensor_util, constant_value=tensor_util.constant_value)
    if name == "tensorboard":
        plugins = over(projector=importlib.import_module("tensorboard.plugins.projector"))
        return over(plugins=plugins)
    return None


def _accuracy(predictions: Any, labels: Any, weights: Any = None, name: Any = None) -> Any:
    from tensorflow.compat import v1

    right = v1.cast(v1.equal(predictions, labels), v1.float32)
    if weights is None:
        return v1.reduce_mean(right, name=name)
    return v1.div(v1.reduce_sum(right * weights), v1.reduce_sum(weights), name=name)
