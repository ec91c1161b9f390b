"""Steps of a drop-in session: addressed by name, prepared once, and cheap to prepare.

A program may run hundreds of different steps once each, so a step starts with the one callable that
TensorFlow would have made anyway. Only a step that has proved short is also tried on the calling
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sojourn.engines.base import Arrays
from sojourn.engines.tensorflow_steps import ExecutorTrial, StepCallable
from sojourn.values import TensorSpec

_POOL, _CALLING_THREAD = 0, -1


class SessionStep:
    """One step of a session, ready to run again and again."""

    # Placeholder values: the caller has the graph, and knows the real ones.
    inputs: Sequence[TensorSpec] = ()
    outputs: Sequence[TensorSpec] = ()
    slots: Sequence[int] = ()
    adoptable = False
    prints = True
    may_wait = True
    changes_state = True

    def __init__(self, run: Callable[[Arrays], Any], crosses: bool) -> None:
        self.pooled = run
        self._run = run
        self._crosses = crosses  # the results are sent to another process, and must be arrays

    @classmethod
    def make(
        cls,
        session: Any,
        feeds: list[str],
        fetches: list[str],
        targets: list[str],
        crosses: bool,
    ) -> SessionStep:
        """Make a step that runs on TensorFlow's pool."""
        return cls(StepCallable(session, feeds, fetches, targets, pool=_POOL), crosses)

    def tuned(
        self, session: Any, feeds: list[str], fetches: list[str], targets: list[str]
    ) -> SessionStep:
        """Return the same step, which finds out whether the calling thread is faster."""
        step = SessionStep(self.pooled, self._crosses)
        calling = StepCallable(session, feeds, fetches, targets, pool=_CALLING_THREAD)
        step._run = ExecutorTrial(step, calling, self.pooled)  # type: ignore[arg-type]
        return step

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        """Run the step once."""
        results = self._run(arrays)
        if self._crosses:
            return [r if hasattr(r, "dtype") else np.array(r, dtype=object) for r in results]
        return results  # type: ignore[no-any-return]
