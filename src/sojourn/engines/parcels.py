"""Pack any picklable value as a list of byte arrays: the pickle, then its large buffers.

Only `isolated` functions are sent like this, with the user's own code on both sides. Arrays are not
copied into the pickle: they are sent through shared memory (pickle protocol 5, out of band).
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from abc import ABCMeta
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np

# Buffers with fewer bytes cost less inside the pickle than as separate arrays.
_LARGE_BYTES = 4096


def pack(value: Any) -> list[np.ndarray]:
    """Return the arrays to send. They refer to the value's memory: send them before it changes."""
    buffers: list[np.ndarray] = []

    def belongs_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE_BYTES:
            return True
        buffers.append(np.frombuffer(raw, np.uint8))
        return False

    return [_pickled(value, belongs_inside), *buffers]


def pack_whole(value: Any) -> np.ndarray:
    """Pack a value in one array, for `cloudpickle.loads`."""
    return _pickled(value, None)


def _pickled(
    value: Any, belongs_inside: Callable[[pickle.PickleBuffer], bool] | None
) -> np.ndarray:
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=belongs_inside).dump(value)
    return np.frombuffer(file.getbuffer(), np.uint8)


def unpack(arrays: Sequence[np.ndarray]) -> Any:
    """Return the value. It lives in the memory of `arrays`, which the caller must own."""
    return _Unpickler(io.BytesIO(arrays[0].data), buffers=arrays[1:]).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by value what is common in notebooks and what cloudpickle pickles by name or not at
    all: functions behind `lru_cache`, whose caches start empty, and cached properties."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _LRU_CACHE) and not _can_be_found(value):
            return _cached, (value.__wrapped__, value.cache_parameters())
        if type(value) is functools.cached_property:
            return _cached_property, (value.func, value.attrname)
        reduced = super().reducer_override(value)
        is_plain = type(value) in (type, ABCMeta) and reduced is not NotImplemented
        if is_plain and "__slots__" in vars(value):
            _keep_slots(value, reduced)
        return reduced


def _keep_slots(cls: type, reduced: tuple[Any, ...]) -> None:
    """Keep the slots of a class, which cloudpickle drops. Its objects would then have a `__dict__`,
    which cannot be unpickled into objects of the original class."""
    make, parts, *_ = reduced
    # The slots of a tuple are empty, and `NamedTuple` makes them itself.
    if make.__name__ == "_make_skeleton_class" and not issubclass(cls, tuple):
        parts[3]["__slots__"] = vars(cls)["__slots__"]


_LRU_CACHE = type(functools.lru_cache(len))


def _can_be_found(function: Any) -> bool:
    """Whether the function's name means the same function in a worker."""
    module = function.__module__
    found = sys.modules.get(module)
    if module == "__main__" or module in cloudpickle.list_registry_pickle_by_value():
        return False
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(function: Callable[[Any], Any], name: str) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


class _Unpickler(pickle.Unpickler):
    """Leaves classes unchanged that this process already has.

    A class that is pickled by value includes its methods and attributes. Back in its own process,
    cloudpickle finds the original class, and would overwrite its methods with copies that have
    other globals.
    """

    def __init__(self, file: io.BytesIO, buffers: Sequence[np.ndarray]) -> None:
        super().__init__(file, buffers=buffers)
        self._known: set[type] = set()

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module == "cloudpickle.cloudpickle":
            known = self._known  # not self: it keeps these lambdas, which would keep it
            if name in ("_make_skeleton_class", "_make_skeleton_enum"):
                return lambda *parts: _skeleton(found, parts, known)
            if name == "_class_setstate":
                return lambda cls, state: cls if cls in known else found(cls, state)
        return found


def _skeleton(make: Callable[..., type], parts: tuple[Any, ...], known: set[type]) -> type:
    """Return the class, noted as known if this process already has it. Such a class is not made
    again: that would run its metaclass or `__init_subclass__`, which may keep a list of classes."""
    # cloudpickle's classes that were pickled by value, from or to this process, by their id.
    travelled = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
    cls = travelled.get(parts[-2])
    if cls is None:
        return make(*parts)
    known.add(cls)
    return cls  # type: ignore[no-any-return]
