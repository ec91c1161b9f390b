"""Where a session's engine lives: a worker of its own, or the caller's process.

Both answer the same calls, so that the session above them has one way of doing things.
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
_SETTLE_SECONDS = 0.002  # between two looks


@dataclass(frozen=True, slots=True)
class Account:
    """What an ending gave back."""

    returned_bytes: int
    residue: Residue
    note: str = ""
    returned_on_device: Mapping[str, int] = field(default_factory=dict)


class Backend(Protocol):
    """Carries out steps and operations, is measured, and is ended."""

    @property
    def pid(self) -> int:
        """The process that the engine lives in."""

    @property
    def pidfd(self) -> int:
        """Readable once it has ended; -1 if it ends with us."""

    @property
    def sandbox(self) -> Applied | None:
        """What an untrusted model is closed off by."""

    def step(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> Sequence[np.ndarray]:
        """Run a prepared step. The results own their memory."""

    async def astep(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> Sequence[np.ndarray]:
        """The same, awaited."""

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
        """The same, awaited."""

    def answer_with(self, answer: Answer) -> None:
        """From now on the engine may ask us, and `answer` is what it hears."""

    def drain_awaited(self, deadline: float | None) -> None:
        """Wait for what the event loop of this very thread waits for, which cannot do so now."""

    def settle(self, deadline: float | None) -> None:
        """Wait until it carries out nothing any more, also of what nobody waits for."""

    def footprint(self) -> Footprint: ...

    def death(self) -> WorkerDied | None:
        """How it died, if it has."""

    def is_calling_us(self) -> bool:
        """Whether this thread answers a question of the engine's, which waits for the answer."""

    def kill(self) -> None: ...

    def end(self, held: Footprint) -> Account: ...

    def release(self) -> None: ...


# By a deadline.
MakeBackend = Callable[[float | None], Backend]


class InlineBackend:
    """The caller's own process: a safe life cycle and fast steps, but no memory back."""

    pidfd = -1
    sandbox: Applied | None = None

    def __init__(self, pid: int, kind: str) -> None:
        self.pid = pid
        self._host = Host()
        # What is awaited, on its way to a thread and there, where it goes on when it is given up.
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
        # A result may be the memory of a variable, a constant, a feed or another result, and the
        # user may change it, or keep it while they change. What is no array is the drop-in's.
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
        # It computes in this process, and the loop must go on: here a thread is the only way.
        import asyncio

        mark = object()

        def carry_out() -> T:
            self._running.add(mark)
            try:
                self._queued.remove(mark)  # KeyError: it was given up before it began
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
        """Functions of this process are called directly."""

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
        """What this process has grown by since the session was opened."""
        held = max(0, _anonymous() - self._before)
        return Footprint(held, held)

    def is_calling_us(self) -> bool:
        return False  # a thread never waits for its own steps anyway

    def death(self) -> None:
        """It ends with us."""

    def kill(self) -> None:
        """Steps in this process cannot be cut off."""

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
        """There are no descriptors."""


def _anonymous() -> int:
    reading = memory.of_process()
    return reading.anonymous_bytes if reading else 0
