"""The columns of `sojourn top`: their values, formats and sort orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sojourn.cli.terminal import in_columns, plain
from sojourn.session.listing import Listed
from sojourn.values import format_bytes, format_seconds
from sojourn.values.places import relative

UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    key: str
    title: str
    shown: Callable[[Listed], str]
    order: Callable[[Listed], Any]
    is_number: bool = False
    largest_first: bool = False


def _optional(value: float | None, shown: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else shown(value)


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


COLUMNS: tuple[Column, ...] = (
    Column("name", "name", lambda s: short(plain(s.name)), lambda s: s.name),
    Column("pid", "worker", lambda s: str(s.worker_pid or UNKNOWN), lambda s: s.worker_pid, True),
    Column("state", "state", lambda s: s.state, lambda s: s.state),
    Column("engine", "engine", lambda s: engine(s) or UNKNOWN, lambda s: s.engine),
    Column("device", "device", lambda s: plain(device(s)) or UNKNOWN, lambda s: s.device),
    Column(
        "bytes",
        "holds",
        lambda s: _optional(s.held_bytes, lambda n: format_bytes(int(n))),
        lambda s: _number(s.held_bytes),
        True,
        True,
    ),
    Column("runs", "runs", lambda s: str(s.runs), lambda s: s.runs, True, True),
    Column(
        "rate",
        "runs/s",
        lambda s: _optional(s.runs_per_second, rate),
        lambda s: _number(s.runs_per_second),
        True,
        True,
    ),
    Column(
        "p50",
        "p50",
        lambda s: _optional(s.p50_seconds, format_seconds),
        lambda s: _number(s.p50_seconds),
        True,
        True,
    ),
    Column(
        "p99",
        "p99",
        lambda s: _optional(s.p99_seconds, format_seconds),
        lambda s: _number(s.p99_seconds),
        True,
        True,
    ),
    Column(
        "idle",
        "idle",
        lambda s: _optional(s.idle_seconds, idle),
        lambda s: _number(s.idle_seconds),
        True,
        True,
    ),
    Column(
        "program",
        "owner",
        lambda s: short(f"{s.client_pid} {plain(s.program)}"),
        lambda s: (s.program, s.client_pid),
    ),
    # The longest column is last, so that a narrow window cuts off this one.
    Column("owner", "opened at", lambda s: place(s.owner), lambda s: s.owner),
)
KEYS = tuple(column.key for column in COLUMNS)


def by_key(key: str) -> Column:
    """Return the column with this key."""
    return COLUMNS[KEYS.index(key)]


def ordered(sessions: Iterable[Listed], key: str, reverse: bool = False) -> list[Listed]:
    """Sort sessions by a column, most numbers from the largest unless reversed."""
    column = by_key(key)
    return sorted(sessions, key=column.order, reverse=column.largest_first != reverse)


def render(sessions: Sequence[Listed]) -> str:
    """Return a plain table with a line of totals."""
    if not sessions:
        return "no sessions"
    rows = [[column.title for column in COLUMNS]]
    rows += [[column.shown(session) for column in COLUMNS] for session in sessions]
    numbers = [at for at, column in enumerate(COLUMNS) if column.is_number]
    return "\n".join([*in_columns(rows, numbers), "", summary(sessions)])


def summary(sessions: Sequence[Listed]) -> str:
    """Return a line with the number of sessions and processes, and their total memory and rate."""
    count, clients = len(sessions), len({s.client_pid for s in sessions})
    held = sum(s.held_bytes or 0 for s in sessions)
    runs = sum(s.runs_per_second or 0.0 for s in sessions)
    return (
        f"{count} session{'s' * (count != 1)} of {clients} process{'es' * (clients != 1)}, "
        f"{format_bytes(held)} held, {rate(runs)} runs/s"
    )


def rate(per_second: float) -> str:
    """Format runs per second."""
    return f"{per_second:.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def idle(seconds: float) -> str:
    """Format a duration in whole units, because it changes at every refresh."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def engine(session: Listed) -> str:
    """Return the names of the session's engines, one or two, without versions."""
    return "+".join(plain(part).split()[0] for part in session.engine.split(", ") if part.strip())


def device(session: Listed) -> str:
    """Return the session's device, and whether the session is inline."""
    return f"{session.device} (inline)" if session.isolation == "inline" else session.device


def place(owner: str, most: int = 36) -> str:
    """Return the file and line, relative to the current folder if possible, at most `most` long."""
    file, _, line = plain(owner).rpartition(":")
    text = f"{relative(file)}:{line}"
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def short(text: str, most: int = 28) -> str:
    """Truncate a text to `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
