"""The events of copies: opened, failed, died, parked, closed, measured.

Events of a copy that is gone are ignored.
"""

from __future__ import annotations

import copy as copying

from sojourn.errors import SessionBroken
from sojourn.pool.decisions import serving
from sojourn.pool.decisions.effects import Close, Discard, Effects, Report
from sojourn.pool.decisions.residents import Copy, CopyState
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import CopyId
from sojourn.values import format_bytes

PARK_RETRY_SECONDS = 10.0
# After so many readings in a row over the limit, a copy gets no new holders until it is replaced.
# Before that it is replaced only when it happens to be idle.
OVERRUN_READINGS = 3


class CopyEvents:
    """The decisions about copies, from the opening to the receipt."""

    _state: PoolState

    def on_opened(self, copy_id: CopyId, held_bytes: int, seconds: float, now: float) -> Effects:
        """A copy is open; `held_bytes` is its measured size."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.OPENING:
            return ()
        copy.move("opened")
        copy.opened_at = copy.last_used = now
        copy.open_seconds = seconds
        entry = state.models[copy_id.model]
        entry.fresh_bytes = held_bytes
        _charge(state, copy, held_bytes)
        if state.is_overrun_by(copy, now):
            # The copy is larger than expected. It is not used yet, so it is closed again, and its
            # waiters wait for its true size, if the pool can ever have as much room.
            _report_overrun(state, copy, held_bytes)
            serving.leave(state, copy, f"holds {format_bytes(held_bytes)}: more than was reserved")
            if held_bytes > state.attainable_bytes:
                entry.oversize.record(held_bytes, now)
        else:
            entry.oversize.count = 0
        serving.dispatch(state, now)
        serving.scale_out_if_busy(state, copy, now)
        if copy.is_idle:
            state.watch_idle(copy)
        return state.take_effects()

    def on_open_failed(self, copy_id: CopyId, error: Exception, now: float) -> Effects:
        """A copy could not be opened; its worker, if there was one, has been reaped."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None:
            return ()
        entry = state.models[copy_id.model]
        _forget(state, copy, residue_bytes=0)
        if copy.is_leaving:
            pass  # the opening was cancelled
        elif isinstance(error, SessionBroken):
            state.counters.deaths += 1
            entry.crashes.record(str(error), now)
        else:  # a retry would fail again
            for request in state.queue:
                if request.model == copy_id.model:
                    serving.refuse(state, request, _own(error))
        serving.dispatch(state, now)
        return state.take_effects()

    def on_died(self, copy_id: CopyId, last_words: str, now: float) -> Effects:
        """The worker of a copy died by itself. The session notifies its holders; the copy stays
        charged until its receipt arrives."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is CopyState.CLOSING:
            return ()
        state.counters.deaths += 1
        state.models[copy_id.model].crashes.record(last_words, now)
        if copy.changed:
            state.out.append(Report("pool.state_lost", copy_id.model, {"copy": str(copy_id)}))
        serving.end_leases(state, copy)
        copy.move("died")
        state.out.append(Close(copy_id, "died"))
        serving.dispatch(state, now)
        return state.take_effects()

    def on_parked(self, copy_id: CopyId, parked: object, seconds: float, now: float) -> Effects:
        """The variables of a copy are saved durably. The copy can be closed."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.PARKING:
            return (Discard(parked),)
        slot = state.residents.slot(copy_id)
        if slot.ever_parked:
            state.out.append(Discard(slot.parked))
        slot.parked, slot.ever_parked = parked, True
        copy.changed = False
        copy.park_seconds = seconds
        state.counters.parks += 1
        copy.move("parked")
        state.out.append(Close(copy_id, copy.retiring or "parked"))
        serving.dispatch(state, now)  # an opening with a spare need not wait for its end
        return state.take_effects()

    def on_park_failed(self, copy_id: CopyId, error: Exception, now: float) -> Effects:
        """Saving the variables failed: the copy stays, unchanged, and may be leased again."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.PARKING:
            return ()
        copy.move("park failed")
        copy.claimed = False
        if not state.models[copy_id.model].is_going:  # else its state is not needed any more
            copy.retiring = ""
            copy.park_retry_at = now + PARK_RETRY_SECONDS
        copy.park_error = str(error)
        state.out.append(Report("pool.park_failed", copy_id.model, {"error": str(error)}))
        serving.dispatch(state, now)
        if copy.is_idle:
            state.watch_idle(copy)
        return state.take_effects()

    def on_closed(self, copy_id: CopyId, now: float, *, residue_bytes: int = 0) -> Effects:
        """The receipt of a copy has arrived. The residue it reports stays charged; a later
        receipt for the same copy corrects that."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is not None:
            serving.end_leases(state, copy)
            _forget(state, copy, residue_bytes)
        elif copy_id in state.budget.residue:
            state.budget.release(copy_id, residue_bytes)
        else:
            return ()
        serving.dispatch(state, now)
        return state.take_effects()

    def on_measured(self, copy_id: CopyId, held_bytes: int, now: float) -> Effects:
        """A copy was measured, between leases or during one."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.READY:
            return ()
        _judge_size(state, copy, held_bytes, now)
        serving.dispatch(state, now)
        return state.take_effects()


def _judge_size(state: PoolState, copy: Copy, held_bytes: int, now: float) -> None:
    """Charge a copy with its measured size. One that keeps growing, or has outgrown the pool, is
    replaced when it is given back: a fresh copy need not be as large."""
    _charge(state, copy, held_bytes)
    copy.growth.record(held_bytes, copy.model.max_growth_bytes)
    if copy.growth.is_proven and not copy.retiring:
        copy.retiring = f"grew by {format_bytes(copy.growth.grown_bytes)}"
    if held_bytes <= copy.reserved_bytes or not state.is_overrun_by(copy, now):
        copy.overrun_readings = min(copy.overrun_readings, 1)
        return
    copy.overrun_readings += 1
    if copy.overrun_readings == 1:
        _report_overrun(state, copy, held_bytes)
    if (copy.overrun_readings >= OVERRUN_READINGS or copy.is_idle) and not copy.retiring:
        copy.retiring = f"holds {format_bytes(held_bytes)}: more than the pool has room for"


def _report_overrun(state: PoolState, copy: Copy, held_bytes: int) -> None:
    state.counters.overruns += 1
    facts = {
        "copy": str(copy.id),
        "held_bytes": held_bytes,
        "reserved_bytes": copy.reserved_bytes,
        "charged_bytes": state.budget.charged_bytes,
        "limit_bytes": state.policy.limit_bytes,
    }
    state.out.append(Report("pool.overrun", copy.id.model, facts))


def _charge(state: PoolState, copy: Copy, held_bytes: int) -> None:
    """Charge a copy with its measured size, but at least with the declared one, which stays
    reserved."""
    state.budget.charge(copy.id, max(held_bytes, copy.model.memory_bytes or 0))


def _forget(state: PoolState, copy: Copy, residue_bytes: int) -> None:
    state.budget.release(copy.id, residue_bytes)
    state.residents.end(copy)
    serving.forget_if_gone(state, state.models[copy.id.model])


def _own(error: Exception) -> Exception:
    """Return a copy of the error for one waiter: one instance raised in several threads would
    collect all their tracebacks."""
    try:
        mine = copying.copy(error)
    except Exception:
        return error
    mine.__cause__ = error.__cause__
    return mine
