"""Copies datasets that are made in one graph and read in another.

Up to TensorFlow 1.12 a dataset was built in the graph of its iterator. So programs could make
datasets first, and iterators later in the `input_fn` of an estimator, which has its own graph.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

# Ops with content that a copy would lack. Such datasets are left to TensorFlow's own error.
_HELD = re.compile("Placeholder|Variable|VarHandle|HashTable|Queue|Iterator")


def let_datasets() -> None:
    """Make the iterator methods copy a dataset that belongs to another graph."""
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
    """Return the dataset, or a copy of it in the program's current graph."""
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
