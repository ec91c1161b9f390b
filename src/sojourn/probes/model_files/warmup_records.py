"""Requests that were recorded beside a SavedModel, as TensorFlow Serving keeps them.

Reads the file, not what is in its records.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from sojourn.errors import ModelError

RECORDED = os.path.join("assets.extra", "tf_serving_warmup_requests")
MOST_RECORDS = 1000  # as in TensorFlow Serving
_LARGEST_RECORD = 256 * 2**20


def read_records(path: str) -> Iterator[bytes]:
    """The records of a TFRecord file, in order."""
    with open(path, "rb") as file:
        for _ in range(MOST_RECORDS):
            head = file.read(12)  # the length and its checksum
            if not head:
                return
            (length,) = struct.unpack("<Q", head[:8]) if len(head) == 12 else (_LARGEST_RECORD + 1,)
            record = file.read(length) if length <= _LARGEST_RECORD else b""
            if len(record) != length or len(file.read(4)) != 4:
                raise ModelError(f"{path}: it ends in the middle of a record, or has no records")
            yield record
