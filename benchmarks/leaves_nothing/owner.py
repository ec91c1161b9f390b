"""The owner: a process that uses one system as ordered, and may be killed at any moment.

    python owner.py ADDRESS [--prepare]

Orders arrive as lines of JSON on standard input, answers go to standard output; anything that a
system prints goes to standard error. The owner only obeys: the suite measures, from outside.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from typing import Any, TextIO

import adapter
import numpy as np
import workload


class Owner:
    """One system, and the stay that is open now."""

    def __init__(self, system: adapter.System) -> None:
        self._system = system
        self._stay: contextlib.AbstractContextManager[adapter.Call] | None = None
        self._call: adapter.Call | None = None
        self._model = workload.small()

    def open(self, model: str) -> dict[str, Any]:
        """Open a model; its first result counts as part of opening."""
        self._model = {"wide": workload.wide, "small": workload.small}[model]()
        batch = self._model.batch(1)
        started = time.perf_counter()
        self._stay = self._system.stay(self._model)
        self._call = self._stay.__enter__()
        result = self._call(batch)
        seconds = time.perf_counter() - started
        assert np.allclose(np.sum(result), 1.0, atol=1e-3), "a softmax sums to one"
        return {"seconds": seconds}

    def close(self) -> dict[str, Any]:
        """Leave the stay. Collects garbage, for the systems that rely on it."""
        assert self._stay is not None
        stay, self._stay, self._call = self._stay, None, None
        started = time.perf_counter()
        stay.__exit__(None, None, None)
        seconds = time.perf_counter() - started
        del stay
        gc.collect()
        return {"seconds": seconds}

    def fail(self) -> dict[str, Any]:
        """Make a call fail in a stay, let the error pass through it, and return its name."""
        model = workload.wide()
        caught = ""
        try:
            with self._system.stay(model) as call:
                call(model.batch(1))
                call(model.wrong_batch())
        except Exception as error:
            caught = type(error).__name__
        gc.collect()
        return {"caught": caught}

    def times(self, rows: int, calls: int) -> dict[str, Any]:
        """Return how long each call took."""
        assert self._call is not None
        batch, call, clock = self._model.batch(rows), self._call, time.perf_counter
        kept = []
        for _ in range(calls):
            started = clock()
            call(batch)
            kept.append(clock() - started)
        return {"seconds": kept}

    def facts(self) -> dict[str, Any]:
        return {"versions": self._system.versions(), "python": sys.version.split()[0]}


def _obey(owner: Owner, order: dict[str, Any]) -> dict[str, Any]:
    what = order.pop("do")
    try:
        answer: dict[str, Any] = getattr(owner, what)(**order)
        return answer
    except Exception as error:
        import traceback

        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _take_over_streams() -> tuple[TextIO, TextIO]:
    """Keep the pipes private: neither children nor stray prints may hold or use them."""
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    os.close(nowhere)
    return orders, answers


def main() -> None:
    if "--prepare" in sys.argv:
        system = adapter.load(sys.argv[1])
        system.prepare(system.prepared)
        return
    orders, answers = _take_over_streams()
    owner = Owner(adapter.load(sys.argv[1]))
    for line in orders:
        print(json.dumps(_obey(owner, json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
