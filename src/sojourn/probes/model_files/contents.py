"""The bytes of a file that is to be looked at."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator

from sojourn.errors import ModelError

_LARGEST = 2 << 30  # of protobuf and flatbuffers themselves


@contextlib.contextmanager
def naming(path: str, wrong: str = "") -> Iterator[None]:
    """What is wrong with a file is said with its path."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path}: {wrong}{error}") from error


def content(path: str) -> memoryview:
    """The whole file. Read, not mapped: a map of a file that shrinks would end this process."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _LARGEST:
            raise ModelError("damaged: larger than the 2 GiB that its format allows")
        return memoryview(file.read(size))


def mapped(path: str) -> memoryview:
    """The whole file, in no memory of ours. For a worker, whose engine maps it as well."""
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
