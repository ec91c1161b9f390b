"""Any picklable value as a list of byte arrays: the pickle, then the large buffers it refers to.

Only `isolated` functions travel like this, the user's own code both ways. Arrays are not copied
into the pickle: they cross through shared memory as they are (pickle protocol 5, out of band).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np

# Below this a buffer costs less inside the pickle than as an array of its own.
_LARGE_BYTES = 4096


def pack(value: Any) -> list[np.ndarray]:
    """The arrays to send. They refer to the value's own memory: send them before it changes."""
    buffers: list[np.ndarray] = []

    def belongs_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE_BYTES:
            return True
        buffers.append(np.frombuffer(raw, np.uint8))
        return False

    file = io.BytesIO()
    cloudpickle.Pickler(file, protocol=5, buffer_callback=belongs_inside).dump(value)
    return [np.frombuffer(file.getbuffer(), np.uint8), *buffers]


def unpack(arrays: Sequence[np.ndarray]) -> Any:
    """The value again. It lives in the memory of `arrays`, which must be the caller's to keep."""
    return _Unpickler(io.BytesIO(arrays[0].data), buffers=arrays[1:]).load()


class _Unpickler(pickle.Unpickler):
    """Leaves classes alone that this process has already.

    A class that travels by value brings its methods and attributes along. cloudpickle finds the
    class that it was at home, and would give it copies of its own methods, with other globals.
    """

    def __init__(self, file: io.BytesIO, buffers: Sequence[np.ndarray]) -> None:
        super().__init__(file, buffers=buffers)
        self._known: set[type] = set()

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module == "cloudpickle.cloudpickle":
            known = self._known  # not ourselves: we keep what is returned, and so would never go
            if name in ("_make_skeleton_class", "_make_skeleton_enum"):
                return lambda *parts: _skeleton(found, parts, known)
            if name == "_class_setstate":
                return lambda cls, state: cls if cls in known else found(cls, state)
        return found


def _skeleton(make: Callable[..., type], parts: tuple[Any, ...], known: set[type]) -> type:
    """The class, noted as known if it has been here before."""
    # Those that have travelled by value, from or to this process.
    before = list(getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ()))
    cls = make(*parts)
    if any(cls is other for other in before):
        known.add(cls)
    return cls
