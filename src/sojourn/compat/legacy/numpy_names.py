"""Names that NumPy removed and that old programs use.

Missing names are added to numpy itself, because a program and its libraries share one numpy.
`numpy_habits` is about names that NumPy still has, but whose behaviour changed.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

_BUILTINS = ("float", "int", "bool", "object", "str", "complex")

_RENAMED = {
    "float_": "float64",
    "complex_": "complex128",
    "cfloat": "complex128",
    "singlecomplex": "complex64",
    "longfloat": "longdouble",
    "string_": "bytes_",
    "unicode_": "str_",
    "Inf": "inf",
    "Infinity": "inf",
    "infty": "inf",
    "PINF": "inf",
    "NaN": "nan",
    "NAN": "nan",
    "alltrue": "all",
    "sometrue": "any",
    "product": "prod",
    "cumproduct": "cumprod",
    "row_stack": "vstack",
    "round_": "round",
    "trapz": "trapezoid",
    "bool8": "bool_",
    "int0": "intp",
    "uint0": "uintp",
    "object0": "object_",
    "rank": "ndim",
}


def add_missing() -> list[str]:
    """Add the missing names, and return them."""
    added = []
    wanted: dict[str, Any] = {name: getattr(builtins, name) for name in _BUILTINS}
    wanted |= {old: getattr(np, new) for old, new in _RENAMED.items()}
    wanted |= {
        "long": int,
        "unicode": str,
        "NINF": -np.inf,
        "PZERO": 0.0,
        "NZERO": -0.0,
        "asfarray": _asfarray,
        "asscalar": _asscalar,
        "in1d": _in1d,
        "msort": _msort,
    }
    for name, value in wanted.items():
        if not _has(np, name):
            setattr(np, name, value)
            added.append(name)
    if not _has(np.random, "random_integers"):
        setattr(np.random, "random_integers", _random_integers)  # noqa: B010
        added.append("random.random_integers")
    if not hasattr(np.ndarray, "tostring"):
        _add_method(np.ndarray, "tostring", lambda array, order="C": array.tobytes(order))
        added.append("ndarray.tostring")
    return added


def _add_method(kind: type, name: str, method: Callable[..., Any]) -> None:
    """Add a method to a class written in C, whose attributes Python does not allow to be set.

    A subclass would not help: old programs that write records call `tostring` on arrays that they
    made themselves.
    """
    gc.get_referents(kind.__dict__)[0][name] = method
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _has(module: Any, name: str) -> bool:
    with warnings.catch_warnings():
        # numpy emits a warning before it raises AttributeError for a name that it removed.
        warnings.simplefilter("ignore")
        return hasattr(module, name)


def _asfarray(array: Any, dtype: Any = np.float64) -> Any:
    return np.asarray(array, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def _in1d(ar1: Any, ar2: Any, *args: Any, **kwargs: Any) -> Any:
    return np.isin(np.asarray(ar1).ravel(), ar2, *args, **kwargs)


def _asscalar(array: Any) -> Any:
    return np.asarray(array).item()


def _msort(array: Any) -> Any:
    return np.sort(array, axis=0)


def _random_integers(low: int, high: int | None = None, size: Any = None) -> Any:
    draw: Callable[..., Any] = np.random.randint
    return draw(1, low + 1, size) if high is None else draw(low, high + 1, size)
