"""What the scheduler wants done. The driver performs these, in order, outside the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sojourn.pool.decisions.terms import CopyId


@dataclass(frozen=True, slots=True)
class Open:
    """Open this copy; `reserve_bytes` are already charged. `state` is what it parked, if it did,
    and `source` what the model was registered with.

    Answer with `on_opened` or `on_open_failed`.
    """

    copy: CopyId
    reserve_bytes: int
    state: object = None
    device: str = ""
    source: object = None
    spare: int | None = None  # the worker that it takes, which is charged as the copy's now
    known_bytes: int | None = None  # what a copy like it held when it was fresh


@dataclass(frozen=True, slots=True)
class MakeSpare:
    """Make a spare worker. Answer with `on_spare_ready` or `on_spare_gone`."""

    number: int


@dataclass(frozen=True, slots=True)
class EndSpare:
    """End a spare worker, or do not make it. Answer with `on_spare_gone`."""

    number: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Offer this copy to the waiter, which takes it with `on_accepted`."""

    ticket: int
    copy: CopyId


@dataclass(frozen=True, slots=True)
class Warmed:
    """The preload that carries this ticket is done."""

    ticket: int
    copy: CopyId


@dataclass(frozen=True, slots=True)
class Refuse:
    """Raise this error to the waiter. No other gets the same instance."""

    ticket: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Park:
    """Save the variables durably. Answer with `on_parked` or `on_park_failed`."""

    copy: CopyId


@dataclass(frozen=True, slots=True)
class Close:
    """End this copy and bring the receipt with `on_closed`. Its bytes are charged until then."""

    copy: CopyId
    why: str


@dataclass(frozen=True, slots=True)
class Expire:
    """The pool closes and this lease was not given back in time."""

    ticket: int
    copy: CopyId


@dataclass(frozen=True, slots=True)
class Discard:
    """A parked state that a newer one replaced: it may be deleted."""

    state: object


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `on_timer` at this time. It replaces a timer that was set before."""

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
