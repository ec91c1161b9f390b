"""Calls of the Python functions in a graph, which run here, in the process that made them.

The worker requests a function by its token; only tokens of this session's own graph are accepted.
Each call runs on its own thread, as it does in TensorFlow.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import constant_op
from tensorflow.python.ops import script_ops

from sojourn.engines.remote_session_functions import (
    FAMILIES,
    UNSUPPORTED,
    Answer,
    Failure,
    Question,
)
from sojourn.process.calls import FAILED, OK
from sojourn.values.dtypes import name_of
from sojourn.values.texts import sendable


class FunctionCalls:
    """Runs the Python functions that a worker requests."""

    def __init__(self) -> None:
        self.tokens: set[str] = set()

    def answer(
        self, meta: bytes, arrays: Sequence[np.ndarray]
    ) -> tuple[int, bytes, Sequence[np.ndarray]]:
        """Call the requested function; return its result or its error."""
        try:
            question = msgspec.msgpack.decode(meta, type=Question)
            if question.token not in self.tokens:
                raise ValueError(f"{question.token} is not a function of this session's graph")
            # The transport owns the memory, and the function may keep its arguments.
            return self._call(question.token, [array.copy() for array in arrays])
        except BaseException as error:
            return FAILED, msgspec.msgpack.encode(_failure(error)), ()

    def _call(
        self, token: str, arrays: list[np.ndarray]
    ) -> tuple[int, bytes, Sequence[np.ndarray]]:
        registry = script_ops._py_funcs
        is_eager = isinstance(registry.get(token), script_ops.EagerFunc)
        args: list[Any] = [array if array.ndim else array[()] for array in arrays]
        if is_eager:
            with context.eager_mode():
                args = [constant_op.constant(arg) for arg in args]
        returned = registry(token, None, args)
        form = "list" if isinstance(returned, list) else "one"
        values = returned if form == "list" else [returned]
        if is_eager:
            values = [None if value is None else value.numpy() for value in values]
        if form == "one" and _is_none(values[0]):
            form, values = "none", []
        sent = [_as_array(value) for value in values]
        found = {i: _strange_element(array) for i, array in enumerate(sent)}
        strange = {i: name for i, name in found.items() if name is not None}
        for i in strange:
            sent[i] = np.zeros(0)
        return OK, msgspec.msgpack.encode(Answer(form, is_eager, strange)), sent


def _is_none(value: Any) -> bool:
    return value is None or (
        isinstance(value, np.ndarray) and value.shape == () and value[()] is None
    )


def _as_array(value: Any) -> np.ndarray:
    return np.array(value, dtype=object) if isinstance(value, bytes) else np.asarray(value)


def _strange_element(array: np.ndarray) -> str | None:
    """Return the type name of an element that a tensor cannot hold, None if no such exists."""
    if name_of(array.dtype) is None:
        return UNSUPPORTED
    if array.dtype.kind == "O":
        for item in array.reshape(-1).tolist():
            if not isinstance(item, str | bytes):
                return type(item).__name__
    return None


def _failure(error: BaseException) -> Failure:
    family = next((name for name, kind in FAMILIES.items() if isinstance(error, kind)), "Exception")
    # The first two frames belong to this module.
    frames = error.__traceback__
    for _ in range(2):
        frames = frames.tb_next if frames is not None and frames.tb_next is not None else frames
    return Failure(
        type(error).__name__,
        family,
        sendable(str(error)),
        sendable("".join(traceback.format_exception(type(error), error, frames)).rstrip()),
    )
