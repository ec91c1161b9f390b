"""Packing of a function and its arguments for a worker.

Functions of `__main__`, of notebooks and of modules without a file are sent by value, with the
globals they use; all others by name, together with the code of the caller's modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from sojourn.engines import code_capture, parcels
from sojourn.engines.by_value import by_value_if_needed
from sojourn.errors import InputError


def pack_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> list[np.ndarray]:
    """Pack a whole call into arrays. Raises InputError that names the part that cannot be sent."""
    code = code_capture.packed(function)
    try:
        with by_value_if_needed(function):
            return [code, *parcels.pack((function, args, dict(kwargs)))]
    except Exception as error:
        culprit = _culprit(function, args, kwargs)
        raise InputError(f"{culprit} of {name!r} cannot be sent to a worker: {error}") from error


def pack_value(value: Any, name: str) -> list[np.ndarray]:
    """Pack one value for a generator into arrays."""
    try:
        return parcels.pack(value)
    except Exception as error:
        raise InputError(f"{value!r} cannot be sent to {name!r}: {error}") from error


def _culprit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    named = [(f"argument {i + 1}", value) for i, value in enumerate(args)]
    named += [(f"argument {key!r}", value) for key, value in kwargs.items()]
    named += _carried(function)
    with suppress(TypeError, ValueError):  # not a function, or a variable has no value yet
        used = inspect.getclosurevars(code_capture.plain(function))
        variables = {**used.globals, **used.nonlocals}.items()
        named += [(f"the variable {key!r}", value) for key, value in variables]
    for name, value in named:
        if not _can_travel(value):
            parts = getattr(value, "__dict__", {})
            why = [f", because of its {key!r}" for key in parts if not _can_travel(parts[key])]
            return f"{name} (a {type(value).__name__}{''.join(why[:1])})"
    return "what the function refers to (its globals, its closure)"


def _carried(function: Any) -> list[tuple[str, Any]]:
    """Return the named values that a partial, a method or a callable object contains."""
    if isinstance(function, partial):
        bound = (*function.args, *function.keywords.values())
        return [*(("a bound argument", value) for value in bound), *_carried(function.func)]
    if inspect.ismethod(function):
        return [("the object", function.__self__)]
    return [] if inspect.isroutine(function) else [("the object", function)]


def _can_travel(value: Any) -> bool:
    try:
        parcels.pack(value)
    except Exception:
        return False
    return True
