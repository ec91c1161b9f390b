"""The names of a graph's tensors, as they are given when a model is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sojourn.values import TensorSpec


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Map short names to tensor names: the op's name, or `split:1` in full if the op has several
    outputs among the names."""
    names = list(dict.fromkeys(names))
    ops = Counter(_op_of(name) for name in names)
    return {_op_of(name) if ops[_op_of(name)] == 1 else name: name for name in names}


def _op_of(name: str) -> str:
    return name.partition(":")[0]


def by_short_name(what: str, names: Any) -> dict[str, Any] | None:
    """Map short names to the tensors named when a model is opened: one name, several, or a mapping
    from short names to names. A graph's tensor may stand for its name."""
    if names is None:
        return None
    if isinstance(names, Mapping):
        given = {short: _name_of(tensor) for short, tensor in names.items()}
        for short, name in given.items():
            if not isinstance(short, str) or not isinstance(name, str | TensorSpec):
                raise TypeError(
                    f"{what} must be names of tensors by short names, not {name!r} by {short!r}"
                )
        return given
    several = isinstance(names, Iterable) and not isinstance(names, str) and not _is_tensor(names)
    found = [_name_of(tensor) for tensor in (names if several else [names])]
    for name in found:
        if not isinstance(name, str):
            raise TypeError(
                f"{what} must be names of tensors, such as 'dense/BiasAdd:0', not {name!r}"
            )
    return short_names(found)


def _name_of(tensor: Any) -> Any:
    return tensor.name if _is_tensor(tensor) else tensor


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "graph") and isinstance(getattr(value, "name", None), str)
