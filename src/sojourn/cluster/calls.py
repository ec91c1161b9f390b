"""Isolated functions that an agent runs for remote callers, each in a worker of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from sojourn.cluster.wire import words
from sojourn.functions.calling import Call
from sojourn.functions.options import Options
from sojourn.process import crossing
from sojourn.values import Place, Receipt

_REMEMBERED = 1000


class Calls:
    """The calls under way. Calls of a caller that disconnects are cut off."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._calls: dict[int, tuple[Any, Call]] = {}
        self._unwanted: OrderedDict[int, None] = OrderedDict()  # cut off before they arrived

    def __len__(self) -> int:
        return len(self._calls)

    async def call(
        self, end: Any, ask: words.CallFunction, arrays: Sequence[np.ndarray]
    ) -> tuple[Any, Sequence[np.ndarray]]:
        options = Options(
            timeout=ask.timeout,
            memory=ask.memory,
            device=ask.device,
            seed=ask.seed,
            deterministic=ask.deterministic,
        )
        receipts: list[Receipt] = []
        call = Call(options, ask.name, Place(self._node, 0), receipts.append, ask.label)
        self._calls[ask.call] = end, call
        if ask.call in self._unwanted:
            call.cut_off()
        results: Sequence[np.ndarray] = ()
        try:
            async with call:
                outcome, results = await call.aanswer("call", {}, arrays)
        except Exception as error:
            return words.Failed(crossing.record(error), receipt=_last(receipts)), ()
        finally:
            del self._calls[ask.call]
        reply = words.Returned(
            outcome.kind, outcome.message, outcome.traceback, _last(receipts), self._node
        )
        return reply, results

    def cut_off(self, number: int) -> None:
        found = self._calls.get(number)
        if found is not None:
            found[1].cut_off()
        else:  # already finished, or its arguments have yet to arrive
            self._unwanted[number] = None
            if len(self._unwanted) > _REMEMBERED:
                self._unwanted.popitem(last=False)

    def cut_off_those_of(self, end: Any) -> None:
        for owner, call in self._calls.values():
            if owner is end:
                call.cut_off()

    def cut_off_all(self) -> None:
        for _, call in self._calls.values():
            call.cut_off()


def _last(receipts: Sequence[Receipt]) -> Receipt | None:
    return receipts[-1] if receipts else None
