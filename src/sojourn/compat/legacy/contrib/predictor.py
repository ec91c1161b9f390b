"""`tf.contrib.predictor`: a session on a model, called with a dict of named arrays."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.training import session_manager

_DEFAULT = "serving_default"


class Predictor:
    """Feeds and fetches by the names of a signature. Its session stays open until closed."""

    def __init__(self, graph: Any, session: Any, feeds: Any, fetches: Any) -> None:
        self.graph, self.session = graph, session
        self.feed_tensors, self.fetch_tensors = feeds, fetches

    def __call__(self, input_dict: Any) -> Any:
        unknown = set(input_dict) - set(self.feed_tensors)
        if unknown:
            raise ValueError(
                f"Got unexpected keys in input_dict: {unknown}\nexpected: {set(self.feed_tensors)}"
            )
        feed = {self.feed_tensors[name]: value for name, value in input_dict.items()}
        return self.session.run(self.fetch_tensors, feed)


def from_saved_model(
    export_dir: Any,
    signature_def_key: str | None = None,
    signature_def: Any = None,
    input_names: Any = None,
    output_names: Any = None,
    tags: str | None = None,
    graph: Any = None,
    config: Any = None,
) -> Predictor:
    """Return a predictor for a SavedModel."""
    graph = graph or tf.Graph()
    with graph.as_default():
        session = session_manager.session.Session(config=config)
        wanted = (tags or tf.saved_model.tag_constants.SERVING).split(",")
        loaded = tf.saved_model.loader.load(session, wanted, tf.compat.as_str(export_dir))
    signature = signature_def or loaded.signature_def[signature_def_key or _DEFAULT]
    feeds = input_names or {name: info.name for name, info in signature.inputs.items()}
    fetches = output_names or {name: info.name for name, info in signature.outputs.items()}
    return Predictor(graph, session, feeds, fetches)


def from_estimator(
    estimator: Any,
    serving_input_receiver_fn: Any,
    output_key: str | None = None,
    graph: Any = None,
    config: Any = None,
) -> Predictor:
    """Return a predictor for the newest checkpoint of an estimator."""
    path = estimator.latest_checkpoint()
    if path is None:
        raise ValueError(f"Couldn't find trained model at {estimator.model_dir}.")
    graph = graph or tf.Graph()
    with graph.as_default():
        tf.train.create_global_step(graph)
        receiver = serving_input_receiver_fn()
        spec = estimator.model_fn(receiver.features, None, "infer", estimator.config)
        chosen = spec.export_outputs[output_key or _DEFAULT]
        signature = chosen.as_signature_def(receiver.receiver_tensors)
        session = session_manager.session.Session(config=config)
        (spec.scaffold.saver or tf.train.Saver(sharded=True)).restore(session, path)
        session.run(tf.train.Scaffold.default_local_init_op())
    return Predictor(
        graph,
        session,
        {name: info.name for name, info in signature.inputs.items()},
        {name: info.name for name, info in signature.outputs.items()},
    )
