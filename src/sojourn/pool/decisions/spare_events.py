"""What a spare worker goes through, from its making to its end."""

from __future__ import annotations

from sojourn.pool.decisions import serving
from sojourn.pool.decisions.effects import Effects, EndSpare
from sojourn.pool.decisions.spares import SpareState
from sojourn.pool.decisions.state import PoolState


class SpareEvents:
    """The decisions about spare workers."""

    _state: PoolState

    def on_spare_ready(self, number: int, held_bytes: int, now: float) -> Effects:
        """One was made; `held_bytes` was measured."""
        state = self._state
        spare = state.spares.live[number]
        if spare.state is SpareState.ENDING:  # while it was being made
            return (EndSpare(number),)
        spare.state = SpareState.READY
        state.spares.expected_bytes = held_bytes
        state.budget.charge(spare.account, held_bytes)
        serving.dispatch(state, now)
        return state.take_effects()

    def on_spare_gone(self, number: int, now: float, why: str = "") -> Effects:
        """One has ended, or could not be made: what it was charged with is free."""
        state = self._state
        spare = state.spares.live.get(number)
        if spare is None:
            return ()  # a copy has taken it
        if spare.state is not SpareState.ENDING:
            state.counters.spares_lost += 1
            state.spares.crashes.record(why, now)
        state.spares.forget(spare, state.budget)
        serving.dispatch(state, now)
        return state.take_effects()
