"""`tf.contrib.framework`: argument scopes, variables by name, and the global step."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework.smart_cond import (  # noqa: F401
    smart_cond,
    smart_constant_value,
)
from tensorflow.python.ops import gen_audio_ops as _audio
from tensorflow.python.util import nest as _nest
from tensorflow.python.util.deprecation import deprecated, deprecated_args  # noqa: F401

from sojourn.compat.legacy import oldnames, removed
from sojourn.compat.legacy.namespaces import Namespace, names_of

Scope = dict[Any, dict[str, Any]]
_scopes: list[Scope] = [{}]
_KEY = "_sojourn_arg_scope_key"


def add_arg_scope(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `arg_scope` set arguments of `function`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        defaults = _scopes[-1].get(_key_of(call), {})
        return function(*args, **{**defaults, **kwargs})

    setattr(call, _KEY, (function.__module__, function.__qualname__))
    return call


def _key_of(function: Any) -> Any:
    key = getattr(function, _KEY, None)
    if key is None:
        name = getattr(function, "__name__", function)
        raise ValueError(f"{name} is not decorated with add_arg_scope")
    return key


@contextlib.contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[Scope]:
    """Set default arguments of functions inside the block, or restore an earlier scope."""
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ValueError("arguments cannot be added while a scope is restored")
        scope = list_ops_or_scope
    else:
        scope = {key: dict(values) for key, values in _scopes[-1].items()}
        for function in list_ops_or_scope:
            scope.setdefault(_key_of(function), {}).update(kwargs)
    _scopes.append(scope)
    try:
        yield scope
    finally:
        _scopes.pop()


def current_arg_scope() -> Scope:
    """Return the default arguments in effect, by function."""
    return _scopes[-1]


def has_arg_scope(function: Any) -> bool:
    """Whether `arg_scope` can set arguments of `function`."""
    return hasattr(function, _KEY)


def arg_scoped_arguments(function: Any) -> Any:
    """Return the default arguments in effect for `function`."""
    return _scopes[-1].get(_key_of(function), {})


@add_arg_scope
def variable(name: str, shape: Any = None, dtype: Any = tf.float32, **kwargs: Any) -> Any:
    """`tf.get_variable`, with the argument names of contrib."""
    device = kwargs.pop("device", None)
    with tf.device(device) if device else contextlib.nullcontext():
        return tf.get_variable(name, shape, dtype, **kwargs)


@add_arg_scope
def model_variable(name: str, shape: Any = None, dtype: Any = tf.float32, **kwargs: Any) -> Any:
    """Create a variable that is also in `tf.GraphKeys.MODEL_VARIABLES`."""
    collections = [
        *(kwargs.pop("collections", None) or []),
        tf.GraphKeys.GLOBAL_VARIABLES,
        tf.GraphKeys.MODEL_VARIABLES,
    ]
    return variable(name, shape, dtype, collections=collections, **kwargs)


def local_variable(initial_value: Any, validate_shape: bool = True, name: Any = None) -> Any:
    """Create a local variable, which checkpoints do not contain."""
    return tf.Variable(
        initial_value,
        trainable=False,
        collections=[tf.GraphKeys.LOCAL_VARIABLES],
        validate_shape=validate_shape,
        name=name,
    )


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = tf.GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """Return the variables of a collection below `scope` whose names end with `suffix`."""
    prefix = scope.name if isinstance(scope, tf.VariableScope) else scope
    found = tf.get_collection(collection, prefix)
    return [v for v in found if suffix is None or v.op.name.endswith(suffix)]


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The trainable variables below `scope`."""
    return get_variables(scope, suffix, tf.GraphKeys.TRAINABLE_VARIABLES)


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The model's variables below `scope`."""
    return get_variables(scope, suffix, tf.GraphKeys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The local variables below `scope`."""
    return get_variables(scope, suffix, tf.GraphKeys.LOCAL_VARIABLES)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """The variables called `given_name`, in any scope below `scope`."""
    return [v for v in get_variables(scope) if v.op.name.split("/")[-1] == given_name]


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """The variables whose names end with `suffix`."""
    return get_variables(scope, suffix)


def get_unique_variable(name: str) -> Any:
    """Return the only variable called `name`."""
    found = [v for v in get_variables(name) if v.op.name == name]
    if len(found) != 1:
        raise ValueError(f"{len(found)} variables are called {name!r}")
    return found[0]


def get_variables_to_restore(
    include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> list[Any]:
    """Return the variables below any scope in `include` and below none in `exclude`."""
    chosen = [v for scope in include or [None] for v in get_variables(scope)]  # type: ignore[list-item]
    left_out = {v.ref() for scope in exclude or [] for v in get_variables(scope)}
    return [v for v in chosen if v.ref() not in left_out]


def assign_from_checkpoint_fn(
    model_path: str,
    var_list: Any,
    ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:
    """Return a function that restores `var_list` into a session; None if no variable is left."""
    if not var_list:
        raise ValueError("var_list cannot be empty")
    wanted = var_list if isinstance(var_list, dict) else {v.op.name: v for v in var_list}
    if ignore_missing_vars:
        stored = dict(tf.train.list_variables(model_path))
        wanted = {name: v for name, v in wanted.items() if name in stored}
    if not wanted:
        tf.logging.warning("No Variables to restore")
        return None
    saver = tf.train.Saver(wanted, reshape=reshape_variables)
    return lambda session: saver.restore(session, model_path)


def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, Any]]:
    """Return an op that sets the variables, and its feeds: the values in the checkpoint."""
    wanted = var_list if isinstance(var_list, dict) else {v.op.name: v for v in var_list}
    reader = tf.train.load_checkpoint(model_path)
    values = {}
    for name, var in wanted.items():
        if reader.has_tensor(name):
            values[var] = reader.get_tensor(name)
        elif not ignore_missing_vars:
            raise ValueError(f"Checkpoint is missing variable [{name}]")
    return _assign(values)


def assign_from_values(var_names_to_values: dict[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """Return an op that sets the variables with those names, and its feeds."""
    return _assign({get_unique_variable(n): value for n, value in var_names_to_values.items()})


def assign_from_values_fn(var_names_to_values: dict[str, Any]) -> Callable[[Any], None]:
    """Return a function that sets the variables with those names in a session."""
    op, feeds = assign_from_values(var_names_to_values)
    return lambda session: session.run(op, feeds)


def _assign(values: dict[Any, Any]) -> tuple[Any, dict[Any, Any]]:
    feeds, ops = {}, []
    for var, value in values.items():
        fed = tf.placeholder(var.dtype.base_dtype, var.shape)
        ops.append(var.assign(fed))
        feeds[fed] = np.reshape(value, var.shape.as_list())
    return tf.group(*ops), feeds


def get_name_scope() -> str:
    """Return the current name scope."""
    return str(tf.get_default_graph().get_name_scope())


def filter_variables(
    var_list: Any,
    include_patterns: Any = None,
    exclude_patterns: Any = None,
    reg_search: bool = True,
) -> list[Any]:
    """Return the variables whose names match an include pattern and no exclude pattern."""
    match = re.search if reg_search else re.match

    def hit(patterns: Any, var: Any) -> bool:
        return any(match(pattern, var.op.name) for pattern in patterns)

    chosen = [v for v in var_list if include_patterns is None or hit(include_patterns, v)]
    return [v for v in chosen if exclude_patterns is None or not hit(exclude_patterns, v)]


nest = Namespace("tensorflow.contrib.framework.nest", (_nest, oldnames))
globals().update(
    names_of(
        tf.train,
        "assert_global_step create_global_step get_global_step get_or_create_global_step "
        "init_from_checkpoint list_variables load_checkpoint load_variable",
    ),
    **names_of(
        tf,
        "CriticalSection TensorSpec argsort assert_scalar convert_to_tensor_or_sparse_tensor "
        "is_tensor sort",
    ),
)
add_model_variable = functools.partial(tf.add_to_collection, tf.GraphKeys.MODEL_VARIABLES)
# Contrib's module `python/ops/audio_ops`: spectrogram, MFCC, and WAV decoding and encoding.
audio_ops = Namespace("tensorflow.contrib.framework.python.ops.audio_ops", (_audio,))

__getattr__ = removed.missing_name("tf.contrib.framework")
