"""Convert a model from what the user has to what an engine receives."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from sojourn.engines import function
from sojourn.errors import ModelError
from sojourn.kinds import Load
from sojourn.kinds.paths import Found
from sojourn.values import arguments

Arrays = list[np.ndarray]


def described(model: Any, inline: bool, chosen: Load) -> tuple[Load, Arrays]:
    """Return the `Load` for the engine, and the arrays that are sent with it."""
    if isinstance(model, Found):
        return replace(chosen, kind=model.kind.name, path=model.path), []
    live = _described_if_live(model, chosen) if "tensorflow" in sys.modules else None
    if live is not None:
        return live
    if callable(model):
        _require_no_arguments(model)
        if inline:
            return replace(chosen, kind="builder", live=model), []
        try:
            return replace(chosen, kind="builder"), function.pack(model)
        except Exception as error:
            raise ModelError(f"{model!r} cannot be sent to a worker: {error}") from error
    raise ModelError(
        "a model must be a path, a Keras model, a tf.function, a tf.Graph, or a function that "
        f"builds one of these, not {type(model).__name__}"
    )


def _require_no_arguments(build: Callable[..., Any]) -> None:
    try:
        takes = inspect.signature(build)
    except (TypeError, ValueError):
        return  # it has no signature that can be read
    try:
        takes.bind()
    except TypeError as error:
        name = getattr(build, "__name__", "it")
        raise ModelError(
            f"a function that builds a model is called without arguments: {build!r}: {error}; to "
            f"run {name} itself, open a function that returns it: lambda: {name}"
        ) from None


def _described_if_live(model: Any, chosen: Load) -> tuple[Load, Arrays] | None:
    """Like `described`, for TensorFlow objects; None for other objects. The caller has imported
    TensorFlow."""
    from sojourn.engines import tensorflow, tracing

    if tensorflow.is_graph(model):
        graph_def = model.as_graph_def(add_shapes=True)
        initializer = chosen.initializer or tensorflow.initializers_of(model)
        load = replace(chosen, kind="graph", initializer=initializer)
        return load, [np.frombuffer(graph_def.SerializeToString(), np.uint8)]
    if tracing.is_traceable(model):
        packed, arrays = tracing.pack(model, chosen.inputs)
        return replace(chosen, kind="packed", packed=packed, inputs=None), arrays
    return None


def base_name(model: Any) -> str:
    """The name of the model, after which its sessions are named."""
    if isinstance(model, str | os.PathLike):
        base = os.path.basename(os.path.normpath(os.fspath(model)))
    else:
        base = getattr(model, "__name__", None) or getattr(model, "name", None) or ""
    base = base or type(model).__name__.lower()
    return re.sub(r"[^a-zA-Z0-9_.-]", "", str(base)) or "session"


def listed_tags(tags: Any) -> list[str] | None:
    """One or several tags of a SavedModel, as a list."""
    if tags is None:
        return None
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        tags = [tags]
    return [arguments.text("a tag", tag) for tag in tags]
