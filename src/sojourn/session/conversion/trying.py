"""Collect the inputs that a model is tried with, and TensorFlow's answers to them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sojourn.errors import BudgetExceeded, ModelError, SessionBroken, StepTimeout
from sojourn.session.conversion.attempt import Attempt
from sojourn.session.conversion.inputs import (
    HUGE,
    LARGE_BATCH,
    MANY_ROWS,
    NOT_FINITE,
    Feeds,
    batch_of,
    emptied,
    generated,
    spoilt,
)
from sojourn.session.conversion.proof import Outputs
from sojourn.session.session import Session

# Many rows are tried if the quickest of so many steps with fewer rows took less than this.
_QUICK_SECONDS, _TIMES = 0.005, 3
_PATIENCE_SECONDS = 30.0  # for one step of a model that loops: some inputs loop forever


class Tried(NamedTuple):
    """Inputs, and TensorFlow's answers to them."""

    answered: list[tuple[int, Feeds, Outputs]]  # with the size of their batch
    refused: list[tuple[Feeds, str]]  # with the reason
    not_finite: list[tuple[Feeds, Outputs | None]]  # None if TensorFlow refuses them
    empty: list[tuple[Feeds, Outputs | None]]
    huge: list[tuple[Feeds, Outputs | None]]  # one for each size in HUGE, in order
    loops: bool


NOTHING = Tried([], [], [], [], [], False)


class EndlessError(Exception):
    """A step of a model that loops took too long."""


def try_out(
    attempt: Attempt, reference: Session, samples: Sequence[Mapping[str, Any]] | None
) -> tuple[Tried, str]:
    """Run inputs by TensorFlow; return them with the answers, and why there are none (or "").

    The model may refuse some of the generated inputs.
    """
    loops, _ = reference._stay.call("loops", {}, timeout=attempt.seconds_left, counts=False)
    tried = Tried([], [], [], [], [], loops)
    too_large: BudgetExceeded | None = None

    def run(feeds: Feeds) -> Outputs | str:
        left = attempt.seconds_left
        if loops:
            left = _PATIENCE_SECONDS if left is None else min(left, _PATIENCE_SECONDS)
        try:
            return reference.run(None, feeds, timeout=left)
        except StepTimeout:
            attempt.check()
            if not loops:
                raise
            raise EndlessError from None
        except (SessionBroken, BudgetExceeded):
            attempt.check()
            raise
        except Exception as error:  # TensorFlow raises errors of any type
            return first_line(error)

    if samples is not None:
        for feeds in samples:
            answer = reference.run(None, feeds, timeout=attempt.seconds_left)
            tried.answered.append((batch_of(feeds), feeds, answer))
    else:
        made = itertools.chain(_recorded(attempt, reference), generated(reference.signature))
        try:
            for batch, feeds in made:
                if batch == MANY_ROWS and not _is_quick(run, tried.answered):
                    continue
                try:
                    outputs = run(feeds)
                except BudgetExceeded as error:  # unrelated to the model
                    too_large = error
                    continue
                if isinstance(outputs, str):
                    tried.refused.append((feeds, outputs))
                else:
                    tried.answered.append((batch, feeds, outputs))
        except ModelError as error:
            if not tried.answered:
                return tried, str(error)
    if not tried.answered and too_large is not None:
        raise too_large
    if not tried.answered:
        why = f": {tried.refused[-1][1]}" if tried.refused else ""
        return tried, f"it takes no input that could be made{why}: give samples="
    by_batch = {
        batch: {name: np.asarray(array) for name, array in feeds.items()}
        for batch, feeds, _ in reversed(tried.answered)
    }
    few, more = (sorted(by_batch) * 2)[:2]
    if loops:  # with unusual inputs, the loops may never end
        return tried, ""
    odd = [(tried.empty, feeds) for feeds in emptied(by_batch[few], reference.signature)]
    if any(array.dtype.kind == "f" for array in by_batch[few].values()):
        # At varying places: a maximum may depend on whether NaN is the first element.
        ways = (few, more, LARGE_BATCH if LARGE_BATCH in by_batch else few)
        odd += [
            (tried.not_finite, spoilt(by_batch[batch], values, way))
            for way, batch in enumerate(ways)
            for values in NOT_FINITE
        ]
        large = by_batch[ways[-1]]
        for size in HUGE:
            way = 3 if size == HUGE[-1] else 2
            odd.append((tried.huge, spoilt(large, (size, -size, size / 3, 0.0), way)))
    for found, feeds in odd:
        try:
            outputs = run(feeds)
        except BudgetExceeded as error:
            outputs = str(error)
        found.append((feeds, None if isinstance(outputs, str) else outputs))
    return tried, ""


def _is_quick(run: Callable[[Feeds], Any], answered: list[tuple[int, Feeds, Outputs]]) -> bool:
    """Whether the previous inputs take so little time that many rows will not take long."""
    times = []
    for _, feeds, _ in answered[-1:] * _TIMES:
        started = time.perf_counter()
        run(feeds)
        times.append(time.perf_counter() - started)
    return min(times, default=math.inf) < _QUICK_SECONDS


def usual(tried: Tried) -> float:
    """The largest magnitude of the floats in answered inputs."""
    arrays = (np.asarray(array) for _, feeds, _ in tried.answered for array in feeds.values())
    floats = (array[np.isfinite(array)] for array in arrays if array.dtype.kind == "f")
    return max((float(np.abs(array).max()) for array in floats if array.size), default=0.0)


def _recorded(attempt: Attempt, reference: Session) -> list[tuple[int, Feeds]]:
    """The inputs that were recorded beside the model, if there are any."""
    if "recorded" not in reference._stay.keeping.operations:
        return []
    names, arrays = reference._stay.call("recorded", {}, timeout=attempt.seconds_left, counts=False)
    values = iter(arrays)
    found = [{name: next(values) for name in each} for each in names]
    return [(batch_of(feeds), feeds) for feeds in found]


def first_line(error: Exception) -> str:
    """The first line of the error's message."""
    return str(error).partition("\n")[0] or type(error).__name__
