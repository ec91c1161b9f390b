"""All errors that sojourn raises. The type says who must act; the message says what to do.

Errors of TensorFlow itself are not here: they are raised as their own `tf.errors` type.
"""

from __future__ import annotations


class SojournError(Exception):
    """The base class of every error that sojourn raises."""


class SessionClosed(SojournError, RuntimeError):
    """The session has been closed. The message names the line that closed it."""


class SessionBroken(SojournError):
    """The worker died. The message says how, with its last words; its memory is already freed.

    A step that was under way when it died has an unknown outcome and is never retried.
    """


class SessionBusy(SojournError):
    """Another caller is using the session in a way that excludes you."""


class StepTimeout(SojournError, TimeoutError):
    """The step did not answer within the timeout that you gave. Its outcome is unknown."""


class LeaseExpired(SojournError):
    """Your lease has ended. The message names the owner's line that ended it."""


class PoolTimeout(SojournError, TimeoutError):
    """No session became free within the timeout that you gave."""


class BudgetExceeded(SojournError, MemoryError):
    """A request does not fit into a pool's budget, or into the `memory=` of a session or function.

    The message has the numbers. If the session could refuse the request, it stays usable.
    """


class OutOfMemory(BudgetExceeded, SessionBroken):
    """The worker reached its `memory=` where it could not refuse, and ended. Its memory is free."""


class DeadlockDetected(SojournError):
    """You would wait for a holder that waits for you. The message names the whole cycle."""


class ModelError(SojournError):
    """The model cannot be loaded. The message says why; the worker is gone."""


class InputError(SojournError, ValueError):
    """An input or output name, dtype or shape is wrong.

    The message says what was expected and what was given.
    """


class CodeChanged(SojournError):
    """The file of a module has changed since you imported it. Reload the module or restart."""


class EngineError(SojournError):
    """The framework or your code raised in the worker, and its own type is not available here.

    `code` is TensorFlow's status code if the error was one of TensorFlow's; import TensorFlow in
    this process to get the `tf.errors` type instead.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class CheckpointError(SojournError):
    """State cannot be saved or restored. The session and its older state are unharmed."""


class ResultsError(SojournError):
    """A results file cannot be used. The message says why; the file is unchanged."""


class DeviceError(SojournError):
    """The device you asked for does not exist. The message says what was found."""


class SandboxError(SojournError):
    """A protection you asked for cannot be applied here."""


class PlatformError(SojournError):
    """This system lacks what process isolation needs."""


class InternalError(SojournError):
    """A bug in sojourn. Please report it with the message."""


class RemoteTraceback(Exception):
    """The traceback of an error in the worker, attached as `__cause__` of the error you caught."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\nin the worker:\n{self.text}"


__all__ = [
    "BudgetExceeded",
    "CheckpointError",
    "CodeChanged",
    "DeadlockDetected",
    "DeviceError",
    "EngineError",
    "InputError",
    "InternalError",
    "LeaseExpired",
    "ModelError",
    "OutOfMemory",
    "PlatformError",
    "PoolTimeout",
    "RemoteTraceback",
    "ResultsError",
    "SandboxError",
    "SessionBroken",
    "SessionBusy",
    "SessionClosed",
    "SojournError",
    "StepTimeout",
]
