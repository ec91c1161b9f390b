"""The process in which a session's engine runs: a worker of its own, or the caller's process.

Both kinds have the same interface, so that the session above needs no special cases.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
import numpy as np

from sojourn.engines.base import Host, import_kind
from sojourn.probes import memory
from sojourn.process.calls import NoAnswer, PreparedStep, WorkerDied
from sojourn.process.deadlines import left_until
from sojourn.values import Footprint, Residue
from sojourn.values.rows import Rows

if TYPE_CHECKING:
    from sojourn.process.callbacks import Answer
    from sojourn.process.sandbox import Applied

T = TypeVar("T")
_SETTLE_SECONDS = 0.002  # between two checks


@dataclass(frozen=True, slots=True)
class Account:
    """The memory that the end of a backend gave back."""

    returned_bytes: int
    residue: Residue
    note: str = ""
    returned_on_device: Mapping[str, int] = field(default_factory=dict)


class Backend(Protocol):
    """Runs steps and operations of an engine; can be measured and ended."""

    @property
    def pid(self) -> int:
        """The process in which the engine runs."""

    @property
    def pidfd(self) -> int:
        """A descriptor that is readable once the worker has ended; -1 for this process."""

    @property
    def sandbox(self) -> Applied | None:
        """The restrictions in force for an untrusted model."""

    def step(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> Sequence[np.ndarray]:
        """Run a prepared step. The results own their memory."""

    async def astep(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> Sequence[np.ndarray]:
        """Like `step`, awaited."""

    def call(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: Any = Any,
        deadline: float | None = None,
    ) -> tuple[Any, Sequence[np.ndarray]]:
        """Have the engine carry out a named operation."""

    async def acall(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: Any = Any,
        deadline: float | None = None,
        may_wait: bool = True,
    ) -> tuple[Any, Sequence[np.ndarray]]:
        """Like `call`, awaited."""

    def answer_with(self, answer: Answer) -> None:
        """Have questions that the engine asks its client answered by `answer` from now on."""

    def drain_awaited(self, deadline: float | None) -> None:
        """Wait for calls awaited by this thread's event loop, which this very thread blocks."""

    def settle(self, deadline: float | None) -> None:
        """Wait until the engine is idle; this includes calls whose callers have given up."""

    def footprint(self) -> Footprint: ...

    def death(self) -> WorkerDied | None:
        """Return how the worker died, if it did."""

    def is_calling_us(self) -> bool:
        """Whether this thread is answering a question of the engine, which waits for it."""

    def kill(self) -> None: ...

    def end(self, held: Footprint) -> Account: ...

    def release(self) -> None: ...


# Makes a backend by the given deadline.
MakeBackend = Callable[[float | None], Backend]


class InlineBackend:
    """The engine in the caller's own process: a safe life cycle and fast steps, but TensorFlow
    keeps the memory."""

    pidfd = -1
    sandbox: Applied | None = None

    def __init__(self, pid: int, kind: str) -> None:
        self.pid = pid
        self._host = Host()
        # Marks of awaited calls: queued for a thread, running in one, and still awaited. A running
        # call whose caller gives up runs on.
        self._queued: set[object] = set()
        self._running: set[object] = set()
        self._awaited: set[object] = set()
        import_kind(kind)  # the framework's own memory is not the session's
        self._before = _anonymous()

    def step(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> Sequence[np.ndarray]:
        fed: Any = arrays
        if Rows in map(type, arrays):
            fed = [a.joined() if type(a) is Rows else a for a in arrays]
        if not step.adoptable:
            # A variable may keep a fed buffer, and this one is the user's.
            fed = [array.copy() for array in fed]
        # A result may share memory with a variable, a constant, a feed or another result. The user
        # may write to it, or keep it while the others change. The drop-in also has results that are
        # no arrays.
        return [
            result.copy() if isinstance(result, np.ndarray) else result
            for result in self._host.step(step.number).run(fed)
        ]

    async def astep(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> Sequence[np.ndarray]:
        return await self._aside(lambda: self.step(step, arrays, deadline))

    def call(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: Any = Any,
        deadline: float | None = None,
    ) -> tuple[Any, Sequence[np.ndarray]]:
        value, outputs = self._host.call(name, arguments, arrays)
        return msgspec.convert(value, type=result, from_attributes=True), outputs

    async def acall(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: Any = Any,
        deadline: float | None = None,
        may_wait: bool = True,
    ) -> tuple[Any, Sequence[np.ndarray]]:
        return await self._aside(lambda: self.call(name, arguments, arrays, result=result))

    async def _aside(self, work: Callable[[], T]) -> T:
        # The engine computes in this process: only a thread keeps the event loop unblocked.
        import asyncio

        mark = object()

        def carry_out() -> T:
            self._running.add(mark)
            try:
                self._queued.remove(mark)  # KeyError: the caller gave up before it began
                return work()
            finally:
                self._running.discard(mark)

        self._queued.add(mark)
        self._awaited.add(mark)
        try:
            return await asyncio.to_thread(carry_out)
        finally:
            self._queued.discard(mark)
            self._awaited.discard(mark)

    def answer_with(self, answer: Answer) -> None:
        """Do nothing: an engine in this process calls functions of the client directly."""

    def drain_awaited(self, deadline: float | None) -> None:
        with contextlib.suppress(NoAnswer):
            self._wait_while(lambda: (self._queued | self._running) & self._awaited, deadline)

    def settle(self, deadline: float | None) -> None:
        self._wait_while(lambda: self._queued or self._running, deadline)

    def _wait_while(self, question: Callable[[], object], deadline: float | None) -> None:
        while question():
            if left_until(deadline) <= 0:
                raise NoAnswer
            time.sleep(_SETTLE_SECONDS)

    def footprint(self) -> Footprint:
        """The growth of this process since the session was opened."""
        held = max(0, _anonymous() - self._before)
        return Footprint(held, held)

    def is_calling_us(self) -> bool:
        return False  # a thread never waits for its own steps anyway

    def death(self) -> None:
        """Return None: this process is alive."""

    def kill(self) -> None:
        """Do nothing: steps in this process cannot be cut off."""

    def end(self, held: Footprint) -> Account:
        before = _anonymous()
        self._host.close()
        self._host = Host()
        returned = min(held.host_bytes, max(0, before - _anonymous()))
        kept = held.host_bytes - returned
        return Account(
            returned,
            Residue(host_bytes=kept),
            "TensorFlow keeps the memory of an inline session until the process ends",
        )

    def release(self) -> None:
        """Do nothing: no descriptors are held."""


def _anonymous() -> int:
    reading = memory.of_process()
    return reading.anonymous_bytes if reading else 0
