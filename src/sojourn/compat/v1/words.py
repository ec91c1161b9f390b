"""The errors of a drop-in session that has ended: TensorFlow's own types."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import errors_impl as tf_errors

from sojourn.errors import SessionBroken
from sojourn.process.calls import WorkerDied
from sojourn.session.states import State
from sojourn.session.stay import Stay
from sojourn.session.words import Words
from sojourn.values.places import NOWHERE

CLOSED = "Attempted to use a closed Session."


class WorkerLost(SessionBroken, tf_errors.UnavailableError):  # type: ignore[misc]
    """The worker died. TensorFlow's recoverable sessions recognise the `UnavailableError`."""

    def __init__(self, node_def: Any, op: Any, message: str) -> None:
        tf_errors.UnavailableError.__init__(self, node_def, op, message)


class TensorFlowWords(Words):
    """The errors of a drop-in session."""

    def refused(self, state: State) -> Exception:
        error = super().refused(state)
        if isinstance(error, SessionBroken):
            return WorkerLost(None, None, str(error))
        return closed(self._stay)

    def cut_off(self, consequence: str) -> Exception:
        return tf_errors.CancelledError(None, None, "Session has been closed.")  # type: ignore[no-any-return]

    def broken(self, death: WorkerDied, consequence: str) -> Exception:
        return WorkerLost(None, None, str(super().broken(death, consequence)))


def closed(stay: Stay | None) -> Exception:
    """Return the error that TensorFlow raises after a close, with the line that closed."""
    where = None if stay is None else stay.closed_at
    if where is None or where == NOWHERE:
        return RuntimeError(CLOSED)
    return RuntimeError(f"{CLOSED} It was closed at {where}.")
