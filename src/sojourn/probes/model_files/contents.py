"""The bytes of a file that is to be looked at."""

from __future__ import annotations

import os

from sojourn.errors import ModelError

_LARGEST = 2 << 30  # of protobuf and flatbuffers themselves


def content(path: str) -> memoryview:
    """The whole file. Read, not mapped: a map of a file that shrinks would end this process."""
    if os.path.getsize(path) > _LARGEST:
        raise ModelError("damaged: larger than the 2 GiB that its format allows")
    with open(path, "rb") as file:
        return memoryview(file.read(_LARGEST))
