"""The items of a sweep: how they become arguments, are described, and are recognised in reruns."""

from __future__ import annotations

import copyreg
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

_NAMED_AT_MOST = 60  # characters of an item in messages


class Keywords(dict[str, Any]):
    """A dict that a sweep passes as keyword arguments: `f(**item)`."""


def grid(**choices: Iterable[Any]) -> list[Keywords]:
    """Return all combinations of the choices, for `map` and `sweep`; the last name varies
    fastest."""
    for name, values in choices.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TypeError(f"grid() takes a list of choices for {name!r}, not {values!r}")
    combinations = itertools.product(*choices.values())
    return [Keywords(zip(choices, values, strict=True)) for values in combinations]


def as_call(item: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call: `Keywords` by keyword, all others by position."""
    kwargs: dict[str, Any] = {}
    for part in item:
        if isinstance(part, Keywords):
            if twice := kwargs.keys() & part.keys():
                raise TypeError(f"an item has {min(twice)!r} twice, from two grids")
            kwargs.update(part)
    return tuple(part for part in item if not isinstance(part, Keywords)), kwargs


def as_given(item: tuple[Any, ...]) -> Any:
    """Return the item as users gave it: the single value of one iterable, or else a tuple."""
    return item[0] if len(item) == 1 else item


def described(item: tuple[Any, ...]) -> str:
    """Describe the arguments briefly, such as `0.1, depth=2`."""
    args, kwargs = as_call(item)
    parts = [*map(_words, args), *(f"{name}={_words(value)}" for name, value in kwargs.items())]
    text = ", ".join(parts)
    return text if len(text) <= _NAMED_AT_MOST else text[: _NAMED_AT_MOST - 3] + "..."


def _words(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 4:
        return f"array of {value.dtype} {value.shape}"
    if type(value) in (str, bytes, bytearray, list, tuple):
        value = value[: _NAMED_AT_MOST + 1]  # the rest, perhaps megabytes, is not shown
    try:
        text = repr(value)
    except Exception:  # the user's __repr__
        text = f"a {type(value).__name__}"
    return " ".join(text.split())


# -- recognising items in a rerun --------------------------------------------------------------


def key(*values: Any) -> bytes:
    """Return a digest of plain values that is the same in every process. Raises TypeError for
    other values."""
    digest = hashlib.sha256()
    try:
        _feed(digest, values)
    except RecursionError:
        raise TypeError(
            "a value that contains itself cannot be recognised in another run"
        ) from None
    return digest.digest()


def _feed(digest: Any, value: Any) -> None:
    """Add a value to the digest: its kind, then its parts. Not its pickle: values with the same
    pickle need not be equal, and equal values need not have the same pickle."""
    kind = type(value)
    digest.update(f"{kind.__module__}.{kind.__qualname__}(".encode())
    if value is None or kind in (bool, int, float, complex, str):
        digest.update(repr(value).encode(errors="surrogatepass"))
    elif kind in (bytes, bytearray):
        digest.update(bytes(value))
    elif kind in (tuple, list):
        _feed_all(digest, value)
    elif kind in (set, frozenset):
        _feed_sorted(digest, value)
    elif kind in (dict, Keywords):
        _feed_sorted(digest, value.items())
    elif kind is np.ndarray and not value.dtype.hasobject:
        _feed_all(digest, (str(value.dtype), value.shape))
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Enum):
        digest.update((value.name or repr(value.value)).encode())  # a flag may have no name
    elif isinstance(value, type | FunctionType | BuiltinFunctionType):
        _feed_name(digest, value)
    elif isinstance(value, PurePath):  # since Python 3.13 it pickles as the parts it was made from
        _feed(digest, str(value))
    elif isinstance(value, partial):
        _feed_all(digest, (value.func, value.args, value.keywords))
    else:
        _feed_parts(digest, value)
    digest.update(b")")


def _feed_all(digest: Any, values: Sequence[Any]) -> None:
    digest.update(f"{len(values)}:".encode())
    for value in values:
        _feed(digest, value)


def _feed_sorted(digest: Any, values: Iterable[Any]) -> None:
    digest.update(b"".join(sorted(key(value) for value in values)))


def _feed_name(digest: Any, value: Any) -> None:
    if "<" in value.__qualname__:
        raise TypeError(f"{value.__qualname__} has no name to recognise it by in another run")
    digest.update(f"{value.__module__}.{value.__qualname__}".encode())


def _feed_parts(digest: Any, value: Any) -> None:
    """Add any other object, as the parts from which pickle would rebuild it."""
    reduced = copyreg.dispatch_table.get(type(value))  # such as of a regular expression
    parts: Any = value.__reduce_ex__(4) if reduced is None else reduced(value)
    if isinstance(parts, str):
        digest.update(parts.encode())
        return
    made_by, args, state, items, pairs = (*parts, None, None, None)[:5]
    digest.update(getattr(made_by, "__qualname__", "").encode())
    # Usually the first argument is the class, which has been added already.
    _feed_all(digest, [arg for arg in args if arg is not type(value)])
    _feed(digest, dict(state) if isinstance(state, Mapping) else state)
    _feed_all(digest, list(items or ()))
    _feed_all(digest, list(pairs or ()))
