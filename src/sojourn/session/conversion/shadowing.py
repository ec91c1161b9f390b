"""Handle a disagreement between a session's engine and TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sojourn import events
from sojourn.process.calls import OK
from sojourn.session.conversion.candidates import TENSORFLOW
from sojourn.session.stay import Stay


def tell_of_disagreement(stay: Stay) -> None:
    """Have the worker report the first disagreement; TensorFlow computes from then on."""
    chosen = stay.engine.partition(":")[0]

    def hear(meta: bytes, arrays: Sequence[np.ndarray]) -> tuple[int, bytes, Sequence[np.ndarray]]:
        why = f"{chosen} {meta.decode(errors='replace')}"
        stay.engine = f"{TENSORFLOW}: {why}"
        stay.beginning.describe(stay.device)
        events.emit("engine.disagreed", stay.name, engine=TENSORFLOW, why=why)
        return OK, b"", ()

    assert stay.backend is not None
    stay.backend.answer_with(hear)
