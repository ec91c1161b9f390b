"""The state that the page shows at one moment, as plain values. Pure functions, without I/O.

Times are unix times, so that values do not change as time passes; the browser counts down itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sojourn.pool.decisions.status import CopyStatus, ModelStatus, PoolStatus
from sojourn.service.page.points import Counts
from sojourn.service.page.watching import Incident, model_of

# From the pool's names of a copy's states to the page's names of a block's states.
_STATES = {
    "being opened": "opening",
    "resident": "idle",
    "leased": "leased",
    "being parked": "parking",
    "being closed": "closing",
}


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the memory bar: a resident copy, a spare worker, or one whose worker died."""

    name: str
    model: str
    version: int
    state: str  # opening, idle, leased, parking, closing, broken or spare
    bytes: int  # charged to the memory budget
    held_bytes: int | None = None  # as last measured
    runs: int = 0
    leases: int = 0
    pinned: bool = False
    device: str = ""
    since: float | None = None  # unix time: opened, or broken
    until: float | None = None  # unix time: end of idling, or expected end of opening or closing
    words: str = ""  # the problem, if any


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One version of a model, with facts from the catalogue, the pool and the handler."""

    name: str
    version: int
    state: str  # START, LOADING, AVAILABLE, UNLOADING, END
    labels: tuple[str, ...] = ()
    error: str = ""
    is_latest: bool = False
    copies: int = 0
    leases: int = 0
    waiting: int = 0
    bytes: int = 0
    memory_bytes: int | None = None
    pinned: bool = False
    requests: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """The catalogue's facts about a version."""

    name: str
    version: int
    state: str
    labels: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class WaitRow:
    """The number of callers that wait for a model, and the reason."""

    model: str
    version: int
    waiting: int
    since: float
    why: str


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory budget as a whole."""

    charged_bytes: int
    limit_bytes: int | None
    residue_bytes: int
    leased: int
    idle: int
    waiting: int
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the page shows at one moment, in the parts that are sent when they change."""

    budget: Budget
    blocks: tuple[Block, ...]
    models: tuple[ModelRow, ...]
    waits: tuple[WaitRow, ...]
    incidents: tuple[Incident, ...] = ()
    notice: str = ""  # a problem of the page itself, such as a history that cannot be written


@dataclass(frozen=True, slots=True)
class Clock:
    """Converts the pool's monotonic times to unix times."""

    unix_minus_monotonic: float

    def unix(self, monotonic: float | None) -> float | None:
        """The unix time, rounded to a tenth of a second."""
        return None if monotonic is None else round(monotonic + self.unix_minus_monotonic, 1)


def take(
    status: PoolStatus,
    versions: Iterable[Version],
    counts: Mapping[tuple[str, int], Counts],
    held: Mapping[str, int],
    broken: Mapping[str, tuple[float, str]],
    is_over_at: Callable[[str, str], float | None],
    incidents: Iterable[Incident],
    clock: Clock,
    now: float,
    notice: str = "",
    own_name: Callable[[str], str] = str,
) -> Snapshot:
    """Build the snapshot of this moment; `now` is in the pool's clock. `status` has the models by
    their own names; `own_name` converts the model names in session names to those."""
    blocks = [_block(copy, held.get(copy.name), clock, is_over_at) for copy in status.copies]
    there = {block.name for block in blocks if block.state in ("opening", "idle", "leased")}
    registered = {model.name for model in status.models}
    died = [
        Block(name, own_name(model), version, state="broken", bytes=0, since=at, words=how)
        for name, (at, how) in broken.items()
        for model, version in [model_of(name)]
        if name not in there and own_name(model) in registered
    ]
    died_names = {block.name for block in died}
    blocks = [block for block in blocks if block.name not in died_names] + died
    blocks += [Block("spare", "", 0, "spare", spare.bytes) for spare in status.spares]
    return Snapshot(
        budget=Budget(
            status.charged_bytes,
            status.limit_bytes,
            status.residue_bytes,
            status.leased,
            status.idle,
            status.waiting,
            dict(status.counters),
        ),
        blocks=tuple(blocks),
        models=tuple(_rows(status, versions, counts)),
        waits=tuple(
            WaitRow(
                wait.name,
                wait.version,
                wait.waiting,
                clock.unix(now - wait.seconds) or 0.0,
                wait.why,
            )
            for wait in status.waits
        ),
        incidents=tuple(incidents),
        notice=notice,
    )


def _block(
    copy: CopyStatus,
    held_bytes: int | None,
    clock: Clock,
    is_over_at: Callable[[str, str], float | None],
) -> Block:
    state = _STATES[copy.state]
    until = copy.leaves_at
    if state in ("opening", "parking", "closing"):
        until = is_over_at("opening" if state == "opening" else "closing", copy.name)
    return Block(
        copy.name,
        copy.model,
        copy.version,
        state,
        copy.bytes,
        held_bytes,
        copy.runs,
        len(copy.holders),
        copy.pinned,
        copy.device,
        clock.unix(copy.opened_at),
        clock.unix(until),
        copy.park_error,
    )


def _rows(
    status: PoolStatus,
    versions: Iterable[Version],
    counts: Mapping[tuple[str, int], Counts],
) -> Iterable[ModelRow]:
    known = {(version.name, version.version): version for version in versions}
    pooled = {(model.name, model.version): model for model in status.models}
    for key in sorted({*known, *pooled}):
        version, model, done = known.get(key), pooled.get(key), counts.get(key, Counts())
        yield ModelRow(
            *key,
            state=version.state if version else _state(model),
            labels=version.labels if version else (),
            error=version.error if version else "",
            is_latest=bool(model and model.is_latest),
            copies=model.copies if model else 0,
            leases=model.leases if model else 0,
            waiting=model.waiting if model else 0,
            bytes=sum(c.bytes for c in status.copies if (c.model, c.version) == key),
            memory_bytes=model.memory_bytes if model else None,
            pinned=bool(model and model.pinned),
            requests=done.requests,
            failures=done.failures,
        )


def _state(model: ModelStatus | None) -> str:
    names = {"serving": "AVAILABLE", "coming": "LOADING", "going": "UNLOADING"}
    return names[model.state] if model else "END"
