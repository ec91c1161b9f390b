"""The sources of an estimator's features and labels.

These are the program's own input function, and the two functions that make an input function from
arrays (`tf.estimator.inputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops.dataset_ops import DatasetV2
from tensorflow.python.util import function_utils

InputFn = Callable[..., Any]


class _StartsDataset(tf.train.SessionRunHook):  # type: ignore[misc]
    """Initializes the dataset's iterator when the session has been created."""

    def __init__(self, initializer: Any) -> None:
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)


def call(input_fn: InputFn, **offered: Any) -> Any:
    """Call the input function with those values of `offered` for which it has arguments."""
    if isinstance(input_fn, DatasetV2) or not callable(input_fn):
        raise TypeError(f"input_fn must be a function, not {input_fn!r}")
    wanted = function_utils.fn_args(input_fn)
    return input_fn(**{name: value for name, value in offered.items() if name in wanted})


def features_and_labels(result: Any, labelled: bool = True) -> tuple[Any, Any, list[Any]]:
    """Split the result of an input function into features, labels, and the hooks they need.

    A prediction needs no labels: then only the first part of the result, the features, is used.
    """
    hooks: list[Any] = []
    if isinstance(result, DatasetV2):
        iterator = tf.data.make_initializable_iterator(result)
        hooks.append(_StartsDataset(iterator.initializer))
        result = iterator.get_next()
    if isinstance(result, (tuple, list)):
        if not labelled:
            return result[0], None, hooks
        if len(result) != 2:
            raise ValueError(
                "input_fn should return (features, labels) as a len 2 tuple, "
                f"not {len(result)} values"
            )
        return result[0], result[1], hooks
    return result, None, hooks


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> InputFn:
    """Return an input function that feeds one array or a dict of arrays."""
    _require_shuffle(shuffle)
    features = dict(x) if isinstance(x, Mapping) else {"": np.asarray(x)}
    targets = None if y is None else dict(y) if isinstance(y, Mapping) else {"": np.asarray(y)}
    features = {name: np.asarray(array) for name, array in features.items()}
    if not features:
        raise ValueError("x cannot be an empty dict")
    targets = targets and {name: np.asarray(array) for name, array in targets.items()}

    def input_fn() -> Any:
        named, labels = _batches(features, targets, batch_size, num_epochs, shuffle)
        return _as_given(named, labels, x, y)

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> InputFn:
    """Return an input function that feeds the columns of a DataFrame, and a Series of labels."""
    _require_shuffle(shuffle)
    if y is not None and not np.array_equal(x.index, y.index):
        raise ValueError("Index for x and y are mismatched.")
    features = {name: _column(x[name]) for name in x.columns}
    several = hasattr(y, "columns")
    targets = None
    if y is not None:
        targets = {name: _column(y[name]) for name in y.columns} if several else {"": _column(y)}

    def input_fn() -> Any:
        named, labels = _batches(features, targets, batch_size, num_epochs, shuffle)
        if targets is None:
            return named
        return named, labels if several else labels[""]

    return input_fn


def _require_shuffle(shuffle: Any) -> None:
    if not isinstance(shuffle, bool):
        raise ValueError(f"shuffle must be provided and explicitly set as boolean, not {shuffle!r}")


def _column(series: Any) -> Any:
    return np.asarray(series)


def _as_given(named: Any, labels: Any, x: Any, y: Any) -> Any:
    features = named if isinstance(x, Mapping) else named[""]
    if y is None:
        return features
    return features, labels if isinstance(y, Mapping) else labels[""]


def _batches(
    features: dict[Any, Any],
    targets: dict[Any, Any] | None,
    batch_size: int,
    num_epochs: int | None,
    shuffle: bool | None,
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return tensors that give the next batch at each step.

    The arrays do not enter the graph: each step takes its rows from this process.
    """
    arrays = [*features.values(), *(targets or {}).values()]
    sizes = {len(array) for array in arrays}
    if len(sizes) != 1:
        raise ValueError(
            f"Length of tensors in x and y is mismatched: {[len(array) for array in arrays]}"
        )
    kinds = [_kind(array) for array in arrays]
    rows = tf.data.Dataset.range(sizes.pop())
    if shuffle:
        rows = rows.shuffle(max(len(arrays[0]), 1))

    def take(chosen: Any) -> Any:
        return [array[chosen] for array in arrays]

    def batch(chosen: Any) -> Any:
        taken = tf.numpy_function(take, [chosen], kinds)
        for tensor, array in zip(taken, arrays, strict=True):
            tensor.set_shape([None, *array.shape[1:]])
        return tuple(taken)

    rows = rows.repeat(num_epochs).batch(batch_size).map(batch).prefetch(1)
    tensors = tf.data.make_one_shot_iterator(rows).get_next()
    named = dict(zip(features, tensors, strict=False))
    labels = dict(zip(targets or {}, tensors[len(features) :], strict=True))
    return named, labels


def _kind(array: Any) -> Any:
    return tf.string if array.dtype.kind in "OSU" else tf.as_dtype(array.dtype)
