"""Python functions inside a graph (`py_func` and its kin), seen from the worker.

The function lives in the caller's process and runs there: TensorFlow's kernel asks the registry
here, which sends the arguments over and waits. What the function raises is raised again here, by
a class of the same name, so that TensorFlow turns it into the status it always does.
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
    """Call this function; the arguments are the arrays."""

    token: str


class Answer(msgspec.Struct, frozen=True):
    """What it returned; the values are the arrays."""

    form: str  # "one", "list" or "none"
    is_eager: bool
    # By place, the type of what no tensor can have. TensorFlow shall complain.
    strange: dict[int, str] = {}


class Failure(msgspec.Struct, frozen=True):
    """What it raised."""

    name: str
    family: str  # the built-in exception that decides about TensorFlow's status
    message: str
    traceback: str


# TensorFlow tells these apart; everything else is an UnknownError.
FAMILIES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (TypeError, ValueError, StopIteration, MemoryError, NotImplementedError, Exception)
}


# In the place of a type's name: the whole array is of a kind that no tensor has.
UNSUPPORTED = ""


class InTheCaller(Exception):
    """The traceback of the function, in the caller's process."""


class RemoteFunctions(script_ops.FuncRegistry):  # type: ignore[misc]
    """Stands where TensorFlow looks for Python functions."""

    _connected: threading.Event
    _call_back: CallBack

    def connect(self, call_back: CallBack) -> None:
        """From now on calls can be answered; those that came earlier wait for this."""
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
    """Have TensorFlow's kernels ask here. Its registry cannot be exchanged, but it can change."""
    registry = script_ops._py_funcs
    registry.__class__ = RemoteFunctions
    registry._connected = threading.Event()
    return registry  # type: ignore[no-any-return]


def _strange(name: str) -> np.ndarray:
    """Something that TensorFlow refuses in the words it has for what was returned."""
    if name == UNSUPPORTED:
        return np.zeros(0, np.dtype([("field", np.float32)]))
    return np.array(type(name, (), {})(), dtype=object)


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, ops.EagerTensor):
        value = value.numpy()
    return np.array(value, dtype=object) if isinstance(value, bytes) else np.asarray(value)
