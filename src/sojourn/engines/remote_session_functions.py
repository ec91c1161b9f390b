"""Python functions inside a graph (`py_func` and similar), as the worker calls them.

The function lives in the caller's process and runs there: TensorFlow's kernel calls the registry
here, which sends the arguments to the caller and waits. An error of the function is raised again
here, by a class of the same name, so that TensorFlow turns it into the usual status.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import constant_op, ops
from tensorflow.python.ops import script_ops

from sojourn.engines.base import CallBack


class Question(msgspec.Struct, frozen=True):
    """A request to call a function; its arguments are the arrays."""

    token: str


class Answer(msgspec.Struct, frozen=True):
    """The result of a function; its values are the arrays."""

    form: str  # "one", "list" or "none"
    is_eager: bool
    # Position -> type name of a value that no tensor can hold, so that TensorFlow complains.
    strange: dict[int, str] = {}


class Failure(msgspec.Struct, frozen=True):
    """The error that a function raised."""

    name: str
    family: str  # the built-in exception that determines TensorFlow's status
    message: str
    traceback: str


# TensorFlow distinguishes these; any other error becomes an UnknownError.
FAMILIES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (TypeError, ValueError, StopIteration, MemoryError, NotImplementedError, Exception)
}


# Instead of a type name: the whole array has a dtype that no tensor can have.
UNSUPPORTED = ""


class InTheCaller(Exception):
    """The function's traceback in the caller's process."""


class RemoteFunctions(script_ops.FuncRegistry):  # type: ignore[misc]
    """Replaces TensorFlow's registry of Python functions."""

    _connected: threading.Event
    _call_back: CallBack

    def connect(self, call_back: CallBack) -> None:
        """Set the callback, and release the calls that already wait for it."""
        self._call_back = call_back
        self._connected.set()

    def __call__(self, token: str, device: str | None, args: list[Any]) -> Any:
        self._connected.wait()
        question = msgspec.msgpack.encode(Question(str(token)))
        status, reply, results = self._call_back(question, [_as_array(arg) for arg in args])
        if status:
            failure = msgspec.msgpack.decode(reply, type=Failure)
            family = FAMILIES[failure.family]
            kind = family
            if failure.name != failure.family:
                kind = type(failure.name, (family,), {"__module__": "builtins"})
            raise kind(failure.message) from InTheCaller(f"\n{failure.traceback}")
        answer = msgspec.msgpack.decode(reply, type=Answer)
        values: list[Any] = list(results)
        for place, name in answer.strange.items():
            values[place] = _strange(name)
        if answer.is_eager:
            with context.eager_mode():
                values = [constant_op.constant(value) for value in values]
        if answer.form == "none":
            return None if answer.is_eager else np.array(None, dtype=object)
        return values[0] if answer.form == "one" else values


def take_over() -> RemoteFunctions:
    """Make TensorFlow's kernels call `RemoteFunctions`.

    The registry object cannot be replaced, so its class is changed.
    """
    registry = script_ops._py_funcs
    registry.__class__ = RemoteFunctions
    registry._connected = threading.Event()
    return registry  # type: ignore[no-any-return]


def _strange(name: str) -> np.ndarray:
    """Return a value that TensorFlow refuses with the same words as the original value."""
    if name == UNSUPPORTED:
        return np.zeros(0, np.dtype([("field", np.float32)]))
    return np.array(type(name, (), {})(), dtype=object)


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, ops.EagerTensor):
        value = value.numpy()
    return np.array(value, dtype=object) if isinstance(value, bytes) else np.asarray(value)
