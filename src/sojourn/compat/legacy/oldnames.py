"""Functions whose name, argument order or argument names changed between TensorFlow 0.x and 1.x.

Each function accepts the old form and the form of the last TensorFlow 1; the arguments show
which of them the caller means.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

# Names that were removed before 1.0, and the names that replaced them.
RENAMED = {
    "mul": "multiply",
    "sub": "subtract",
    "neg": "negative",
    "inv": "reciprocal",
    "pack": "stack",
    "unpack": "unstack",
    "select": "where",
    "complex_abs": "abs",
    "listdiff": "setdiff1d",
    "initialize_all_variables": "global_variables_initializer",
    "initialize_local_variables": "local_variables_initializer",
    "initialize_variables": "variables_initializer",
    "initialize_all_tables": "tables_initializer",
    "all_variables": "global_variables",
    "histogram_summary": "summary.histogram",
    "scalar_summary": "summary.scalar",
    "image_summary": "summary.image",
    "audio_summary": "summary.audio",
    "merge_summary": "summary.merge",
    "merge_all_summaries": "summary.merge_all",
    "concat_v2": "concat",
    "reverse_v2": "reverse",
    "rfft": "spectral.rfft",
    "irfft": "spectral.irfft",
    **{
        f"batch_{name}": name
        for name in (
            "matmul", "cholesky", "cholesky_solve", "fft", "fft2d", "ifft", "matrix_band_part",
            "matrix_determinant", "matrix_diag", "matrix_diag_part", "matrix_inverse",
            "matrix_solve", "matrix_triangular_solve", "self_adjoint_eig", "svd",
        )
    },
}  # fmt: skip

# Argument names that were removed and the current ones. TensorFlow 1.15 still knew most of them.
_KEYWORDS = {
    "reduction_indices": "axis",
    "keep_dims": "keepdims",
    "squeeze_dims": "axis",
    "split_dim": "axis",
    "concat_dim": "axis",
    "dim": "axis",
    "dimension": "axis",
    "num_split": "num_or_size_splits",
    "tensors": "values",
    "t": "a",
}


def add_methods(tf1: Any) -> None:
    """Add missing methods, which were removed together with the functions of the same name."""
    for old, new in (("pack", "stack"), ("unpack", "unstack")):
        if not hasattr(tf1.TensorArray, old):
            setattr(tf1.TensorArray, old, getattr(tf1.TensorArray, new))


def takes_old_keywords(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with removed keyword names translated to its current ones."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old in kwargs.keys() & _KEYWORDS.keys():
            if old not in known and _KEYWORDS[old] in known:
                kwargs[_KEYWORDS[old]] = kwargs.pop(old)
        return function(*args, **kwargs)

    return call


def renaming(function: Callable[..., Any], **renamed: str) -> Callable[..., Any]:
    """Return `function`, made to accept these old keyword names too."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old in kwargs.keys() & renamed.keys():
            kwargs[renamed[old]] = kwargs.pop(old)
        return function(*args, **kwargs)

    return call


