"""Any picklable value as a list of byte arrays: the pickle, then the large buffers it refers to.

Only `isolated` functions travel like this, the user's own code both ways. Arrays are not copied
into the pickle: they cross through shared memory as they are (pickle protocol 5, out of band).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
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
    return pickle.loads(arrays[0].data, buffers=arrays[1:])
