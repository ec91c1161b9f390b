"""Both classes, the same programs: what TensorFlow's own session shows, ours shows."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
    from tensorflow.python.autograph.core import ag_ctx

    import compat_helpers_scenarios  # noqa: F401 - it adds to them
    from compat_scenarios import SCENARIOS

from sojourn.compat.v1 import Session

pytestmark = pytest.mark.filterwarnings("ignore")  # what TensorFlow deprecates is not ours
tf.get_logger().setLevel("ERROR")


def plain(seen: Any) -> Any:
    """The same in values that can be compared, with the types that a caller would notice."""
    if isinstance(seen, np.ndarray | np.generic):
        values = [repr(v) for v in np.asarray(seen).reshape(-1).tolist()]
        return type(seen).__name__, str(seen.dtype), seen.shape, values
    if isinstance(seen, dict):
        return type(seen).__name__, {key: plain(value) for key, value in seen.items()}
    if isinstance(seen, list | tuple):
        return type(seen).__name__, [plain(value) for value in seen]
    if isinstance(seen, tf.compat.v1.ragged.RaggedTensorValue):
        return "ragged", plain(seen.values), plain(seen.row_splits)
    return seen


def watch(name: str, session: type) -> list[Any]:
    """What the scenario sees, without the files and threads that TensorFlow itself leaves."""
    try:
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.DISABLED):
            return flat(SCENARIOS[name](session))
    finally:
        tf.compat.v1.summary.FileWriterCache.clear()


@functools.cache
def raw(name: str) -> list[Any]:
    return watch(name, tf.compat.v1.Session)


def flat(seen: Any) -> list[Any]:
    """One entry for each thing that was seen, so that a difference is told in one line."""
    return [plain(value) for value in seen] if isinstance(seen, list | tuple) else [plain(seen)]


class Inline(Session):
    _isolation = "inline"


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("session", [Inline, Session], ids=["inline", "process"])
def test_does_what_tensorflow_does(session: type, name: str, zygote: None) -> None:
    wanted, seen = raw(name), watch(name, session)
    for place, (want, got) in enumerate(zip(wanted, seen, strict=True)):
        assert got == want, f"differs at {place}"
