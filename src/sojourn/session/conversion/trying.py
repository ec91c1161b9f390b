"""What a model is tried with, and what TensorFlow makes of it."""

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

_QUICK_SECONDS, _TIMES = 0.005, 3  # what takes no longer for fewer rows is tried with many
_PATIENCE_SECONDS = 30.0  # with one step of a model that loops: some inputs have no end


class Tried(NamedTuple):
    """Inputs, and what TensorFlow makes of them."""

    answered: list[tuple[int, Feeds, Outputs]]  # by the size of their batch
    refused: list[tuple[Feeds, str]]  # and why
    not_finite: list[tuple[Feeds, Outputs | None]]  # None where they are refused
    empty: list[tuple[Feeds, Outputs | None]]
    huge: list[tuple[Feeds, Outputs | None]]  # of the sizes in HUGE
    loops: bool


NOTHING = Tried([], [], [], [], [], False)


class EndlessError(Exception):
    """A step that takes too long, of a model that loops."""


def try_out(
    attempt: Attempt, reference: Session, samples: Sequence[Mapping[str, Any]] | None
) -> tuple[Tried, str]:
    """Inputs with what TensorFlow makes of them, or why there are none.

    Not every input that can be made is one that the model takes.
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
        except Exception as error:  # TensorFlow's own, of any type
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
                except BudgetExceeded as error:  # which says nothing of the model
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
    if loops:  # they may have no end for what is odd
        return tried, ""
    odd = [(tried.empty, feeds) for feeds in emptied(by_batch[few], reference.signature)]
    if any(array.dtype.kind == "f" for array in by_batch[few].values()):
        # Not always at the same places: a maximum may depend on whether NaN comes first.
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
    """Whether the inputs before these take so little time that these take little."""
    times = []
    for _, feeds, _ in answered[-1:] * _TIMES:
        started = time.perf_counter()
        run(feeds)
        times.append(time.perf_counter() - started)
    return min(times, default=math.inf) < _QUICK_SECONDS


def usual(tried: Tried) -> float:
    """The largest magnitude of a float that was answered."""
    arrays = (np.asarray(array) for _, feeds, _ in tried.answered for array in feeds.values())
    floats = (array[np.isfinite(array)] for array in arrays if array.dtype.kind == "f")
    return max((float(np.abs(array).max()) for array in floats if array.size), default=0.0)


def _recorded(attempt: Attempt, reference: Session) -> list[tuple[int, Feeds]]:
    """What was recorded beside the model, if anything was."""
    if "recorded" not in reference._stay.keeping.operations:
        return []
    names, arrays = reference._stay.call("recorded", {}, timeout=attempt.seconds_left, counts=False)
    values = iter(arrays)
    found = [{name: next(values) for name in each} for each in names]
    return [(batch_of(feeds), feeds) for feeds in found]


def first_line(error: Exception) -> str:
    """Its words, up to the first end of a line."""
    return str(error).partition("\n")[0] or type(error).__name__
