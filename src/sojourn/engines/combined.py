"""One model on two engines in one worker, chosen by the number of rows or checking each other.

Both engines have been shown to agree on the model, and the model keeps no state.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from sojourn.engines.agreement import disagreement
from sojourn.engines.base import Arrays, CallBack, Engine, EnginePlan, Operation, load_model
from sojourn.engines.shortage import is_shortage
from sojourn.errors import EngineError, InputError
from sojourn.kinds import KINDS, Load


class _TwoEngines:
    """The engines of both parts."""

    def __init__(self, load: Load, arrays: Arrays) -> None:
        assert load.parts is not None
        self._engines: list[Engine] = [
            # The arrays belong to the TensorFlow model, which the other parts were made from.
            load_model(part, arrays if KINDS[part.kind].framework == "tensorflow" else ())
            for part in load.parts
        ]
        self.signature = self._engines[0].signature

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> _TwoEngines:
        """Load both parts."""
        return cls(load, arrays)

    def _plans(self, feeds: Sequence[str], fetches: Sequence[str]) -> list[EnginePlan]:
        return [engine.plan(feeds, fetches) for engine in self._engines]

    def operations(self) -> dict[str, Operation]:
        return {}  # neither engine has state that could be saved

    def close(self) -> None:
        for engine in self._engines:
            engine.close()


class ByRowsEngine(_TwoEngines):
    """Runs steps with few rows on the first engine, and steps with more on the second."""

    def __init__(self, load: Load, arrays: Arrays) -> None:
        super().__init__(load, arrays)
        self._most_rows = load.most_rows

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        return _ByRows(self._plans(feeds, fetches), self._most_rows)


class ShadowedEngine(_TwoEngines):
    """Runs steps on the second engine, and some also on the first (TensorFlow), which is right
    by definition. Once the two disagree, the first runs all steps."""

    def __init__(self, load: Load, arrays: Arrays) -> None:
        super().__init__(load, arrays)
        self._tolerance = load.tolerance
        self._every = load.every
        self._steps = itertools.count()  # its `next` is atomic among threads
        self._call_back: CallBack | None = None
        self.has_disagreed = False

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        return _Shadowed(self._plans(feeds, fetches), self, list(fetches))

    def connect(self, call_back: CallBack) -> None:
        """Set the function that reports a disagreement to the client."""
        self._call_back = call_back

    def is_due(self) -> bool:
        """Whether this step is one to compare on both engines."""
        return next(self._steps) % self._every == 0

    def judge(self, names: list[str], expected: Arrays, got: Arrays) -> bool:
        """Whether both results agree. Reports a disagreement to the client."""
        one, other = (dict(zip(names, arrays, strict=True)) for arrays in (expected, got))
        _, wrong = disagreement(one, other, self._tolerance)
        if wrong:
            self.disagree(wrong)
        return not wrong

    def disagree(self, how: str) -> None:
        """Run all later steps on TensorFlow, and report to the client why."""
        if not self.has_disagreed:
            self.has_disagreed = True
            if self._call_back is not None:
                self._call_back(how.encode(), ())


class _TwoPlans:
    changes_state = False

    def __init__(self, plans: list[EnginePlan]) -> None:
        self._runs = [plan.run for plan in plans]
        self.inputs, self.outputs, self.slots = plans[0].inputs, plans[0].outputs, plans[0].slots
        self.adoptable = all(plan.adoptable for plan in plans)
        self.prints = any(plan.prints for plan in plans)
        self.may_wait = any(plan.may_wait for plan in plans)


class _ByRows(_TwoPlans):
    def __init__(self, plans: list[EnginePlan], most_rows: int) -> None:
        super().__init__(plans)
        self._most_rows = most_rows
        free = (i for i, spec in enumerate(self.inputs) if spec.shape and spec.shape[0] is None)
        self._first = next(free, 0)  # the input whose rows are counted

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        [rows] = arrays[self._first].shape[:1] or (1,)  # an input of any rank may be a scalar
        return self._runs[int(rows > self._most_rows)](arrays)


class _Shadowed(_TwoPlans):
    def __init__(self, plans: list[EnginePlan], engine: ShadowedEngine, names: list[str]) -> None:
        super().__init__(plans)
        self._engine = engine
        self._names = names

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        right, quick = self._runs
        if self._engine.has_disagreed:
            return right(arrays)
        try:
            got = quick(arrays)
        except InputError:
            return right(arrays)  # TensorFlow may accept inputs that the second engine refuses
        except EngineError as error:
            expected = right(arrays)
            if _is_for_want_of_memory(error):
                return expected
            self._engine.disagree(f"it refuses what TensorFlow answers: {_first_line(error)}")
            return expected
        if not self._engine.is_due():
            return got
        try:
            expected = right(arrays)
        except Exception as error:
            if _is_for_want_of_memory(error):
                raise
            self._engine.disagree(f"it answers what TensorFlow refuses: {_first_line(error)}")
            raise
        return got if self._engine.judge(self._names, expected, got) else expected


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _is_for_want_of_memory(error: Exception) -> bool:
    """Whether a shortage of memory caused the error, which says nothing about the answer."""
    return isinstance(error, MemoryError) or is_shortage(error)
