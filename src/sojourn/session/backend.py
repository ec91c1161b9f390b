"""Where a session's engine lives: a worker of its own, or the caller's process.

Both answer the same calls, so that the session above them has one way of doing things.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np

from sojourn.engines.base import Host, import_kind
from sojourn.probes import memory
from sojourn.process.calls import WorkerDied, plan_number
from sojourn.values import Footprint, Residue


@dataclass(frozen=True, slots=True)
class Account:
    """What an ending gave back."""

    returned_bytes: int
    residue: Residue
    note: str = ""
    returned_on_device: Mapping[str, int] = field(default_factory=dict)


class Backend(Protocol):
    """Carries out steps and operations, is measured, and is ended."""

    pid: int

    def step(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray],
        adoptable: bool,
        prints: bool,
        deadline: float | None,
    ) -> Sequence[np.ndarray]: ...

    def call(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: Any = Any,
        deadline: float | None = None,
    ) -> tuple[Any, Sequence[np.ndarray]]: ...

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

    def __init__(self, pid: int, kind: str) -> None:
        self.pid = pid
        self._host = Host()
        import_kind(kind)  # the framework's own memory is not the session's
        self._before = _anonymous()

    def step(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray],
        adoptable: bool,
        prints: bool,
        deadline: float | None,
    ) -> Sequence[np.ndarray]:
        if not adoptable:
            # A variable may keep a fed buffer, and this one is the user's.
            arrays = [array.copy() for array in arrays]
        plan = self._host.step(plan_number(meta))
        results = plan.run(arrays)
        return [_own(result, arrays) for result in results] if plan.may_echo else results

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


def _own(result: np.ndarray, feeds: Sequence[np.ndarray]) -> np.ndarray:
    """TensorFlow hands a feed on where it can, and what the user has fed may change."""
    return result.copy() if any(np.may_share_memory(result, feed) for feed in feeds) else result


def _anonymous() -> int:
    reading = memory.of_process()
    return reading.anonymous_bytes if reading else 0
