"""Run a new version before requests use it, so that they do not pay for its first step.

The warm-up requests are recorded beside the model (`assets.extra/tf_serving_warmup_requests`, as in
TensorFlow Serving), or made up from its signature: one row of zeros. Changes that they make to the
model's state are undone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sojourn.errors import ModelError
from sojourn.probes.model_files.warmup_records import RECORDED, read_records
from sojourn.service.failures import Refused
from sojourn.service.signatures import CallSignature
from sojourn.session.session import Usable
from sojourn.values import TensorSpec
from sojourn.values.dtypes import BY_NAME

_log = logging.getLogger("sojourn.service")
_MADE_UP_SECONDS = 60.0
Feeds = dict[str, np.ndarray]


async def warm_up(session: Usable, path: str, signatures: dict[str, CallSignature]) -> int:
    """Run the session with all recorded requests, or else once with zeros; returns the number of
    runs.

    Recorded requests must succeed; else the model is faulty. The made-up request may fail.
    """
    recorded = os.path.join(path, RECORDED)
    if os.path.isfile(recorded):
        count = await _replay(session, recorded, signatures)
    else:
        count = await _run_with_zeros(session, signatures)
    if session._stay.changed:
        await asyncio.to_thread(session.reset)
        session._stay.changed = False  # the state is that of a newly opened session
    return count


async def _replay(session: Usable, path: str, signatures: dict[str, CallSignature]) -> int:
    count = 0
    for name, feeds in recorded_requests(path):
        call = _called(signatures, name, path)
        try:
            named = {call.inputs[key]: array for key, array in feeds.items()}
        except KeyError as error:
            raise ModelError(f"{path}: {call.name!r} has no input {error}") from None
        await session.arun(list(call.outputs.values()), named)
        count += 1
    return count


async def _run_with_zeros(session: Usable, signatures: dict[str, CallSignature]) -> int:
    made_up = _made_up(next(iter(signatures.values()))) if signatures else None
    if made_up is None or session.engine.startswith("litert"):  # LiteRT may keep state of the run
        return 0
    try:
        await session.arun(None, made_up, timeout=_MADE_UP_SECONDS)
    except Exception as error:
        _log.debug("%s: it does not run with zeros: %s", session.name, error)
    return 1


def recorded_requests(path: str) -> Iterator[tuple[str, Feeds]]:
    """Yield each recorded request of a file: the name of its signature, if any, and its inputs.

    Requests for classification and regression are skipped.
    """
    from sojourn.service.grpc.messages import TFSERVING, DecodeError
    from sojourn.service.grpc.tensors import to_array

    for record in read_records(path):
        log = TFSERVING.PredictionLog()
        try:
            log.ParseFromString(record)
            if log.WhichOneof("log_type") != "predict_log":
                continue
            request = log.predict_log.request
            feeds = {name: to_array(proto, name) for name, proto in request.inputs.items()}
        except (DecodeError, Refused) as error:
            raise ModelError(f"{path}: a request that cannot be read: {error}") from None
        yield request.model_spec.signature_name, feeds


def _called(signatures: dict[str, CallSignature], name: str, path: str) -> CallSignature:
    if name and name not in signatures and len(signatures) > 1:
        raise ModelError(f"{path}: the model has no signature {name!r}")
    return signatures.get(name) or next(iter(signatures.values()))


def _made_up(call: CallSignature) -> Feeds | None:
    """Return zeros for every input; None if the shape or dtype of an input is unknown."""
    feeds: dict[str, Any] = {}
    for name, spec in call.spec.inputs.items():
        array = _zeros(spec)
        if array is None:
            return None
        feeds[call.inputs[name]] = array
    return feeds


def _zeros(spec: TensorSpec) -> np.ndarray | None:
    if spec.shape is None:
        return None
    shape = tuple(1 if dim is None else dim for dim in spec.shape)
    if spec.dtype == "string":
        return np.full(shape, b"", object)
    dtype = BY_NAME.get(spec.dtype)
    return None if dtype is None else np.zeros(shape, dtype)
