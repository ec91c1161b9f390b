"""The copies of every model: slots, generations, and the states a copy goes through.

Pure bookkeeping with one writer, the scheduler. An event of an older generation finds no
copy here and is thereby ignored.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from enum import Enum

from sojourn.errors import InternalError
from sojourn.pool.decisions.health import Growth
from sojourn.pool.decisions.terms import CopyId, Model


class CopyState(Enum):
    OPENING = "being opened"
    READY = "resident"
    PARKING = "being parked"
    CLOSING = "being closed"


_S = CopyState

# A closed copy has no state: its slot is empty and keeps the generation and the parked state.
TRANSITIONS: dict[tuple[CopyState, str], CopyState] = {
    (_S.OPENING, "opened"): _S.READY,
    (_S.OPENING, "leave"): _S.CLOSING,
    (_S.OPENING, "died"): _S.CLOSING,
    (_S.READY, "park"): _S.PARKING,
    (_S.READY, "leave"): _S.CLOSING,
    (_S.READY, "died"): _S.CLOSING,
    (_S.PARKING, "parked"): _S.CLOSING,
    (_S.PARKING, "park failed"): _S.READY,
    (_S.PARKING, "died"): _S.CLOSING,
}


@dataclass(slots=True)
class Copy:
    """One open session of a model, as the decisions see it."""

    id: CopyId
    model: Model
    opened_at: float
    last_used: float
    device: str = ""
    state: CopyState = CopyState.OPENING
    leased_since: dict[int, float] = field(default_factory=dict)  # by ticket
    open_seconds: float = 0.0
    park_seconds: float = 0.0
    runs: int = 0
    reserved_bytes: int = 0  # before it was opened and measured
    overrun_readings: int = 0  # in a row, with the pool over its limit because of it
    changed: bool = False  # since the last durable state
    retiring: str = ""  # why it is closed once it is given back; "" if it is not
    claimed: bool = False  # a request has waited long enough for its room
    park_retry_at: float = 0.0
    park_error: str = ""
    growth: Growth = field(default_factory=Growth)
    history: list[str] = field(default_factory=list)

    @property
    def is_leased(self) -> bool:
        return bool(self.leased_since)

    @property
    def is_idle(self) -> bool:
        return self.state is CopyState.READY and not self.leased_since

    @property
    def is_leaving(self) -> bool:
        return self.state is CopyState.CLOSING or self.state is CopyState.PARKING

    @property
    def is_draining(self) -> bool:
        """Whether it gets no new leases, except for requesters that hold a lease already."""
        return self.claimed or bool(self.retiring)

    @property
    def stays_for_good(self) -> bool:
        """Whether it stays permanently, so that waiting for its room is useless."""
        return self.model.pinned and not self.is_leaving and not self.retiring

    @property
    def is_reserved_on_a_guess(self) -> bool:
        """Whether its charge is a guess, neither declared nor measured."""
        return self.state is CopyState.OPENING and self.model.memory_bytes is None

    def can_serve_another(self) -> bool:
        return self.state is CopyState.READY and not (self.model.exclusive and self.leased_since)

    def can_leave(self, now: float) -> bool:
        """Whether it may be evicted: idle, not pinned, and no recent failure to park it."""
        return self.is_idle and not self.model.pinned and now >= self.park_retry_at

    def move(self, event: str) -> None:
        self.history.append(event)
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            history = ", ".join(self.history[-8:])
            raise InternalError(f"{self.id} is {self.state.value}: no move for {event} ({history})")
        self.state = after


@dataclass(slots=True)
class Slot:
    """A place for one copy of a model. It outlives its copies and keeps their parked state."""

    model: str
    index: int
    generation: int = 0
    copy: Copy | None = None
    parked: object = None
    ever_parked: bool = False


class Residents:
    """All copies, by model and by id."""

    def __init__(self) -> None:
        self._slots: dict[str, tuple[Slot, ...]] = {}
        self._live: dict[CopyId, Copy] = {}
        self._generations: dict[str, int] = {}  # the last ones of models that were removed

    def register(self, model: Model) -> None:
        """Make the slots of a model. One that was registered before continues its generations."""
        key = model.key
        last = self._generations.get(key, 0)
        self._slots[key] = tuple(Slot(key, i, last) for i in range(model.copies))

    def forget(self, model: str) -> tuple[Slot, ...]:
        """Remove a model without copies; return its slots."""
        slots = self._slots.pop(model)
        self._generations[model] = max(slot.generation for slot in slots)
        return slots

    def slots(self, model: str) -> tuple[Slot, ...]:
        return self._slots[model]

    def slot(self, copy: CopyId) -> Slot:
        return self._slots[copy.model][copy.slot]

    def current(self, copy: CopyId) -> Copy | None:
        """Return the copy with this id, or None if it is gone (and perhaps has a successor)."""
        return self._live.get(copy)

    def of(self, model: str) -> Iterator[Copy]:
        for slot in self._slots[model]:
            if slot.copy is not None:
                yield slot.copy

    def __iter__(self) -> Iterator[Copy]:
        """Iterate over a snapshot, so that removing copies meanwhile is safe."""
        return iter(tuple(self._live.values()))

    def empty_slot(self, model: str, among: Container[int] | None = None) -> Slot | None:
        """Return the slot for the next copy, preferably one with a parked state, or None."""
        empty = (
            slot
            for slot in self._slots[model]
            if slot.copy is None and (among is None or slot.index in among)
        )
        return min(empty, key=lambda s: (not s.ever_parked, s.index), default=None)

    def begin(self, slot: Slot, model: Model, now: float, device: str = "") -> Copy:
        if slot.copy is not None:
            raise InternalError(f"{slot.copy.id} is {slot.copy.state.value}: its slot is taken")
        slot.generation += 1
        copy_id = CopyId(slot.model, slot.index, slot.generation)
        copy = Copy(copy_id, model, opened_at=now, last_used=now, device=device)
        slot.copy = self._live[copy_id] = copy
        return copy

    def end(self, copy: Copy) -> None:
        self.slot(copy.id).copy = None
        del self._live[copy.id]

    def least_loaded(self, model: str, *, even_draining: bool = False) -> Copy | None:
        """Return the copy with the fewest holders that can serve one more, or None."""
        best: Copy | None = None
        for slot in self._slots[model]:
            copy = slot.copy
            if copy is None or not copy.can_serve_another():
                continue
            if copy.is_draining and not even_draining:
                continue
            if best is None or len(copy.leased_since) < len(best.leased_since):
                best = copy
        return best
