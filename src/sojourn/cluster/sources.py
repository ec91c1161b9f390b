"""A model as registered with the cluster: its files, or the code that builds it, and its rules."""

from __future__ import annotations

import math
import os
import pickle
from typing import Any

from sojourn.cluster.terms import ModelSource, needs_gpu
from sojourn.pool.options import OpenOptions, check
from sojourn.session.opening import Blueprint
from sojourn.values import arguments

_UNKNOWN_BYTES = 256 * 2**20  # until a copy is measured; as in a pool


def source_of(
    name: str,
    model: Any,
    *,
    copies: int = 1,
    pinned: bool = False,
    memory: int | str | None = None,
    keep_seconds: float | None = None,
    parcel: str = "",
    is_held: bool = False,
    warms_up: bool = False,
    stamp: str = "",
    **options: Any,
) -> ModelSource:
    """Build a ModelSource, checking all arguments before any request is sent. Other options are
    those of `Pool.register`."""
    arguments.text("a model's name", name)
    arguments.whole("copies", copies)
    check(options)
    if keep_seconds is not None and keep_seconds != math.inf:
        arguments.seconds("keep_seconds", keep_seconds)
    device = "gpu" if needs_gpu(str(options.get("device", ""))) else "cpu"
    size = _UNKNOWN_BYTES if memory is None else arguments.memory("memory", memory)
    if memory is not None:
        options["memory"] = memory
    path, pickled = "", b""
    if parcel:
        path = os.path.basename(os.path.normpath(os.fspath(model)))
    elif isinstance(model, str | os.PathLike):
        text = os.fspath(model)
        path = text if "://" in text else os.path.abspath(text)
    else:
        of_session = OpenOptions.__annotations__.keys() - {"device"}
        chosen = {key: options.pop(key) for key in of_session & options.keys()}
        pickled = pickle.dumps(Blueprint(model, memory=memory, **chosen))
    return ModelSource(
        name,
        path,
        parcel,
        pickled,
        options,
        copies,
        pinned,
        size,
        device,
        None if keep_seconds == math.inf else keep_seconds,
        is_held,
        warms_up,
        stamp,
    )
