"""The cost of opening, calling and closing a small model. All systems take turns in one run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from scenarios import NotMeasured, Owner, Place, new_owner

CALLS = {1: (10, 40), 4096: (8, 5)}  # rows: rounds, calls per round
OPENINGS = (3, 5)  # rounds, the most openings per round
_OPENING_SECONDS = 2.0  # slower systems are opened less often


def time_all(
    places: Mapping[str, Place], progress: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Return median seconds by system."""
    times: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as stack:
        owners: dict[str, Owner] = {}
        for name, place in places.items():
            progress(f"timing: starting {name}")
            owner = stack.enter_context(new_owner(place))
            with contextlib.suppress(NotMeasured):  # its scenarios have already reported the reason
                owner.do("open", model="small")
                owners[name] = owner
                times[name] = {}
        for rows, (rounds, calls) in CALLS.items():
            progress(f"timing: calls of {rows} rows, in turns")
            for owner in owners.values():
                owner.do("times", rows=rows, calls=calls)  # warm-up, not counted
            for _ in range(rounds):
                for name, owner in owners.items():
                    kept = times[name].setdefault(f"call_{rows}", [])
                    kept += owner.do("times", rows=rows, calls=calls)["seconds"]
        for number in range(OPENINGS[0]):
            progress(f"timing: opening and closing, round {number + 1} of {OPENINGS[0]}")
            for name, owner in owners.items():
                _reopen(owner, times[name])
    return {
        name: {f"{what}_seconds": median(samples) for what, samples in kept.items()}
        for name, kept in times.items()
    }


def _reopen(owner: Owner, times: dict[str, list[float]]) -> None:
    until = time.monotonic() + _OPENING_SECONDS
    for _ in range(OPENINGS[1]):
        times.setdefault("close", []).append(owner.do("close")["seconds"])
        times.setdefault("open", []).append(owner.do("open", model="small")["seconds"])
        if time.monotonic() > until:
            return
