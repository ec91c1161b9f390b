"""Why somebody gets nothing, in words: the errors that depend on the pool's state."""

from __future__ import annotations

from sojourn.errors import BudgetExceeded, ModelError, PoolTimeout, SessionBroken, SessionClosed
from sojourn.pool.decisions import status
from sojourn.pool.decisions.budget import never_fits, no_room
from sojourn.pool.decisions.residents import CopyState
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import Model, Request
from sojourn.values import format_seconds


def pool_closed(state: PoolState) -> SessionClosed:
    return SessionClosed(f"the pool was closed at {state.closed_at}")


def unknown_model(state: PoolState, name: str) -> ModelError:
    known = ", ".join(sorted(state.models)) or "none"
    return ModelError(f"no model named {name!r} is registered (registered: {known})")


def can_never_fit(
    state: PoolState, model: Model, now: float, *, with_siblings: bool = False
) -> BudgetExceeded | None:
    limit, for_good = state.policy.limit, state.held_for_good(model if with_siblings else None)
    need = state.need(model)
    if limit.covers(need.plus(for_good)):
        return None
    return never_fits(model.name, need, limit, for_good, state.holdings(now))


def timed_out(
    state: PoolState, request: Request, now: float
) -> PoolTimeout | BudgetExceeded | SessionBroken:
    """What the waiter waited for until his time was up."""
    model = state.models[request.model]
    waited = format_seconds(max(0.0, now - request.at))
    copies = list(state.residents.of(model.name))
    for copy in copies:
        if copy.state is CopyState.OPENING:
            since = format_seconds(max(0.0, now - copy.opened_at))
            return PoolTimeout(
                f"{model.name} is still being opened, for {since} now (you waited {waited}); "
                "it goes on, and the next lease finds it open"
            )
    crashes = state.crashes[model.name]
    if crashes.must_wait(now):
        return crashes.error(model.name, now)
    text = f"{model.name} did not become free in {waited}"
    if len(copies) == model.copies:
        leased = [copy for copy in copies if copy.is_leased]
        if leased:
            who = "; ".join(status.holders(copy, state.leases, now) for copy in leased)
            return PoolTimeout(f"{text}: leased at {who}")
        return PoolTimeout(f"{text}: it is {copies[0].state.value}, and opens again after that")
    need = state.need(model)
    if state.claim is None and state.budget.spare.plus(state.leaving_room()).covers(need):
        leaving = ", ".join(status.label(c) for c in state.residents if c.is_leaving)
        return PoolTimeout(f"{text}: its room is promised, but {leaving or 'others'} must leave")
    return no_room(
        model.name, need, state.policy.limit, state.budget.spare, waited, state.holdings(now)
    )
