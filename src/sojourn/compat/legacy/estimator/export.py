"""`tf.estimator.export`: the inputs of a served model, and writing the model as a SavedModel."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.saved_model import model_utils
from tensorflow.python.training import session_manager

from sojourn.compat.legacy.estimator.specs import ModeKeys, as_named

ExportOutput = model_utils.ExportOutput
ClassificationOutput = model_utils.ClassificationOutput
RegressionOutput = model_utils.RegressionOutput
PredictOutput = model_utils.PredictOutput


class _Receiver(NamedTuple):
    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any


class ServingInputReceiver(_Receiver):
    """The placeholders that a request fills, and the model's features made from them."""

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> ServingInputReceiver:
        features = as_named(features, "feature")
        received = as_named(receiver_tensors, "input")
        return super().__new__(cls, features, received, receiver_tensors_alternatives)


class TensorServingInputReceiver(_Receiver):
    """The `ServingInputReceiver` of a model whose features are one tensor."""

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> TensorServingInputReceiver:
        if isinstance(features, Mapping):
            raise ValueError("features must be one tensor, not a dict")
        received = as_named(receiver_tensors, "input")
        return super().__new__(cls, features, received, receiver_tensors_alternatives)


class SupervisedInputReceiver(NamedTuple):
    """Features and labels for a graph that is exported for training or evaluation."""

    features: Any
    labels: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any = None


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that makes a receiver of serialized `tf.train.Example` protos."""

    def receive() -> ServingInputReceiver:
        examples = tf.placeholder(tf.string, [default_batch_size], name="input_example_tensor")
        features = tf.parse_example(examples, dict(feature_spec))
        return ServingInputReceiver(features, {"examples": examples})

    return receive


def build_raw_serving_input_receiver_fn(
    features: Any, default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that makes a receiver of tensors like `features`, with any batch size."""

    def receive() -> ServingInputReceiver:
        holders = {}
        for name, like in as_named(features, "feature").items():
            like = tf.convert_to_tensor(like)
            shape = like.shape.as_list() if like.shape.ndims is not None else None
            if shape:
                shape[0] = default_batch_size
            holders[name] = tf.placeholder(like.dtype, shape, name=like.op.name)
        return ServingInputReceiver(holders, holders)

    return receive


def build_supervised_input_receiver_fn_from_input_fn(
    input_fn: Callable[..., Any], **arguments: Any
) -> Callable[[], SupervisedInputReceiver]:
    """Return a function that makes a receiver of tensors like those that `input_fn` returns."""
    from sojourn.compat.legacy.estimator import inputs

    with tf.Graph().as_default():
        features, labels, _ = inputs.features_and_labels(input_fn(**arguments))
        kinds = [
            {name: (t.dtype, t.shape) for name, t in as_named(given, default).items()}
            for given, default in ((features, "feature"), (labels, "label"))
        ]

    def receive() -> SupervisedInputReceiver:
        held, wanted = [
            {name: tf.placeholder(dtype, shape, name=name) for name, (dtype, shape) in kind.items()}
            for kind in kinds
        ]
        return SupervisedInputReceiver(
            held if isinstance(features, Mapping) else held["feature"],
            wanted if isinstance(labels, Mapping) else wanted["label"],
            {**held, **wanted},
        )

    return receive


def write(
    estimator: Any,
    base: str,
    receivers: Mapping[str, Callable[[], Any]],
    assets_extra: Mapping[str, str] | None,
    as_text: bool,
    checkpoint: str,
) -> bytes:
    """Write into a temporary folder, and rename it when it is complete; return its final name."""
    final = model_utils.get_timestamped_export_dir(base)
    beside = model_utils.get_temp_export_dir(final)
    builder = tf.saved_model.Builder(beside)
    has_variables = False
    for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT):
        if mode in receivers:
            _add_graph(estimator, builder, mode, receivers[mode], checkpoint, has_variables)
            has_variables = True
    builder.save(as_text)
    for name, source in (assets_extra or {}).items():
        target = os.path.join(tf.compat.as_str(beside), "assets.extra", name)
        tf.gfile.MakeDirs(os.path.dirname(target))
        tf.gfile.Copy(source, target)
    tf.gfile.Rename(beside, final)
    return bytes(tf.compat.as_bytes(final))


def _add_graph(
    estimator: Any,
    builder: Any,
    mode: str,
    receiver_fn: Callable[[], Any],
    checkpoint: str,
    has_variables: bool,
) -> None:
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step(graph)
        tf.set_random_seed(estimator._config.tf_random_seed)
        receiver = receiver_fn()
        labels = getattr(receiver, "labels", None)
        spec = estimator._call_model_fn(receiver.features, labels, mode, estimator.config)
        outputs = model_utils.export_outputs_for_mode(
            mode, spec.export_outputs, spec.predictions, spec.loss, spec.eval_metric_ops
        )
        signatures = model_utils.build_all_signature_defs(
            receiver.receiver_tensors,
            outputs,
            getattr(receiver, "receiver_tensors_alternatives", None),
            serving_only=mode == ModeKeys.PREDICT,
        )
        start = spec.scaffold.local_init_op or tf.train.Scaffold.default_local_init_op()
        common = {
            "tags": model_utils.EXPORT_TAG_MAP[mode],
            "signature_def_map": signatures,
            "assets_collection": tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            "main_op": start,
            "strip_default_attrs": True,
        }
        # The class of all sessions of this run, isolated or not.
        with session_manager.session.Session(config=estimator._session_config) as session:
            saver = spec.scaffold.saver or tf.train.Saver(sharded=True)
            saver.restore(session, checkpoint)
            if has_variables:
                builder.add_meta_graph(saver=saver, **common)
            else:
                builder.add_meta_graph_and_variables(session, saver=saver, **common)