def signature_of(places: str) -> inspect.Signature:
    """Return a signature with these arguments in this order, and `**rest` for all others."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    known = [inspect.Parameter(name, kind) for name in places.split()]
    return inspect.Signature([*known, inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD)])


class _Same(type):
    """The metaclass of a stand-in that makes objects of the class `_same`.

    The objects of that class count as instances of the stand-in.
    """

    _same: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._same)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls._same)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    shape = getattr(value, "shape", ())
    dtype = str(getattr(value, "dtype", ""))
    return isinstance(value, int) or ("int" in dtype and tuple(shape or ()) == ())


def adapters(tf1: Any) -> Mapping[str, Any]:
    """Return the functions of the top-level module that need more than a new name."""

    def concat(*args: Any, **kwargs: Any) -> Any:
        # Before 1.0: concat(concat_dim, values).
        if "concat_dim" in kwargs:
            kwargs["axis"] = kwargs.pop("concat_dim")
        if len(args) >= 2 and _is_number(args[0]) and not _is_number(args[1]):
            args = (args[1], args[0], *args[2:])
        elif len(args) == 1 and _is_number(args[0]) and "values" in kwargs:
            kwargs["axis"], args = args[0], ()
        return tf1.concat(*args, **kwargs)

    def split(*args: Any, **kwargs: Any) -> Any:
        # Before 1.0: split(split_dim, num_split, value).
        for old, new in (("split_dim", "axis"), ("num_split", "num_or_size_splits")):
            if old in kwargs:
                kwargs[new] = kwargs.pop(old)
        if args and isinstance(args[0], int):
            if len(args) >= 3:
                args = (args[2], args[1], args[0], *args[3:])
            elif "value" in kwargs:
                kwargs.update(zip(("axis", "num_or_size_splits"), args, strict=False))
                args = ()
        return tf1.split(*args, **kwargs)

    def reverse(tensor: Any, axis: Any = None, name: Any = None, dims: Any = None) -> Any:
        # Before 1.0 the second argument had one boolean per dimension.
        axis = dims if axis is None else axis
        if isinstance(axis, (list, tuple)) and axis and all(isinstance(a, bool) for a in axis):
            axis = [index for index, flip in enumerate(axis) if flip]
        return tf1.reverse(tensor, axis, name=name)

    def batch_matmul(
        x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: Any = None
    ) -> Any:
        return tf1.matmul(x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name)

    def summary_with_tag(kind: str) -> Callable[..., Any]:
        # The tag of an old summary may contain characters that a name may not, and need not be
        # unique.
        def call(tag: Any = None, value: Any = None, *args: Any, **kwargs: Any) -> Any:
            tag = kwargs.pop("tags", tag)
            for old in ("values", "tensor"):
                value = kwargs.pop(old, value)
            kwargs.pop("name", None)
            if "max_images" in kwargs:
                kwargs["max_outputs"] = kwargs.pop("max_images")
            if isinstance(tag, (list, tuple)) or not isinstance(tag, str):
                tag = kind
            return getattr(tf1.summary, kind)(tag, value, *args, **kwargs)

        return call

    class SparseTensor(metaclass=_Same):
        # Before 1.0 the last argument was called `shape`.
        __doc__ = tf1.SparseTensor.__doc__
        _same = tf1.SparseTensor

        def __new__(cls, indices: Any, values: Any, dense_shape: Any = None, **old: Any) -> Any:
            return tf1.SparseTensor(indices, values, old.get("shape", dense_shape))

    def variable_op_scope(
        values: Any, name_or_scope: Any, default_name: Any = None, **kw: Any
    ) -> Any:
        return tf1.variable_scope(name_or_scope, default_name, values, **kw)

    return {
        "concat": concat,
        "split": split,
        "reverse": reverse,
        "batch_matmul": batch_matmul,
        "variable_op_scope": variable_op_scope,
        "SparseTensor": SparseTensor,
        "scalar_summary": summary_with_tag("scalar"),
        "histogram_summary": summary_with_tag("histogram"),
        "image_summary": summary_with_tag("image"),
        "audio_summary": summary_with_tag("audio"),
        **{
            name: takes_old_keywords(getattr(tf1, name))
            for name in ("stack", "unstack", "squeeze", "one_hot", "gather", "cumsum", "norm")
        },
    }


def image_adapters(tf1: Any) -> Mapping[str, Any]:
    """Return the functions of `tf.image` that changed."""

    def resize_images(images: Any, *args: Any, **kwargs: Any) -> Any:
        # Before 1.0: resize_images(images, new_height, new_width, method, align_corners).
        if len(args) >= 2 and _is_number(args[0]) and _is_number(args[1]):
            args = ([args[0], args[1]], *args[2:])
        elif "new_height" in kwargs:
            kwargs["size"] = [kwargs.pop("new_height"), kwargs.pop("new_width")]
        return tf1.image.resize_images(images, *args, **kwargs)

    return {
        "resize_images": resize_images,
        "per_image_whitening": tf1.image.per_image_standardization,
        "random_crop": tf1.random_crop,
    }


def nn_adapters(tf1: Any) -> Mapping[str, Any]:
    """Return the functions of `tf.nn` that changed."""
    from tensorflow.python.framework import tensor_util

    def logits_first(name: str) -> Callable[..., Any]:
        # Before 1.0: f(logits, labels). Later versions refused positional arguments, so a
        # positional call can only mean the old order.
        function = getattr(tf1.nn, name)
        second = "targets" if name == "sigmoid_cross_entropy_with_logits" else "labels"

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if "targets" in kwargs:
                kwargs["labels"] = kwargs.pop("targets")
            if args and args[0] is not None:
                kwargs["logits"] = args[0]
                if len(args) > 1:
                    kwargs["labels"] = args[1]
                if len(args) > 2 and second == "labels":
                    kwargs["name"] = args[2]
                args = ()
            return function(*args, **kwargs)

        return call

    def seen_order(name: str) -> Callable[..., Any]:
        # Before 1.0: f(weights, biases, inputs, labels, ...). Later, labels and inputs were
        # swapped. The labels are integers.
        function = getattr(tf1.nn, name)

        @functools.wraps(function)
        def call(weights: Any, biases: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) >= 2:
                labels, inputs = args[0], args[1]
                dtypes = [str(getattr(a, "dtype", "")) for a in (labels, inputs)]
                if "int" in dtypes[1] and "int" not in dtypes[0]:
                    args = (inputs, labels, *args[2:])
            return function(weights, biases, *args, **kwargs)

        return call

    def conv2d_transpose(*args: Any, **kwargs: Any) -> Any:
        # TensorFlow 1 took the whole static shape from `output_shape`. Today's TensorFlow leaves
        # the batch size out if the input's is unknown, but programs use it to reshape.
        made = tf1.nn.conv2d_transpose(*args, **kwargs)
        given = kwargs.get("output_shape", args[2] if len(args) > 2 else None)
        if made.shape.rank == 4 and made.shape[0].value is None and given is not None:
            size = tensor_util.constant_value_as_shape(tf1.convert_to_tensor(given, tf1.int32))
            if size.rank == 4:
                made.set_shape([size[0], None, None, None])
        return made

    return {
        "conv2d_transpose": conv2d_transpose,
        "softmax_cross_entropy_with_logits": logits_first("softmax_cross_entropy_with_logits"),
        "sigmoid_cross_entropy_with_logits": logits_first("sigmoid_cross_entropy_with_logits"),
        "sparse_softmax_cross_entropy_with_logits": logits_first(
            "sparse_softmax_cross_entropy_with_logits"
        ),
        "nce_loss": seen_order("nce_loss"),
        "sampled_softmax_loss": seen_order("sampled_softmax_loss"),
        "moments": takes_old_keywords(tf1.nn.moments),
        "softmax": takes_old_keywords(tf1.nn.softmax),
    }


def scalar() -> Any:
    """Return the shape of a scalar: the original name of this function in `tensor_shape`."""
    from tensorflow.python.framework.tensor_shape import TensorShape

    return TensorShape([])


def is_sequence(structure: Any) -> bool:
    """Call `nest.is_nested`, whose original name this is."""
    from tensorflow.python.util import nest

    return bool(nest.is_nested(structure))
