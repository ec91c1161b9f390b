"""Read recorded requests from a SavedModel's folder: the warm-up file of TensorFlow Serving."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2

from sojourn.errors import ModelError
from sojourn.probes.model_files.warmup_records import RECORDED, read_records
from sojourn.probes.model_files.wire import entry, fields, message

_MOST = 16  # requests that are returned
_PREDICT_LOG, _REQUEST, _INPUTS = 6, 1, 2  # fields of TensorFlow Serving's messages


def recorded_feeds(folder: str, names: Iterable[str]) -> list[dict[str, np.ndarray]]:
    """Return recorded requests that feed exactly these inputs; none if the file is unreadable."""
    path = os.path.join(folder, RECORDED)
    found: list[dict[str, np.ndarray]] = []
    wanted = set(names)
    try:
        for record in read_records(path):
            feeds = dict(_inputs(memoryview(record)))
            if set(feeds) == wanted and len(found) < _MOST:
                found.append(feeds)
    except (OSError, ModelError, ValueError, TypeError, DecodeError):
        return []
    return found


def _inputs(record: memoryview) -> Iterator[tuple[str, np.ndarray]]:
    for log in _parts(record, _PREDICT_LOG):
        for request in _parts(log, _REQUEST):
            for part in _parts(request, _INPUTS):
                name, value = entry(part)
                proto = tensor_pb2.TensorProto.FromString(bytes(value))
                yield name.decode(), tf.make_ndarray(proto)


def _parts(data: memoryview, wanted: int) -> Iterator[memoryview]:
    return (message(value) for number, value in fields(data) if number == wanted)
