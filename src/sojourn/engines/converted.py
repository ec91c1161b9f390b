"""Make a converted model behave as in TensorFlow, whatever its engine does by default.

Only the exact file that was verified is loaded. Denormal numbers are flushed to zero. NaN,
infinity, floats that are too large, and inputs without elements are refused if the engine was seen
to give other answers than TensorFlow for them, or to crash.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from sojourn.engines import denormals
from sojourn.engines.base import Arrays
from sojourn.errors import InputError, ModelError
from sojourn.kinds import KINDS, Load

_CHUNK_BYTES = 2**20


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def require_intact(load: Load) -> None:
    """Raise ModelError if the model was converted and its file is not the verified one."""
    try:
        is_intact = not load.is_converted or sha256(load.path) == load.sha256
    except OSError as error:
        raise ModelError(f"the converted model cannot be read: {error}") from None
    if not is_intact:
        raise ModelError(f"the converted model in {load.path} is damaged")


def as_tensorflow(plan: Any, feeds: Sequence[str], load: Load) -> Any:
    """Return the plan; wrapped to behave as in TensorFlow if the model was converted."""
    if not load.is_converted:
        return plan
    denormals.want_in_this_process()
    return _ConvertedPlan(plan, feeds, load)


class _ConvertedPlan:
    def __init__(self, plan: Any, feeds: Sequence[str], load: Load) -> None:
        self._plan = plan
        self._run = plan.run
        self._feeds = list(feeds)
        self._engine = KINDS[load.kind].engine
        self._most = math.inf if load.most is None else load.most
        floats = [i for i, spec in enumerate(plan.inputs) if "float" in spec.dtype]
        # For each float input: whether a finite sum of squares proves that it is within the limit.
        self._limited = [
            (i, self._most >= math.sqrt(np.finfo(plan.inputs[i].dtype).max))
            for i in (() if load.most is None else floats)
        ]
        self._shown = [i for i, spec in enumerate(plan.outputs) if "float" in spec.dtype]
        self._is_shown = load.is_shown
        self._some = load.only_some

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        denormals.flush_here()
        if not self._is_shown:
            self._require_limited(arrays)
        if self._some:
            for i, array in enumerate(arrays):
                if not array.size:
                    raise self._refusal(i, "no elements")
        results: Sequence[np.ndarray] = self._run(arrays)
        if self._is_shown and not all(_are_finite(results[i]) for i in self._shown):
            self._require_limited(arrays)
        return results

    def _require_limited(self, arrays: Arrays) -> None:
        for i, is_told_by_squares in self._limited:
            array = arrays[i]
            if is_told_by_squares and _are_finite(array):
                continue
            highest = float(np.maximum.reduce(array, axis=None, initial=0.0))
            lowest = float(np.minimum.reduce(array, axis=None, initial=0.0))
            if not -self._most <= lowest <= highest <= self._most:  # false also for NaN
                raise self._refusal(i, self._beyond)

    @property
    def _beyond(self) -> str:
        beyond = "" if self._most == sys.float_info.max else f", or beyond {self._most:.0e}"
        return f"values that are not finite{beyond}"

    def _refusal(self, i: int, what: str) -> InputError:
        return InputError(
            f"input {self._feeds[i]!r} has {what}, for which {self._engine} may give other answers "
            'than TensorFlow; open the model with engine="tensorflow"'
        )


def _are_finite(array: np.ndarray) -> bool:
    """Whether the sum of squares is finite, which proves that all elements are.

    Takes half of the time of checking each element.
    """
    return math.isfinite(np.vdot(array, array))
