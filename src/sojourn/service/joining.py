"""One step for several requests: their rows are joined, and each request gets its own rows back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sojourn.service.proving import Outputs
from sojourn.service.targets import Target
from sojourn.values.rows import Rows


class NoRows(Exception):
    """Joined requests do not get the answers of separate ones: the first dimension is not a
    batch."""


def feeds_of(target: Target, requests: Sequence[list[np.ndarray]]) -> dict[str, Any]:
    """Return the feeds for the arrays of these requests."""
    if len(requests) == 1:
        return dict(zip(target.feeds, requests[0], strict=True))
    columns = zip(*requests, strict=True)
    return {name: Rows(parts) for name, parts in zip(target.feeds, columns, strict=True)}


def split(target: Target, values: Sequence[Any], sizes: Sequence[int]) -> list[Outputs]:
    """Split the outputs of a joined step: each request gets as many rows as it has sent."""
    rows = sum(sizes)
    if any(np.ndim(value) == 0 or len(value) != rows for value in values):
        raise NoRows
    answers: list[dict[str, Any]] = [{} for _ in sizes]
    for name, value in zip(target.names, values, strict=True):
        at = 0
        for answer, size in zip(answers, sizes, strict=True):
            answer[name] = value[at : at + size]
            at += size
    return [*answers]
