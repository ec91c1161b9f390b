"""The one object behind every protocol: it carries out each request or refuses it."""

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
    """A failed request, with the message that its client received."""

    at: float
    model: str
    status: str
    words: str


class Handler:
    """Handles requests for all models of a catalogue, on the server's loop and for its lifetime."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._queues: dict[tuple[str, int], ModelQueue] = {}
        self._leaving: list[ModelQueue] = []  # replaced, but not idle yet
        self._operations: set[asyncio.Future[Any]] = set()
        self.is_stopping = False
        self.failures: deque[Failure] = deque(maxlen=256)  # the latest

    async def infer(self, inference: Inference) -> Answer:
        """Run one request; raises Refused and nothing else."""
        try:
            served = self.catalogue.resolve(inference.model)
            outputs = await self._queue(served).run(inference)
        except Refused as error:  # like `refusing`, which is too slow here
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
        # A version that was loaded again, or whose rules changed, needs a new queue under the same
        # number.
        queue = ModelQueue(self.catalogue, served)
        if before is None:  # forget versions removed long ago: there may be very many
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
        """Return one signature of a model, the named one or the model's default, and the deadline
        of the request that needs it: opening the model to read the signature may take time."""
        try:
            with refusing():
                served = self.catalogue.resolve(ref)
                try:
                    return await self._signature(served, name, deadline)
                except Exception as error:  # the request fails here, before `infer`
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
        """Return a model's inputs and outputs. The model may be opened for that, by the
        deadline."""
        with refusing():
            served = self.catalogue.resolve(ref)
            await self._signature(served, None, deadline)
            return self.catalogue.metadata(served)

    def statuses(self, name: str | None = None) -> tuple[VersionStatus, ...]:
        """Return the status of each version; raises Refused if no such model exists."""
        return self.catalogue.statuses(name)

    def is_ready(self, ref: ModelRef | None = None) -> bool:
        """Whether the server, or this model, accepts requests."""
        if self.is_stopping or not self.catalogue.is_open:
            return False
        if ref is None:
            return self.catalogue.is_started
        try:
            return self.catalogue.resolve(ref).state is VersionState.AVAILABLE
        except Refused:
            return False

    def statistics(self, name: str | None = None) -> tuple[ModelStatistics, ...]:
        """Return the statistics of each version so far, including recently removed ones."""
        found = [queue for (model, _), queue in self._queues.items() if name in (None, model)]
        for queue in found:
            queue.statistics.waiting = queue.waiting
        return tuple(queue.statistics for queue in found)

    def statistics_of(self, ref: ModelRef | None) -> list[ModelStatistics]:
        """Return the statistics of one model or of all, including versions without requests so far.
        Raises Refused if no such model exists."""
        name, version = (None, None) if ref is None else (ref.name, ref.version)
        known = {(one.name, one.version): one for one in self.statistics(name)}
        for one in self.statuses(name):
            if one.state is VersionState.AVAILABLE:
                key = one.name, one.version
                known.setdefault(key, ModelStatistics(*key))
        chosen = [one for one in known.values() if version in (None, one.version)]
        if ref is not None and not chosen:
            self.catalogue.resolve(ref)  # raises Refused with the reason
        return chosen

    # An operation is completed even if the client that requested it leaves: otherwise a model could
    # stay half loaded forever.

    async def load(self, name: str, *, version: int | None = None) -> None:
        """Bring a model into service and load it."""
        await self.finish(self.catalogue.load(name, version=version))

    async def unload(self, name: str, *, version: int | None = None) -> tuple[Receipt, ...]:
        """Take a model out of service; returns when its memory is freed."""
        return await self.finish(self.catalogue.unload(name, version=version))

    def in_service(self, name: str, version: int | None = None) -> list[Served]:
        """Return the versions in service, or the named one. Raises Refused if none is in
        service."""
        found: list[int | None] = [
            one.version
            for one in self.statuses(name)
            if one.state is VersionState.AVAILABLE and version in (None, one.version)
        ]
        return [self.catalogue.find(ModelRef(name, number)) for number in found or [version]]

    async def evict(self, name: str, version: int | None = None) -> bool:
        """Free the memory of a model; it stays in service. False if it stays in use for too
        long."""
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
        """Set whether a model is pinned: never closed to make room for others."""
        with refusing():
            for one in self.in_service(name, version):
                self.catalogue.pool.pin(one.pool_name, pinned, version=one.version)

    async def reload(self, entries: Mapping[str, ModelRules]) -> None:
        """Replace the served models and their rules."""
        await self.finish(self.catalogue.reload(entries))

    async def serve_only(self, wanted: Mapping[str, ModelRules]) -> None:
        """Load these models, by these rules, and unload all others of the server."""
        await self.finish(self._serve_only(wanted))

    async def _serve_only(self, wanted: Mapping[str, ModelRules]) -> None:
        await self.catalogue.adjust(wanted)
        for name in self.catalogue.rules():
            if name in wanted:
                await self.catalogue.load(name)
            else:
                await self.catalogue.unload(name)

    async def finish(self, operation: Awaitable[T]) -> T:
        """Return the result of an operation, which is completed even if the client leaves before
        its end."""
        task = asyncio.ensure_future(operation)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        with refusing():
            return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel all operations and requests under way."""
        for task in self._operations:
            task.cancel()
        if self._operations:
            await asyncio.wait(self._operations)
        for queue in (*self._leaving, *self._queues.values()):
            await queue.close()
