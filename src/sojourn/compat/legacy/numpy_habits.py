"""Restores the old behaviour of NumPy functions that changed, for the program's own calls.

Old NumPy made an array of objects from rows of different length, accepted an array of one element
as a number, read binary text and took the threshold `nan` as "print everything". The program's own
calls get each of these back; installed libraries keep the NumPy they were written for.
"""

from __future__ import annotations

import functools
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

IsOwn = Callable[[dict[str, Any]], bool]

# The functions with which programs draw a single number, as in `int(np.random.rand(1) * 10)`.
_DRAWING = ("choice", "normal", "rand", "randint", "randn", "random", "random_sample", "uniform")


def give_back(is_own: IsOwn) -> None:
    """Wrap the changed functions. `is_own` says whether globals belong to the program."""
    for name in ("array", "asarray"):
        if not hasattr(getattr(np, name), "__wrapped__"):
            setattr(np, name, _ragged(getattr(np, name), is_own))
    if not hasattr(np.fromstring, "__wrapped__"):
        for name, changed in (("fromstring", _binary), ("set_printoptions", _without_limit)):
            setattr(np, name, changed(getattr(np, name)))
    if needs_old_arrays() and not hasattr(np.random.rand, "__wrapped__"):
        for name in _DRAWING:
            setattr(np.random, name, _drawn(getattr(np.random, name), is_own))


def _drawn(function: Callable[..., Any], is_own: IsOwn) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        drawn = function(*args, **kwargs)
        if type(drawn) is np.ndarray and drawn.size == 1 and is_own(_caller()):
            return drawn.view(OldArray)
        return drawn

    return call


def _ragged(function: Callable[..., Any], is_own: IsOwn) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            typed = len(args) > 1 or kwargs.get("dtype") is not None
            if typed or "inhomogeneous" not in str(error) or not is_own(_caller()):
                raise
            return function(*args, **{**kwargs, "dtype": object})

    return call


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def fromstring(string: Any, dtype: Any = float, count: int = -1, **kwargs: Any) -> Any:
        if kwargs.get("sep", "") != "":
            return function(string, dtype, count, **kwargs)
        content = string.encode("latin-1") if isinstance(string, str) else string
        return np.frombuffer(content, dtype, count).copy()

    return fromstring


def _without_limit(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def set_printoptions(precision: Any = None, threshold: Any = None, **kwargs: Any) -> Any:
        if threshold == "nan" or (isinstance(threshold, float) and math.isnan(threshold)):
            threshold = sys.maxsize
        return function(precision=precision, threshold=threshold, **kwargs)

    return set_printoptions


def _caller() -> dict[str, Any]:
    return sys._getframe(2).f_globals


class OldArray(np.ndarray[Any, Any]):
    """An array from a session, or computed from one: converts to a number if it has one element."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        # Some numpy functions drop the subclass: `int(np.searchsorted(np.cumsum(p), 0.5))`.
        return as_old(super().__array_function__(func, types, args, kwargs))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce__(self) -> Any:
        # Files that the program pickles arrays into must be readable without this class.
        return self.view(np.ndarray).__reduce__()


def needs_old_arrays() -> bool:
    """Whether this NumPy no longer accepts an array of one element as a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            float(np.ones(1))
        except TypeError:
            return True
    return False


def as_old(result: Any) -> Any:
    """Return the result of a run with its arrays as `OldArray`, in the same structure."""
    if type(result) is np.ndarray:
        return result.view(OldArray) if result.dtype != object else result
    kind = type(result)
    if kind is list:
        return [as_old(item) for item in result]
    if kind is dict:
        return {key: as_old(item) for key, item in result.items()}
    if isinstance(result, tuple):
        items = [as_old(item) for item in result]
        return kind(*items) if hasattr(result, "_fields") else kind(items)
    return result
