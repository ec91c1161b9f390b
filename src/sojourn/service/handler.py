"""The one object behind every protocol: what is asked of it, it does or refuses."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sojourn.process.aside import aside
from sojourn.service.catalogue import Catalogue
from sojourn.service.failures import Refused, refusal, refusing
from sojourn.service.inference import Answer, Inference, ModelRef
from sojourn.service.queueing import ModelQueue, clock
from sojourn.service.rules import ModelRules
from sojourn.service.served import ModelMetadata, Served, VersionState, VersionStatus
from sojourn.service.signatures import CallSignature
from sojourn.service.statistics import ModelStatistics
from sojourn.values import Receipt

EVICT_SECONDS = 30.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that got no answer, in the words that its client read."""

    at: float
    model: str
    status: str
    words: str


class Handler:
    """Answers for all models of a catalogue, on the server's loop. It lives as long as that."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._queues: dict[tuple[str, int], ModelQueue] = {}
        self._leaving: list[ModelQueue] = []  # others have taken their places
        self._operations: set[asyncio.Future[Any]] = set()
        self.is_stopping = False
        self.failures: deque[Failure] = deque(maxlen=256)  # the last ones

    async def infer(self, inference: Inference) -> Answer:
        """Run one request; raises Refused and nothing else."""
        try:
            served = self.catalogue.resolve(inference.model)
            outputs = await self._queue(served).run(inference)
        except Refused as error:  # see `refusing`, which is too slow here
            self._note(inference.model, error)
            raise
        except Exception as error:
            refused = refusal(error)
            self._note(inference.model, refused)
            raise refused from error
        signature = inference.signature or next(iter(served.signatures), "")
        return Answer(served.name, served.version, outputs, signature)

    def _note(self, ref: ModelRef, refused: Refused) -> None:
        name, words = ref.name[:200], str(refused)[:1000]
        self.failures.append(Failure(time.time(), name, refused.status.name, words))

    def _queue(self, served: Served) -> ModelQueue:
        before = self._queues.get((served.name, served.version))
        if before is not None and before.served is served and before.rules is served.options:
            return before
        # One that came back after it was unloaded, or whose rules were changed, is another, under
        # the same number.
        queue = ModelQueue(self.catalogue, served)
        if before is None:  # of versions that are long gone nothing is kept: there may be very many
            self._queues = {
                key: one
                for key, one in self._queues.items()
                if self.catalogue.is_known(*key) or not one.is_idle
            }
        else:
            queue.statistics = before.statistics
            self._leaving = [old for old in (*self._leaving, before) if not old.is_idle]
        self._queues[served.name, served.version] = queue
        return queue

    async def signature(
        self, ref: ModelRef, name: str | None = None, deadline: float | None = None
    ) -> tuple[CallSignature, float | None]:
        """One signature of a model: the one that is named, or the model's own choice. Also by when
        the request that needs it must be answered: the model may be opened to know it."""
        try:
            with refusing():
                served = self.catalogue.resolve(ref)
                try:
                    return await self._signature(served, name, deadline)
                except Exception as error:  # the request ends here, before `infer`
                    self._queue(served).note_failure(error)
                    raise
        except Refused as refused:
            self._note(ref, refused)
            raise

    async def _signature(
        self, served: Served, name: str | None, deadline: float | None
    ) -> tuple[CallSignature, float | None]:
        if served.signatures:
            return await self.catalogue.signature(served, name), deadline
        queue = self._queue(served)
        deadline = queue.deadline(deadline, clock())
        return await queue.signature(name, deadline), deadline

    async def metadata(self, ref: ModelRef, deadline: float | None = None) -> ModelMetadata:
        """What a model takes and gives. It may be opened to know it, which ends by the deadline."""
        with refusing():
            served = self.catalogue.resolve(ref)
            await self._signature(served, None, deadline)
            return self.catalogue.metadata(served)

    def statuses(self, name: str | None = None) -> tuple[VersionStatus, ...]:
        """Where each version stands; Refused if there is no such model."""
        return self.catalogue.statuses(name)

    def is_ready(self, ref: ModelRef | None = None) -> bool:
        """Whether the server, or this model, takes requests."""
        if self.is_stopping or not self.catalogue.is_open:
            return False
        if ref is None:
            return self.catalogue.is_started
        try:
            return self.catalogue.resolve(ref).state is VersionState.AVAILABLE
        except Refused:
            return False

    def statistics(self, name: str | None = None) -> tuple[ModelStatistics, ...]:
        """What each version has done so far, those included that left not long ago."""
        found = [queue for (model, _), queue in self._queues.items() if name in (None, model)]
        for queue in found:
            queue.statistics.waiting = queue.waiting
        return tuple(queue.statistics for queue in found)

    def statistics_of(self, ref: ModelRef | None) -> list[ModelStatistics]:
        """What one model has done, or all have, those that nobody has asked yet included. Refused
        if there is no such one."""
        name, version = (None, None) if ref is None else (ref.name, ref.version)
        known = {(one.name, one.version): one for one in self.statistics(name)}
        for one in self.statuses(name):
            if one.state is VersionState.AVAILABLE:
                key = one.name, one.version
                known.setdefault(key, ModelStatistics(*key))
        chosen = [one for one in known.values() if version in (None, one.version)]
        if ref is not None and not chosen:
            self.catalogue.resolve(ref)  # says why
        return chosen

    # Operations come to their end, also if the client that asked for one leaves meanwhile: else a
    # model would stay half loaded for ever.

    async def load(self, name: str, *, version: int | None = None) -> None:
        """Have a model in service and loaded."""
        await self.finish(self.catalogue.load(name, version=version))

    async def unload(self, name: str, *, version: int | None = None) -> tuple[Receipt, ...]:
        """Take a model out of service; returns when its memory is back."""
        return await self.finish(self.catalogue.unload(name, version=version))

    def in_service(self, name: str, version: int | None = None) -> list[Served]:
        """The versions in service, or the one that is named. Refused if there are none."""
        found: list[int | None] = [
            one.version
            for one in self.statuses(name)
            if one.state is VersionState.AVAILABLE and version in (None, one.version)
        ]
        return [self.catalogue.find(ModelRef(name, number)) for number in found or [version]]

    async def evict(self, name: str, version: int | None = None) -> bool:
        """Give the memory of a model back; it stays in service. False if it is in use for long."""
        evict = self.catalogue.pool.evict
        with refusing():
            return all(
                [
                    await aside(
                        partial(evict, one.pool_name, timeout=EVICT_SECONDS, version=one.version)
                    )
                    for one in self.in_service(name, version)
                ]
            )

    def pin(self, name: str, pinned: bool, version: int | None = None) -> None:
        """Never close a model to make room for others, or again."""
        with refusing():
            for one in self.in_service(name, version):
                self.catalogue.pool.pin(one.pool_name, pinned, version=one.version)

    async def reload(self, entries: Mapping[str, ModelRules]) -> None:
        """Serve these models instead, by these rules."""
        await self.finish(self.catalogue.reload(entries))

    async def serve_only(self, wanted: Mapping[str, ModelRules]) -> None:
        """Have these models loaded, by these rules, and no other of the server's."""
        await self.finish(self._serve_only(wanted))

    async def _serve_only(self, wanted: Mapping[str, ModelRules]) -> None:
        await self.catalogue.adjust(wanted)
        for name in self.catalogue.rules():
            if name in wanted:
                await self.catalogue.load(name)
            else:
                await self.catalogue.unload(name)

    async def finish(self, operation: Awaitable[T]) -> T:
        """What comes of an operation, for a client that may leave before its end."""
        task = asyncio.ensure_future(operation)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        with refusing():
            return await asyncio.shield(task)

    async def close(self) -> None:
        """Cut off what is under way."""
        for task in self._operations:
            task.cancel()
        if self._operations:
            await asyncio.wait(self._operations)
        for queue in (*self._leaving, *self._queues.values()):
            await queue.close()
