"""The feature columns of `tf.contrib.layers`, built with `tf.feature_column`."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.feature_column import feature_column_v2 as kept

from sojourn.compat.legacy.oldnames import signature_of

# Key of a bare array, which contrib.learn estimators accept: its column name is empty.
ARRAY = "features"

# The column classes that programs use in `isinstance` checks.
feature_column = types.SimpleNamespace(
    _SparseColumn=kept.CategoricalColumn,
    _RealValuedColumn=kept.NumericColumn,
    _BucketizedColumn=kept.BucketizedColumn,
    _EmbeddingColumn=kept.EmbeddingColumn,
    _OneHotColumn=kept.IndicatorColumn,
    _CrossedColumn=kept.CrossedColumn,
)


def _as_contrib(made: Any, places: str) -> Any:
    """Wrap `made` to accept contrib's arguments, in contrib's order. Each is listed as
    "old name=current name", with nothing after the sign if the argument no longer exists."""
    parts = [place.partition("=") for place in places.split()]
    pairs = [(old, new if sign else old) for old, sign, new in parts]
    todays, signature = dict(pairs), signature_of(" ".join(old for old, _ in pairs))

    def column(*args: Any, **named: Any) -> Any:
        given = signature.bind_partial(*args, **named).arguments
        rest = given.pop("rest", {})
        known = {todays[name]: value for name, value in given.items() if value is not None}
        known.pop("", None)
        return made(**known, **rest)

    column.__doc__ = made.__doc__
    return column


_now = tf.feature_column
sparse_column_with_hash_bucket = _as_contrib(
    _now.categorical_column_with_hash_bucket,
    "column_name=key hash_bucket_size combiner= dtype hash_keys=",
)
sparse_column_with_keys = _as_contrib(
    _now.categorical_column_with_vocabulary_list,
    "column_name=key keys=vocabulary_list default_value combiner= dtype",
)
sparse_column_with_integerized_feature = _as_contrib(
    _now.categorical_column_with_identity,
    "column_name=key bucket_size=num_buckets combiner= dtype=",
)
weighted_sparse_column = _as_contrib(
    _now.weighted_categorical_column,
    "sparse_id_column=categorical_column weight_column_name=weight_feature_key dtype",
)
one_hot_column = _as_contrib(_now.indicator_column, "sparse_id_column=categorical_column")
embedding_column = _as_contrib(
    _now.embedding_column,
    "sparse_id_column=categorical_column dimension combiner initializer ckpt_to_load_from "
    "tensor_name_in_ckpt max_norm trainable",
)


def real_valued_column(
    column_name: str,
    dimension: int | None = 1,
    default_value: Any = None,
    dtype: Any = tf.float32,
    normalizer: Any = None,
) -> Any:
    """Return a column of numbers."""
    return tf.feature_column.numeric_column(
        column_name or ARRAY, (dimension or 1,), default_value, tf.as_dtype(dtype), normalizer
    )


def sparse_column_with_vocabulary_file(
    column_name: str,
    vocabulary_file: str,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    combiner: str = "sum",
    dtype: Any = tf.string,
) -> Any:
    """Return a column of categories listed in a file, one per line."""
    return tf.feature_column.categorical_column_with_vocabulary_file(
        column_name,
        vocabulary_file,
        vocab_size,
        num_oov_buckets,
        None if num_oov_buckets else default_value,
        dtype,
    )


def bucketized_column(source_column: Any, boundaries: Iterable[float]) -> Any:
    """Return a column that groups numbers into ranges."""
    return tf.feature_column.bucketized_column(source_column, list(boundaries))


def crossed_column(
    columns: Iterable[Any], hash_bucket_size: int, combiner: str = "sum", **_: Any
) -> Any:
    """Return a column of hashed combinations of categories."""
    # A crossed column hashes raw values itself, so a hashed column is replaced by its key.
    keys = [
        column.key if hasattr(column, "hash_bucket_size") and hasattr(column, "key") else column
        for column in columns
    ]
    return tf.feature_column.crossed_column(keys, hash_bucket_size)


def create_feature_spec_for_parsing(feature_columns: Any) -> Any:
    """Return the feature spec that `tf.parse_example` needs to read these columns."""
    return tf.feature_column.make_parse_example_spec(feature_columns)


def input_from_feature_columns(
    columns_to_tensors: Any,
    feature_columns: Any,
    weight_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Return the dense input tensor of a network."""
    with tf.variable_scope(scope, "input_from_feature_columns"):
        return tf.feature_column.input_layer(
            columns_to_tensors, feature_columns, weight_collections, trainable
        )


def infer_real_valued_columns(features: Any) -> list[Any]:
    """Return one number column per entry of a dict of arrays or tensors, or for a single one."""
    named = features if isinstance(features, dict) else {"": features}
    columns = []
    for name, value in named.items():
        shape = list(value.shape)
        columns.append(real_valued_column(name, int(shape[1]) if len(shape) > 1 else 1))
    return columns


__all__ = [name for name in dir() if "column" in name or name.startswith("create_feature")]
