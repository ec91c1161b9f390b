"""The small, frequently used parts of `tf.contrib`, built on what TensorFlow still provides.

Parts that would need much code are left out: using one raises an error that names its replacement.
"""

from __future__ import annotations

import importlib
from typing import Any

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.namespaces import Namespace

_HERE = (
    "crf",
    "distributions",
    "estimator",
    "examples",
    "factorization",
    "framework",
    "image",
    "layers",
    "learn",
    "legacy_seq2seq",
    "opt",
    "predictor",
    "rnn",
    "seq2seq",
    "slim",
    "tpu",
    "training",
)
_SETS = ("size", "difference", "intersection", "union")


def __getattr__(name: str) -> Any:
    if name in _HERE:
        return importlib.import_module(f"{__name__}.{name}")
    made = _elsewhere(name)
    if made is not None:
        globals()[name] = made
        return made
    return removed.missing_name("tf.contrib")(name)


def _elsewhere(name: str) -> Any:
    """Return a part of contrib that TensorFlow only moved, under its old name, or None."""
    import tensorflow as tf
    from tensorflow.compat import v1

    def over(*modules: Any, **names: Any) -> Namespace:
        return Namespace(
            f"tensorflow.contrib.{name}", modules, names, shown_as=f"tf.contrib.{name}"
        )

    if name == "losses":
        from sojourn.compat.legacy.contrib import metric_learning, slim

        slim.losses.metric_learning = metric_learning
        return slim.losses
    if name == "metrics":
        from sojourn.compat.legacy.contrib import streaming

        names = ("accuracy", "aggregate_metric_map", "aggregate_metrics", "f1_score")
        named = {**streaming.STREAMING, **{each: getattr(streaming, each) for each in names}}
        sets = {f"set_{each}": getattr(v1.sets, each) for each in _SETS}
        return over(v1.metrics, **named, **sets, confusion_matrix=v1.confusion_matrix)
    if name == "summary":
        from tensorflow.python.ops import summary_ops_v2

        return over(summary_ops_v2, tf.summary, all_summary_ops=summary_ops_v2.all_v2_summary_ops)
    if name == "lookup":
        from tensorflow.python.ops import lookup_ops

        from sojourn.compat.legacy.oldnames import renaming

        tables = ("index_table_from_tensor", "index_to_string_table_from_tensor")
        renamed = {
            each: renaming(getattr(lookup_ops, each), mapping="vocabulary_list") for each in tables
        }
        renamed["string_to_index_table_from_tensor"] = renamed[tables[0]]
        return over(v1.lookup, lookup_ops, **renamed)
    if name == "eager":
        return over(importlib.import_module(f"{__name__}.eager"), v1)
    if name == "keras":
        from sojourn.compat.legacy import keras

        return keras.namespace()
    if name == "util":
        from tensorflow.python.framework import tensor_util

        return over(
            tensor_util, constant_value=tensor_util.constant_value, make_ndarray=tf.make_ndarray
        )
    if name == "tensorboard":
        from sojourn.compat.legacy.contrib import projector

        return over(plugins=over(projector=projector))
    if name == "staging":
        from tensorflow.python.ops.data_flow_ops import StagingArea

        return over(StagingArea=StagingArea)
    if name == "deprecated":
        from sojourn.compat.legacy.oldnames import adapters

        made = {each: made for each, made in adapters(v1).items() if "_summary" in each}
        made["merge_summary"], made["merge_all_summaries"] = v1.summary.merge, v1.summary.merge_all
        return over(**made)
    if name == "lite":
        return over(v1.lite, TocoConverter=v1.lite.TFLiteConverter)
    if name == "compiler":
        xla = v1.xla.experimental
        return over(jit=over(experimental_jit_scope=xla.jit_scope), xla=over(compile=xla.compile))
    if name == "tfprof":
        return over(v1.profiler, model_analyzer=_analyzer(v1.profiler))
    if name in ("distribute", "cluster_resolver"):
        from sojourn.compat.legacy import distribution

        return over(distribution, v1.distribute, v1.distribute.cluster_resolver)
    moved = {
        "autograph": (tf.autograph,),
        "checkpoint": (tf.train,),
        # TensorFlow 1 names first: only their datasets have `make_one_shot_iterator`.
        "data": (_data(), v1.data.experimental, v1.data),
        "feature_column": (v1.feature_column,),
        "ctc": (v1.nn,),
        "hooks": (v1.train,),
        "linalg": (v1.linalg,),
        "nn": (_nn(), v1.nn),
        "signal": (tf.signal,),
        "stateless": (tf.random,),
    }
    return over(*moved[name]) if name in moved else None


def _analyzer(profiler: Any) -> Namespace:
    def print_model_analysis(
        graph: Any,
        run_meta: Any = None,
        op_log: Any = None,
        tfprof_cmd: str = "scope",
        tfprof_options: Any = None,
    ) -> Any:
        return profiler.profile(graph, run_meta, op_log, tfprof_cmd, tfprof_options)

    return Namespace(
        "tensorflow.contrib.tfprof.model_analyzer",
        (),
        {
            "print_model_analysis": print_model_analysis,
            "TRAINABLE_VARS_PARAMS_STAT_OPTIONS": (
                profiler.ProfileOptionBuilder.trainable_variables_parameter()
            ),
            "FLOAT_OPS_OPTIONS": profiler.ProfileOptionBuilder.float_operation(),
        },
    )


def _nn() -> Namespace:
    def alpha_dropout(
        x: Any, keep_prob: Any, noise_shape: Any = None, seed: Any = None, name: Any = None
    ) -> Any:
        """Apply dropout that preserves mean and variance, for layers with `selu`."""
        import tensorflow.compat.v1 as tf

        with tf.name_scope(name, "alpha_dropout", [x]):
            dropped = -1.7580993408473766  # limit of selu for large negative inputs
            chance = tf.random_uniform(noise_shape or tf.shape(x), seed=seed, dtype=x.dtype)
            kept = tf.cast(chance < keep_prob, x.dtype)
            scale = (keep_prob + keep_prob * (1 - keep_prob) * dropped**2) ** -0.5
            return scale * (x * kept + dropped * (1 - kept) - dropped * (1 - keep_prob))

    return Namespace("tensorflow.contrib.nn", (), {"alpha_dropout": alpha_dropout})


def _data() -> Namespace:
    def batch_and_drop_remainder(batch_size: Any) -> Any:
        return lambda dataset: dataset.batch(batch_size, drop_remainder=True)

    def padded_batch_and_drop_remainder(
        batch_size: Any, padded_shapes: Any, padding_values: Any = None
    ) -> Any:
        return lambda dataset: dataset.padded_batch(
            batch_size, padded_shapes, padding_values, drop_remainder=True
        )

    names = (batch_and_drop_remainder, padded_batch_and_drop_remainder)
    return Namespace("tensorflow.contrib.data", (), {name.__name__: name for name in names})
