"""The life of a session, by plain calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import InternalError
from sojourn.session.states import TRANSITIONS, Input, State, next_state


def after(*inputs: Input) -> State:
    state = State.OPENING
    for happened in inputs:
        state = next_state(state, happened)
    return state


def test_an_ordinary_life():
    assert after(Input.OPENED) is State.READY
    assert after(Input.OPENED, Input.STEP_STARTED) is State.RUNNING
    assert after(Input.OPENED, Input.STEP_STARTED, Input.LAST_STEP_ENDED) is State.READY
    assert after(Input.OPENED, Input.CLOSE_ASKED, Input.ENDED) is State.CLOSED


def test_a_close_during_a_step_waits_for_it():
    closing = (Input.OPENED, Input.STEP_STARTED, Input.CLOSE_ASKED)
    assert after(*closing) is State.DRAINING
    assert after(*closing, Input.LAST_STEP_ENDED, Input.ENDED) is State.CLOSED


def test_a_dead_worker_breaks_it_and_it_can_come_back_or_be_closed():
    assert after(Input.OPENED, Input.DIED) is State.BROKEN
    assert after(Input.OPENED, Input.DIED, Input.WAKE_ASKED) is State.OPENING
    assert after(Input.OPENED, Input.DIED, Input.CLOSE_ASKED, Input.ENDED) is State.CLOSED


def test_parking_that_fails_leaves_it_ready():
    assert after(Input.OPENED, Input.PARK_ASKED, Input.PARK_FAILED) is State.READY
    assert after(Input.OPENED, Input.PARK_ASKED, Input.PARK_DONE) is State.PARKED


def test_a_close_while_it_parks_is_no_contradiction():
    closing = (Input.OPENED, Input.PARK_ASKED, Input.CLOSE_ASKED)
    assert after(*closing) is State.DRAINING
    assert after(*closing, Input.PARK_DONE, Input.ENDED) is State.CLOSED
    assert after(*closing, Input.ENDED, Input.PARK_FAILED) is State.CLOSED


def test_what_cannot_happen_is_an_error_that_names_both():
    with pytest.raises(InternalError, match="closed cannot take OPENED"):
        next_state(State.CLOSED, Input.OPENED)


@given(st.lists(st.sampled_from(Input), max_size=30))
def test_nothing_leads_out_of_closed(inputs):
    state = State.OPENING
    for happened in inputs:
        if (state, happened) in TRANSITIONS:
            was_closed = state is State.CLOSED
            state = TRANSITIONS[state, happened]
            assert not was_closed or state is State.CLOSED


def test_every_state_but_the_last_has_a_way_to_the_end():
    ends = {State.CLOSED}
    for _ in State:
        ends |= {before for (before, _), then in TRANSITIONS.items() if then in ends}
    assert ends == set(State)
