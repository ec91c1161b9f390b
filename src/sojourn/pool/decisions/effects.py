"""The effects of decisions. The driver performs them, in order, outside the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sojourn.pool.decisions.terms import CopyId


@dataclass(frozen=True, slots=True)
class Open:
    """Open this copy; `reserve_bytes` are already charged. `state` is its parked state, if it has
    one, and `source` is what the model was registered with.

    Answered with `on_opened` or `on_open_failed`.
    """

    copy: CopyId
    reserve_bytes: int
    state: object = None
    device: str = ""
    source: object = None
    spare: int | None = None  # number of the spare worker to use, charged as the copy's now
    known_bytes: int | None = None  # measured size of an earlier fresh copy


@dataclass(frozen=True, slots=True)
class MakeSpare:
    """Make a spare worker. Answered with `on_spare_ready` or `on_spare_gone`."""

    number: int


@dataclass(frozen=True, slots=True)
class EndSpare:
    """End a spare worker, or cancel making it. Answered with `on_spare_gone`."""

    number: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Offer this copy to the waiter, which accepts it with `on_accepted`."""

    ticket: int
    copy: CopyId


@dataclass(frozen=True, slots=True)
class Warmed:
    """Notify the waiter that its preload is done."""

    ticket: int
    copy: CopyId


@dataclass(frozen=True, slots=True)
class Refuse:
    """Raise this error to the waiter. No other waiter gets the same instance."""

    ticket: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Park:
    """Save the variables durably. Answered with `on_parked` or `on_park_failed`."""

    copy: CopyId


@dataclass(frozen=True, slots=True)
class Close:
    """Close this copy. Answered with `on_closed` and its receipt; it is charged until then."""

    copy: CopyId
    why: str


@dataclass(frozen=True, slots=True)
class Expire:
    """End a lease that was not given back before the pool's closing timeout."""

    ticket: int
    copy: CopyId


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a parked state that is no longer needed."""

    state: object


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `on_timer` at this time. Replaces the timer that was set before."""

    at: float


@dataclass(frozen=True, slots=True)
class Report:
    """Emit an event of this kind."""

    kind: str
    model: str
    detail: Mapping[str, Any] = field(default_factory=dict)


Effect = (
    Open
    | MakeSpare
    | EndSpare
    | Grant
    | Warmed
    | Refuse
    | Park
    | Close
    | Expire
    | Discard
    | SetTimer
    | Report
)
Effects = tuple[Effect, ...]
