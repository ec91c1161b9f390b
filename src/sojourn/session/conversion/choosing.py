"""Choose the engines that a model runs on, from the facts about them. Pure.

A switch must be a clear win on average over all batch sizes that were timed, and no loss at any. If
one engine is best for few rows and another for many, both are used if that is again a clear win,
and if they do not hold too much memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import NamedTuple

from sojourn.session.conversion.candidates import TENSORFLOW, Candidate, Examined
from sojourn.values import format_bytes

_CLEAR_WIN = 0.8  # the highest mean ratio of times that is a clear win
_NO_LOSS = 1.05  # the highest ratio of times that is no loss
# The most memory that two engines may hold together, divided by that of TensorFlow's session.
_MOST_MEMORY = 1.5


class Use(NamedTuple):
    """An engine, and the most rows for which it is used; None for any number."""

    engine: str
    most_rows: int | None = None


Ratios = dict[int, float]  # batch size -> time divided by TensorFlow's


def fastest(examined: Examined, *, alone: bool = False) -> tuple[Use, ...]:
    """Choose one engine, or two unless `alone`; none if TensorFlow alone is as good."""
    timed = {one.engine: one.ratios for one in examined.candidates if one.agrees and one.ratios}
    if not timed:
        return ()
    best, least = TENSORFLOW, 1.0
    for engine, ratios in timed.items():
        mean = geometric_mean(ratios.values())
        if max(ratios.values()) <= _NO_LOSS and mean <= _CLEAR_WIN and mean < least:
            best, least = engine, mean
    together, pair = min([] if alone else _pairs(examined, timed), default=(1.0, ()))
    if pair and together <= _CLEAR_WIN * least:
        return pair
    return () if best == TENSORFLOW else (Use(best),)


def _pairs(examined: Examined, timed: dict[str, Ratios]) -> list[tuple[float, tuple[Use, Use]]]:
    """All pairs that may be used together, with the mean of their ratios."""
    batches = sorted(next(iter(timed.values())))
    timed = {**timed, TENSORFLOW: dict.fromkeys(batches, 1.0)}
    found = []
    for one, other in itertools.permutations(timed, 2):
        if _held_by(examined, (one, other)) > _MOST_MEMORY * examined.held_bytes:
            continue
        for before, after in itertools.pairwise(batches):
            ratios = [timed[one if b <= before else other][b] for b in batches]
            if max(ratios) <= _NO_LOSS:
                # Switch at the geometric mean of the two sizes that were timed.
                uses = Use(one, math.isqrt(before * after)), Use(other)
                found.append((geometric_mean(ratios), uses))
    return found


def words_for(examined: Examined, uses: Sequence[Use]) -> str:
    """Describe a choice in words."""
    if len(uses) == 1:
        return str(examined.of(uses[0].engine))
    few, many = uses
    gains: list[str] = []
    others: list[Candidate] = []
    for use, best_at in ((few, min), (many, max)):
        if use.engine != TENSORFLOW:
            others.append(one := examined.of(use.engine))
            gains.append(one.gain(best_at(one.ratios)))
    names = [
        use.engine if use.engine == TENSORFLOW else examined.of(use.engine).name for use in uses
    ]
    held = format_bytes(_held_by(examined, [use.engine for use in uses]))
    rows = "row" if few.most_rows == 1 else "rows"
    worst = max(others, key=lambda one: one.worst)
    return (
        f"{names[0]} up to {few.most_rows} {rows}, {names[1]} above: {', '.join(gains)}; "
        f"both hold {held} {worst.proof}"
    )


def _held_by(examined: Examined, engines: Sequence[str]) -> int:
    held = {one.engine: one.held_bytes for one in examined.candidates}
    return sum(held.get(engine, examined.held_bytes) for engine in engines)
