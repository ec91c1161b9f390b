"""The errors that a session raises when it cannot be used.

The drop-in has a subclass that raises them in TensorFlow's words.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sojourn.errors import SessionBroken, SessionClosed, StepTimeout
from sojourn.process.calls import WorkerDied
from sojourn.session.states import State

if TYPE_CHECKING:
    from sojourn.session.stay import Stay


class Words:
    """The errors of one stay."""

    def __init__(self, stay: Stay) -> None:
        self._stay = stay

    @property
    def _name(self) -> str:
        return f"session {self._stay.name!r}"

    def refused(self, state: State) -> Exception:
        """The session takes no steps in this state."""
        stay = self._stay
        if stay.is_foreign:
            return SessionClosed(
                f"{self._name} belongs to process {stay.maker}, and this is a fork of it "
                f"(process {os.getpid()}); open one session per process"
            )
        if state is State.BROKEN:
            return SessionBroken(
                f"{self._name}: the worker {stay.how_it_died}; close it and open another"
            )
        if state in (State.CLOSED, State.DRAINING):
            return SessionClosed(f"{self._name} was closed at {stay.closed_at}")
        return SessionClosed(f"{self._name} is {state} and takes no steps")

    def excluded(self) -> Exception:
        """Another caller had exclusive use of the session until the deadline."""
        return StepTimeout(f"{self._name} was in exclusive use; this step has not begun")

    def late(self, timeout: float | None, what: str | None, outcome: str) -> Exception:
        """No answer was received by the deadline."""
        if what is not None:
            return StepTimeout(f"{self._name} did not finish {what!r} within {timeout:g} s")
        return StepTimeout(f"{self._name} did not answer within {timeout:g} s; {outcome}")

    def not_replaced(self) -> Exception:
        """The worker has died, and no replacement was ready by the deadline."""
        return StepTimeout(
            f"{self._name}: the worker {self._stay.how_it_died}; another was not ready in the time "
            "this step had, so it has not begun"
        )

    def cut_off(self, consequence: str) -> Exception:
        """The session was closed during the call."""
        return SessionClosed(
            f"{self._name} was closed at {self._stay.closed_at} while {consequence}"
        )

    def broken(self, death: WorkerDied, consequence: str) -> Exception:
        """The worker has died."""
        return death.kind(f"{self._name}: the worker {death.describe(f'; {consequence}')}")


def in_a_line(error: BaseException) -> str:
    """The error's type and the first line of its message."""
    try:
        words = str(error)
    except Exception:  # `__str__` may be the user's code
        words = ""
    return f"{type(error).__name__}: {words}".splitlines()[0].rstrip(": ")
