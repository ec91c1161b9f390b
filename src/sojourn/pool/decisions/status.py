"""The pool's status as users see it: the status line, the counters, and who holds what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sojourn.pool.decisions.queue import Leases
from sojourn.pool.decisions.residents import Copy, CopyState
from sojourn.values import Place, format_bytes, format_seconds

if TYPE_CHECKING:
    from sojourn.pool.decisions.state import PoolState


@dataclass(slots=True)
class Counters:
    """Counts since the pool was made."""

    grants: int = 0
    hits: int = 0  # granted at once, without any wait
    opens: int = 0
    spares_taken: int = 0  # opens that took a spare worker
    spares_lost: int = 0  # spare workers that died or could not be made
    evictions: int = 0
    parks: int = 0
    recycled: int = 0
    overruns: int = 0  # copies that grew until the pool was over its limit
    updates: int = 0
    deaths: int = 0
    refusals: int = 0
    deadlocks: int = 0


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """One open copy of a model, at one moment."""

    name: str
    model: str
    version: int
    slot: int
    generation: int
    state: str
    bytes: int
    runs: int
    changed: bool
    holders: tuple[Place, ...]
    device: str = ""
    park_error: str = ""  # why parking failed, so that the copy stays
    pinned: bool = False
    opened_at: float = 0.0  # by time.monotonic(), like `leaves_at`
    leaves_at: float | None = None  # when it is closed for idleness


@dataclass(frozen=True, slots=True)
class SpareStatus:
    """One spare worker, at one moment."""

    state: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One version of a registered model, at one moment."""

    name: str
    version: int
    is_latest: bool  # whether leases by name get it
    state: str  # "serving", "coming" (an update opens it) or "going" (unregistered, in use)
    copies: int
    leases: int
    waiting: int
    wait_counts: tuple[int, ...] = ()  # number of leases by wait, in buckets of WAIT_SECONDS
    wait_seconds: float = 0.0  # the sum of these waits
    memory_bytes: int | None = None  # what a copy may allocate, if that was declared
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class WaitStatus:
    """The requests that wait for one version of a model, and what the first of them waits for."""

    name: str
    version: int
    waiting: int
    seconds: float  # how long the first has waited
    why: str


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The pool at one moment. `str` is its status line."""

    charged_bytes: int
    limit_bytes: int | None
    leased: int
    idle: int
    waiting: int
    opening: int = 0
    leaving: int = 0
    residue_bytes: int = 0
    spares: tuple[SpareStatus, ...] = ()
    copies: tuple[CopyStatus, ...] = ()
    models: tuple[ModelStatus, ...] = ()
    waits: tuple[WaitStatus, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, such as for the status page of a service."""
        plain = asdict(self)
        for copy, facts in zip(self.copies, plain["copies"], strict=True):
            facts["holders"] = [str(place) for place in copy.holders]
        return {
            **plain,
            **{key: list(plain[key]) for key in ("spares", "copies", "models", "waits")},
        }

    def __str__(self) -> str:
        size = self.charged_bytes if self.limit_bytes is None else self.limit_bytes
        unit, factor = ("GiB", 2**30) if size >= 2**30 else ("MiB", 2**20)
        used = f"{self.charged_bytes / factor:.1f}"
        if self.limit_bytes is not None:
            used += f"/{self.limit_bytes / factor:.1f}"
        parts = [f"{self.leased} leased", f"{self.idle} idle", f"{self.waiting} waiting"]
        if self.opening:
            parts.append(f"{self.opening} opening")
        if self.leaving:
            parts.append(f"{self.leaving} leaving")
        if self.spares:
            parts.append(f"{len(self.spares)} spare")
        return f"<Pool {used} {unit} | {', '.join(parts)}>"


def take_status(state: PoolState) -> PoolStatus:
    """Return the status of the pool, without the waits."""
    models, leases, queue, budget = state.models, state.leases, state.queue, state.budget
    residents = state.residents
    copies = list(residents)
    return PoolStatus(
        charged_bytes=budget.charged_bytes,
        limit_bytes=state.policy.limit_bytes,
        leased=sum(copy.is_leased for copy in copies),
        idle=sum(copy.is_idle for copy in copies),
        waiting=len(queue),
        opening=sum(copy.state is CopyState.OPENING for copy in copies),
        leaving=sum(copy.is_leaving for copy in copies),
        residue_bytes=budget.residue_bytes,
        spares=tuple(
            SpareStatus(spare.state.value, budget.charge_of(spare.account))
            for spare in state.spares
        ),
        copies=tuple(
            CopyStatus(
                name=label(copy),
                model=copy.model.name,
                version=copy.model.version,
                slot=copy.id.slot,
                generation=copy.id.generation,
                state="leased" if copy.is_leased else copy.state.value,
                bytes=budget.charge_of(copy.id),
                runs=copy.runs,
                changed=copy.changed,
                holders=tuple(
                    lease.holder.place for t in copy.leased_since if (lease := leases.get(t))
                ),
                device=copy.device,
                park_error=copy.park_error,
                pinned=copy.model.pinned,
                opened_at=copy.opened_at,
                leaves_at=state.leaves_at(copy) if copy.is_idle else None,
            )
            for copy in copies
        ),
        models=tuple(
            ModelStatus(
                name=entry.model.name,
                version=entry.model.version,
                is_latest=models.is_latest(entry),
                state="going" if entry.is_going else "coming" if entry.is_coming else "serving",
                copies=sum(1 for _ in residents.of(entry.key)),
                leases=sum(len(copy.leased_since) for copy in residents.of(entry.key)),
                waiting=queue.count(entry.key),
                wait_counts=tuple(entry.waits.counts),
                wait_seconds=entry.waits.seconds,
                memory_bytes=entry.model.memory_bytes,
                pinned=entry.model.pinned,
            )
            for entry in models
        ),
        counters=asdict(state.counters),
    )


def label(copy: Copy) -> str:
    """Return the copy's name for messages: with its slot only if the model may have several."""
    return f"{copy.id.model}[{copy.id.slot}]" if copy.model.copies > 1 else copy.id.model


def holders(copy: Copy, leases: Leases, now: float) -> str:
    """Name the holders of a copy for a message: the longest first, and at most five."""
    named = []
    for ticket, since in sorted(copy.leased_since.items(), key=lambda item: item[1])[:5]:
        lease = leases.get(ticket)
        if lease is not None:
            named.append(f"{lease.holder} for {format_seconds(max(0.0, now - since))}")
    more = len(copy.leased_since) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def who_holds_what(state: PoolState, now: float) -> str:
    """Describe all copies in a sentence, the largest first: "leased at app.py:10 for 3.2 s"."""
    account = []
    for copy in state.residents:
        if copy.is_leased:
            standing = f"leased at {holders(copy, state.leases, now)}"
        elif copy.state is CopyState.READY:
            standing = f"idle for {format_seconds(max(0.0, now - copy.last_used))}"
            if copy.park_error:
                standing += f", cannot be parked ({copy.park_error})"
        else:
            standing = copy.state.value
        if copy.model.pinned:
            standing += ", pinned"
        account.append((state.budget.charge_of(copy.id), label(copy), standing))
    for gone, left in state.budget.residue.items():
        account.append((left, gone.model, "closed, but its memory is still in use"))
    if not account:
        return "Nothing is resident."
    account.sort(key=lambda line: -line[0])
    listed = (f"{name} {format_bytes(count)}, {standing}" for count, name, standing in account)
    return "Held: " + "; ".join(listed) + "."
