"""The leases that an agent has granted to remote callers. Each expires unless it is renewed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sojourn.cluster.wire import words
from sojourn.errors import LeaseExpired
from sojourn.pool import Pool
from sojourn.pool.aio import AsyncLease
from sojourn.pool.leasing import PoolLease
from sojourn.values import Place

_LOOK_SECONDS = 0.2
_REMEMBERED = 1000


@dataclass(slots=True, eq=False)
class Held:
    """A lease granted to a caller."""

    number: int
    model: str
    lease: PoolLease
    until: float
    keep_seconds: float
    has_changed: bool = False
    running: int = 0


class Leases:
    """All granted leases, by numbers that are never reused."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._held: dict[int, Held] = {}
        self._ended: OrderedDict[int, str] = OrderedDict()  # reasons, for the latest ones
        self._changed: set[str] = set()  # models whose copy was changed by an ended lease

    async def take(self, ask: words.LeaseModel) -> Held:
        place = Place(ask.holder, 0)
        wish = AsyncLease(self._pool, ask.model, None, ask.timeout, place)
        lease = await wish.__aenter__()
        number = secrets.randbits(63)
        until = time.monotonic() + ask.keep_seconds
        held = self._held[number] = Held(number, ask.model, lease, until, ask.keep_seconds)
        return held

    def get(self, number: int) -> Held:
        held = self._held.get(number)
        if held is None:
            why = self._ended.get(number, "its node has no such lease")
            raise LeaseExpired(f"the lease has ended: {why}")
        return held

    async def run(
        self, ask: words.RunStep, arrays: Sequence[np.ndarray]
    ) -> tuple[words.Results, list[np.ndarray]]:
        held = self.get(ask.lease)
        feeds = dict(zip(ask.feeds, arrays, strict=True))
        held.running += 1
        try:
            result: Any = await held.lease.arun(ask.fetches, feeds, timeout=ask.timeout)
        finally:
            held.running -= 1
            held.until = max(held.until, time.monotonic() + held.keep_seconds)
            if held.lease._terms.stay.changed:
                held.has_changed = True
        names = list(result) if isinstance(result, dict) else None
        values = list(result.values()) if names is not None else result
        is_single = isinstance(ask.fetches, str)
        if is_single:
            values = [values]
        found = [np.asarray(value) for value in values if value is not None]
        return words.Results(names, is_single, [value is not None for value in values]), found

    def keep(self, numbers: Sequence[int], seconds: float) -> dict[int, str]:
        """Renew these leases; return the ended ones with the reason."""
        until = time.monotonic() + seconds
        ended = {}
        for number in numbers:
            held = self._held.get(number)
            if held is None:
                ended[number] = self._ended.get(number, "its node has no such lease")
            else:
                held.until = until
        return ended

    def end(self, number: int, why: str) -> None:
        held = self._held.pop(number, None)
        if held is None:
            return
        if held.has_changed:
            self._changed.add(held.model)
        self._ended[number] = why
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        held.lease.close()

    def end_of(self, model: str, why: str) -> None:
        for held in [held for held in self._held.values() if held.model == model]:
            self.end(held.number, why)
        self._changed.discard(model)

    def end_all(self, why: str) -> None:
        for number in list(self._held):
            self.end(number, why)

    def count(self, model: str) -> int:
        return sum(held.model == model for held in self._held.values())

    def has_changed(self, model: str) -> bool:
        """Whether the state of this model's copy has changed since it was opened."""
        return model in self._changed or any(
            held.has_changed for held in self._held.values() if held.model == model
        )

    async def expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            for held in list(self._held.values()):
                if now > held.until and not held.running:
                    self.end(held.number, f"it was not renewed for {held.keep_seconds:g} s")
