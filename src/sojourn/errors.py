"""Everything sojourn raises. The type says whose move it is; the message says what to do.

Errors of TensorFlow itself are not here: they arrive as their own `tf.errors` type.
"""

from __future__ import annotations


class SojournError(Exception):
    """The root of every error that sojourn raises."""


class SessionClosed(SojournError, RuntimeError):
    """You closed it. The message names the line that did."""


class SessionBroken(SojournError):
    """The worker died. The message says how, with its last words; its memory is already back.

    A step that was under way when it died has an unknown outcome and is never retried.
    """


class SessionBusy(SojournError):
    """Another caller is using it in a way that excludes you."""


class StepTimeout(SojournError, TimeoutError):
    """The step did not answer in the time you gave it. Its outcome is unknown."""


class LeaseExpired(SojournError):
    """Your lease has ended. The message names the line of the owner that ended it."""


class PoolTimeout(SojournError, TimeoutError):
    """No session became free in the time you gave."""


class BudgetExceeded(SojournError, MemoryError):
    """It does not fit: into a pool's budget, or into the `memory=` of a session or function.

    The message has the numbers. Where a session could refuse, it stays usable.
    """


class OutOfMemory(BudgetExceeded, SessionBroken):
    """The worker reached its `memory=` where it could not refuse, and ended; its memory is back."""


class DeadlockDetected(SojournError):
    """You would wait for a holder that waits for you. The message names the whole cycle."""


class ModelError(SojournError):
    """The model cannot be loaded. The message says why; the worker is gone."""


class InputError(SojournError, ValueError):
    """An input or output name, dtype or shape is wrong: what was expected, and what came."""


class CodeChanged(SojournError):
    """The file of a module has changed since you imported it. Reload the module or restart."""


class EngineError(SojournError):
    """The framework or your code raised in the worker, and its own type is not at hand here.

    `code` is TensorFlow's status code where it was one of TensorFlow's; import TensorFlow in this
    process to get the `tf.errors` type instead.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class CheckpointError(SojournError):
    """State cannot be saved or restored. The session and its older state are unharmed."""


class ResultsError(SojournError):
    """A file of results cannot be used. The message says why; the file is as it was."""


class DeviceError(SojournError):
    """The device you asked for is not there. The message says what was found."""


class SandboxError(SojournError):
    """A protection you asked for cannot be applied here."""


class PlatformError(SojournError):
    """This system lacks what process isolation needs."""


class InternalError(SojournError):
    """A bug in sojourn. Please report it with the message."""


class RemoteTraceback(Exception):
    """The traceback of an error in the worker, attached as `__cause__` of what you caught."""

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
