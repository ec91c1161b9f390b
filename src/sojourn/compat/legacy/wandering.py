"""Datasets that are made in one graph and read in another.

Up to TensorFlow 1.12 a dataset was built where its iterator was, so that programs made datasets
first, and the iterators in the `input_fn` of an estimator, which has a graph of its own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

# What a copy would not have the content of: TensorFlow's own error tells of it.
_HELD = re.compile("Placeholder|Variable|VarHandle|HashTable|Queue|Iterator")


def let_datasets() -> None:
    """Give datasets that are read in another graph a copy there."""
    from tensorflow.python.data.ops.dataset_ops import DatasetV1

    for name in ("_make_one_shot_iterator", "_make_initializable_iterator"):
        if not hasattr(getattr(DatasetV1, name), "__wrapped__"):
            setattr(DatasetV1, name, _here(getattr(DatasetV1, name)))


def _here(make_iterator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_iterator)
    def make(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return make_iterator(_brought(dataset), *args, **kwargs)

    return make


def _brought(dataset: Any) -> Any:
    """That dataset, or its copy in the graph where the program is."""
    import tensorflow.compat.v1 as tf
    from tensorflow.python.data.ops import dataset_ops

    made = dataset._variant_tensor
    if tf.executing_eagerly() or made.graph is tf.get_default_graph():
        return dataset
    wanted = tf.graph_util.extract_sub_graph(made.graph.as_graph_def(), [made.op.name])
    if any(_HELD.match(node.op) for node in wanted.node):
        return dataset
    (copy,) = tf.import_graph_def(wanted, return_elements=[made.name], name="dataset")
    same = dataset_ops._VariantDataset(copy, dataset.element_spec)
    return dataset_ops.DatasetV1Adapter(same)
