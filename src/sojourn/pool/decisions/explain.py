"""The errors of requests that are refused, with texts that explain the pool's state."""

from __future__ import annotations

from sojourn.errors import BudgetExceeded, ModelError, PoolTimeout, SessionBroken, SessionClosed
from sojourn.pool.decisions import status
from sojourn.pool.decisions.catalogue import Entry
from sojourn.pool.decisions.residents import CopyState
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import Request, Room
from sojourn.values import format_bytes, format_seconds


def pool_closed(state: PoolState) -> SessionClosed:
    return SessionClosed(f"the pool was closed at {state.closed_at}")


def unknown_model(state: PoolState, name: str, version: int | None = None) -> ModelError:
    versions = [str(entry.model.version) for entry in state.models.versions(name)]
    if version is not None and versions:
        known = ", ".join(versions)
        return ModelError(f"no version {version} of {name!r} is registered (registered: {known})")
    known = ", ".join(sorted(state.models.names)) or "none"
    return ModelError(f"no model named {name!r} is registered (registered: {known})")


def unregistered(entry: Entry) -> ModelError:
    return ModelError(f"{entry.key} was unregistered while this lease waited for it")


def overtaken(entry: Entry, by: Entry) -> ModelError:
    return ModelError(f"{entry.key} was not ready before {by.key}, which serves now: it goes again")


def needs(entry: Entry, count: int) -> str:
    """Describe how much memory a model needs, and where the number comes from."""
    size = format_bytes(count)
    if entry.model.memory_bytes is not None:
        return f"{entry.key} needs {size}"
    if entry.is_guess:
        return f"{entry.key} needs an estimated {size} (register it with memory= to say how much)"
    return f"{entry.key} needs {size} (as measured when it was last opened; memory= overrides it)"


def declared_too_large(entry: Entry, limit: Room) -> BudgetExceeded | None:
    """Return the error for a model whose declared size exceeds an empty pool, or None."""
    declared = entry.model.memory_bytes
    if declared is None or declared <= limit.bytes:
        return None
    return BudgetExceeded(
        f"{needs(entry, declared)} and the whole pool has {format_bytes(limit.bytes)}: "
        "it can never fit"
    )


def measured_too_large(state: PoolState, entry: Entry, now: float) -> BudgetExceeded:
    """Return the error for a model whose fresh copy held more than the pool can ever give it."""
    held = format_bytes(entry.oversize.held_bytes)
    wait = format_seconds(max(0.0, entry.oversize.retry_at - now))
    return BudgetExceeded(
        f"{entry.key} needs {held}, measured right after it was opened, and of the pool's "
        f"{format_bytes(state.policy.limit.bytes)} it can have "
        f"{format_bytes(state.attainable_bytes)}. It was closed again, and can be tried again in "
        f"{wait}. {status.who_holds_what(state, now)}"
    )


def waiting_cannot_help(
    state: PoolState, entry: Entry, now: float, *, with_siblings: bool = False
) -> BudgetExceeded | None:
    """Return the error if the missing room is held permanently, so that waiting is useless.

    Returns None otherwise, and also if the size is a guess and there is any room at all: then the
    model may try.
    """
    limit = state.policy.limit
    for_good = state.held_for_good(entry.key if with_siblings else None)
    need = state.need(entry)
    if with_siblings and not entry.is_guess:
        need = Room(entry.expected_bytes(state.policy), 1)
    elif entry.model.memory_bytes is None:
        need = Room(max(1, need.bytes), 1)
    if limit.covers(need.plus(for_good)):
        return None
    if need.bytes + for_good.bytes > limit.bytes:
        text = (
            f"{needs(entry, entry.expected_bytes(state.policy))} of the pool's "
            f"{format_bytes(limit.bytes)}, but {format_bytes(for_good.bytes)} of it is pinned, "
            "held by its own copies, or still held by a closed session: waiting cannot help"
        )
    elif need.sessions > limit.sessions:
        text = f"{entry.key} cannot be opened: max_sessions is {limit.sessions}"
    else:
        text = (
            f"{entry.key} needs one of {limit.sessions} sessions, but {for_good.sessions} are "
            "pinned or its own: waiting cannot help"
        )
    return BudgetExceeded(f"{text}. {status.who_holds_what(state, now)}")


def waits(state: PoolState, now: float) -> tuple[status.WaitStatus, ...]:
    """Return how many requests wait for each model, and what the first of them waits for."""
    first: dict[str, Request] = {}
    for request in state.queue:
        first.setdefault(request.model, request)
    return tuple(
        status.WaitStatus(
            state.models[key].model.name,
            state.models[key].model.version,
            state.queue.count(key),
            max(0.0, now - request.at),
            _waits_for(state, request, now),
        )
        for key, request in first.items()
    )


def _waits_for(state: PoolState, request: Request, now: float) -> str:
    """Describe what a request waits for: a copy being opened, or else the text of the error it
    would get at its timeout."""
    for copy in state.residents.of(request.model):
        if copy.state is CopyState.OPENING:
            since = format_seconds(max(0.0, now - copy.opened_at))
            return f"{status.label(copy)} is being opened, for {since} now"
    return str(timed_out(state, request, now))


def timed_out(
    state: PoolState, request: Request, now: float
) -> PoolTimeout | BudgetExceeded | SessionBroken:
    """Return the error for a request whose timeout has expired: what it waited for."""
    entry = state.models[request.model]
    key = entry.key
    waited = format_seconds(max(0.0, now - request.at))
    copies = list(state.residents.of(key))
    for copy in copies:
        if copy.state is CopyState.OPENING:
            since = format_seconds(max(0.0, now - copy.opened_at))
            text = f"{key} is still being opened, for {since} now (you waited {waited})"
            # An update that is not ready in time is given up.
            after = "" if entry.is_coming else "; it goes on, and the next lease finds it open"
            return PoolTimeout(text + after)
    if entry.crashes.must_wait(now):
        return entry.crashes.error(key, now)
    text = f"{key} did not become free in {waited}"
    if len(copies) == entry.model.copies:
        leased = [copy for copy in copies if copy.is_leased]
        if leased:
            who = "; ".join(status.holders(copy, state.leases, now) for copy in leased)
            return PoolTimeout(f"{text}: leased at {who}")
        return PoolTimeout(f"{text}: it is {copies[0].state.value}, and opens again after that")
    need, spare, limit = state.need(entry), state.budget.spare, state.policy.limit
    if state.claim is None and spare.plus(state.leaving_room()).covers(need):
        leaving = ", ".join(status.label(c) for c in state.residents if c.is_leaving)
        return PoolTimeout(f"{text}: its room is promised, but {leaving or 'others'} must leave")
    if need.bytes > spare.bytes:
        text = (
            f"{needs(entry, need.bytes)}; {format_bytes(max(0, spare.bytes))} of "
            f"{format_bytes(limit.bytes)} is free"
        )
    else:
        text = f"{key} needs a session; all {limit.sessions} of max_sessions are taken"
    held = status.who_holds_what(state, now)
    return BudgetExceeded(f"{text}, and nothing could be evicted in {waited}. {held}")
