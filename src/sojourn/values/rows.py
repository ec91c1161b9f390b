"""A batch whose rows are in several arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sojourn.values import plain_arrays


class Rows:
    """Rows of several arrays that go into one step as a single batch.

    The parts are not joined beforehand: each is written directly to its place in the step's memory.
    """

    __slots__ = ("dtype", "ndim", "parts", "shape")

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = [
            # Arrays stay as they are; what numpy would damage (masks, mixed text) is refused.
            part if type(part) is np.ndarray else plain_arrays.anything(part)
            for part in parts
        ]
        if not self.parts:
            raise ValueError("rows need at least one part")
        first = self.parts[0]
        rows, row, dtype = 0, first.shape[1:], first.dtype
        for part in self.parts:
            shape = part.shape
            if not shape or shape[1:] != row or part.dtype != dtype:
                raise ValueError(
                    "all parts must have one dtype and, but for the number of rows, one shape; "
                    f"got {first.dtype} {first.shape} and {part.dtype} {part.shape}"
                )
            rows += shape[0]
        self.dtype = dtype
        self.shape = (rows, *row)
        self.ndim = len(self.shape)

    def joined(self) -> np.ndarray:
        """Return all rows in one array."""
        return np.concatenate(self.parts)
