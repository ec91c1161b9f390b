"""The facts that the watch records: plain data without judgement, for the judge to read.

Times are seconds since the watch began; bytes are the private memory of this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sojourn.values import Place


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a session by a line of the user's code."""

    place: Place
    stack: tuple[Place, ...]
    at: float


@dataclass(slots=True)
class SessionRecord:
    """The life of one raw TensorFlow session."""

    serial: int
    kind: str
    place: Place
    stack: tuple[Place, ...]
    opened_at: float
    graph: int = 0
    scope: str = ""  # the test that was running, if any
    library: str = ""  # the library that opened it for the user
    kept_by_library: bool = False  # the library owns it and has to close it
    interactive: bool = False
    runs: int = 0
    last_run_at: float | None = None
    closed_at: float | None = None
    closed_place: Place | None = None
    lost_at: float | None = None  # garbage-collected while still open
    replaced_by: int | None = None
    grown_bytes: int = 0  # by which its steps made this process grow
    bytes_before_close: int = 0
    bytes_after_close: int = 0
    late_uses: list[Use] = field(default_factory=list)
    borrowed: list[Use] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Growth:
    """Ops that appeared in a graph between two of its steps."""

    graph: int
    at: float
    step: int
    ops_before: int
    ops_after: int
    # The user's lines that added ops, and how many each added. Empty if not looked up.
    lines: tuple[tuple[Place, int], ...] = ()
    scope: str = ""  # the test that was running, if any


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts of one audit."""

    sessions: Sequence[SessionRecord]
    growths: Sequence[Growth] = ()
    samples: Sequence[tuple[float, int]] = ()
    began_at: float = 0.0
    ended_at: float = 0.0
    bytes_at_end: int = 0
    # When the program ended; a session that is collected later counts as open until then.
    exit_at: float | None = None
    # True for a block, which is followed by more code; False for a whole program.
    goes_on: bool = False

    @property
    def seconds(self) -> float:
        """How long the program or the block ran, without its exit handlers."""
        return (self.exit_at or self.ended_at) - self.began_at
