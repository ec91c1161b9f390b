"""The life of a session, as a table. Pure: no threads, clocks or I/O."""

from __future__ import annotations

import enum

from sojourn.errors import InternalError


class State(str, enum.Enum):
    """The state of a session."""

    OPENING = "opening"
    READY = "ready"
    RUNNING = "running"
    DRAINING = "draining"
    PARKING = "parking"
    PARKED = "parked"
    BROKEN = "broken"
    CLOSED = "closed"

    def __str__(self) -> str:
        return self.value


class Input(enum.Enum):
    """An event that may change the state of a session."""

    OPENED = enum.auto()  # the engine has loaded
    OPEN_FAILED = enum.auto()
    STEP_STARTED = enum.auto()
    LAST_STEP_ENDED = enum.auto()
    CLOSE_ASKED = enum.auto()
    DIED = enum.auto()  # the worker died by itself
    ENDED = enum.auto()  # the worker was ended by a close
    PARK_ASKED = enum.auto()
    PARK_DONE = enum.auto()
    PARK_FAILED = enum.auto()
    WAKE_ASKED = enum.auto()  # a parked or broken session is to become ready again


_S, _I = State, Input

TRANSITIONS: dict[tuple[State, Input], State] = {
    (_S.OPENING, _I.OPENED): _S.READY,
    (_S.OPENING, _I.OPEN_FAILED): _S.CLOSED,
    (_S.OPENING, _I.CLOSE_ASKED): _S.DRAINING,
    (_S.OPENING, _I.DIED): _S.BROKEN,
    (_S.OPENING, _I.LAST_STEP_ENDED): _S.OPENING,  # a step of the worker that is being replaced
    (_S.OPENING, _I.WAKE_ASKED): _S.OPENING,  # the comeback so far was interrupted
    (_S.READY, _I.STEP_STARTED): _S.RUNNING,
    (_S.READY, _I.CLOSE_ASKED): _S.DRAINING,
    (_S.READY, _I.DIED): _S.BROKEN,
    (_S.READY, _I.PARK_ASKED): _S.PARKING,
    (_S.RUNNING, _I.STEP_STARTED): _S.RUNNING,
    (_S.RUNNING, _I.LAST_STEP_ENDED): _S.READY,
    (_S.RUNNING, _I.CLOSE_ASKED): _S.DRAINING,
    (_S.RUNNING, _I.DIED): _S.BROKEN,
    (_S.DRAINING, _I.LAST_STEP_ENDED): _S.DRAINING,
    (_S.DRAINING, _I.DIED): _S.DRAINING,
    (_S.DRAINING, _I.ENDED): _S.CLOSED,
    (_S.PARKING, _I.PARK_DONE): _S.PARKED,
    (_S.PARKING, _I.PARK_FAILED): _S.READY,
    (_S.PARKING, _I.DIED): _S.BROKEN,
    (_S.PARKING, _I.CLOSE_ASKED): _S.DRAINING,
    (_S.DRAINING, _I.PARK_DONE): _S.DRAINING,
    (_S.DRAINING, _I.PARK_FAILED): _S.DRAINING,
    (_S.CLOSED, _I.PARK_DONE): _S.CLOSED,
    (_S.CLOSED, _I.PARK_FAILED): _S.CLOSED,
    (_S.PARKED, _I.DIED): _S.PARKED,  # its state is saved, and it is about to be closed
    (_S.PARKED, _I.WAKE_ASKED): _S.OPENING,
    (_S.PARKED, _I.CLOSE_ASKED): _S.DRAINING,
    (_S.BROKEN, _I.LAST_STEP_ENDED): _S.BROKEN,
    (_S.BROKEN, _I.DIED): _S.BROKEN,
    (_S.BROKEN, _I.WAKE_ASKED): _S.OPENING,
    (_S.BROKEN, _I.CLOSE_ASKED): _S.DRAINING,
    (_S.CLOSED, _I.LAST_STEP_ENDED): _S.CLOSED,
    (_S.CLOSED, _I.DIED): _S.CLOSED,
}

USABLE = frozenset({State.READY, State.RUNNING})
CLOSABLE = frozenset(state for state, what in TRANSITIONS if what is Input.CLOSE_ASKED)


def next_state(state: State, happened: Input) -> State:
    """Return the state of a session after this input."""
    try:
        return TRANSITIONS[state, happened]
    except KeyError:
        raise InternalError(f"a session that is {state} cannot take {happened.name}") from None
