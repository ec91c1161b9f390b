"""`tf.contrib.layers.utils`: aliases of tensors in collections, conditions and shapes."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework.smart_cond import smart_cond, smart_constant_value  # noqa: F401

from sojourn.compat.legacy import removed


def collect_named_outputs(collections: Any, alias: str, outputs: Any) -> Any:
    """Add a tensor to collections under the name `alias`."""
    if collections:
        outputs.aliases = [alias]
        tf.add_to_collections(collections, outputs)
    return outputs


def get_tensor_aliases(tensor: Any) -> list[str]:
    """Return the aliases of a tensor; its own name if it has none."""
    return list(getattr(tensor, "aliases", None) or [tensor.name.removesuffix(":0")])


def convert_collection_to_dict(collection: Any, clear_collection: bool = False) -> dict[str, Any]:
    """Return the tensors of a collection by alias, in order."""
    found = {
        alias: tensor
        for tensor in tf.get_collection(collection)
        for alias in get_tensor_aliases(tensor)
    }
    if clear_collection:
        tf.get_default_graph().clear_collection(collection)
    return found


def constant_value(value_or_tensor_or_var: Any, dtype: Any = None) -> Any:
    """Return the value if it is known when the graph is built, else None."""
    if isinstance(value_or_tensor_or_var, (tf.Tensor, tf.Variable)):
        return tf.get_static_value(value_or_tensor_or_var)
    return value_or_tensor_or_var


def last_dimension(shape: Any, min_rank: int = 1) -> Any:
    """The size of the last dimension."""
    return tf.dimension_value(shape.with_rank_at_least(min_rank)[-1])


def first_dimension(shape: Any, min_rank: int = 1) -> Any:
    """The size of the first dimension."""
    return tf.dimension_value(shape.with_rank_at_least(min_rank)[0])


def two_element_tuple(int_or_tuple: Any) -> tuple[int, int]:
    """Return an integer twice, or the two given integers."""
    if isinstance(int_or_tuple, int):
        return int_or_tuple, int_or_tuple
    first, second = tf.TensorShape(int_or_tuple).as_list()
    return first, second


def n_positive_integers(n: int, value: Any) -> tuple[int, ...]:
    """Return one integer n times, or the n given integers."""
    given = (value,) * n if isinstance(value, int) else tuple(value)
    if len(given) != n or any(each < 1 for each in given):
        raise ValueError(f"expected {n} positive numbers, got {value!r}")
    return given


static_cond = smart_cond

__getattr__ = removed.missing_name("tf.contrib.layers.utils")
