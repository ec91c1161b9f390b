"""How a request fails, defined once for all protocols."""

from __future__ import annotations

import contextlib
import enum
import errno
from collections.abc import Iterator

from sojourn import errors
from sojourn.process.calls import LAST_WORDS


class Status(enum.Enum):
    """A kind of failure, with its status code in gRPC and in HTTP."""

    CANCELLED = 1, 499
    INVALID_ARGUMENT = 3, 400
    DEADLINE_EXCEEDED = 4, 504
    NOT_FOUND = 5, 404
    ALREADY_EXISTS = 6, 409
    PERMISSION_DENIED = 7, 403
    RESOURCE_EXHAUSTED = 8, 429
    FAILED_PRECONDITION = 9, 400
    ABORTED = 10, 409
    OUT_OF_RANGE = 11, 400
    UNIMPLEMENTED = 12, 501
    INTERNAL = 13, 500
    UNAVAILABLE = 14, 503
    UNAUTHENTICATED = 16, 401

    @property
    def grpc(self) -> int:
        return self.value[0]

    @property
    def http(self) -> int:
        return self.value[1]


class Refused(errors.SojournError):
    """The refusal of a request, sent as its answer. The message is for the client to read."""

    def __init__(self, status: Status, message: str, retry_after: float | None = None) -> None:
        # A path or a model's message may contain any bytes; what is not valid text cannot be sent.
        super().__init__(message.encode(errors="replace").decode())
        self.status = status
        self.retry_after = retry_after  # seconds, if a retry makes sense


def invalid(message: str) -> Refused:
    """Return the refusal of a request whose content cannot be used."""
    return Refused(Status.INVALID_ARGUMENT, message)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Raise every error in the block as Refused."""
    try:
        yield
    except Refused:
        raise  # unchanged: an error that is its own cause would live until garbage collection
    except Exception as error:
        raise refusal(error) from error


def refusal(error: BaseException) -> Refused:
    """Return what a client is told of this error: its message if that is meant for users, else only
    that an error occurred."""
    if isinstance(error, Refused):
        return error
    for kind, status, retry_after in _STATUSES:
        if isinstance(error, kind):
            return Refused(status, _without_last_words(error), retry_after)
    if isinstance(error, OSError) and error.errno in _SHORTAGES:
        return Refused(Status.UNAVAILABLE, f"the server has run short: {error.strerror}", 1.0)
    # The model itself raised it: an EngineError, or TensorFlow's own type if TensorFlow runs here.
    if isinstance(error, errors.EngineError):
        return Refused(_OF_MODELS.get(error.code or 0, Status.INVALID_ARGUMENT), str(error))
    code = getattr(error, "error_code", None)
    if type(code) is int:
        message = str(getattr(error, "message", None) or error)
        return Refused(_OF_MODELS.get(code, Status.INVALID_ARGUMENT), message)
    if isinstance(error, errors.SojournError) and not isinstance(error, errors.InternalError):
        # Not caused by the request.
        return Refused(Status.UNAVAILABLE, str(error).partition("\n")[0], 1.0)
    unexpected = Refused(Status.INTERNAL, "an unexpected error; the server's log has it")
    unexpected.__cause__ = error  # for the caller, which logs the cause
    return unexpected


def _without_last_words(error: BaseException) -> str:
    """Return the message without the worker's last output, which may be anything, even a traceback:
    it is for the log, not for clients."""
    return str(error).partition(LAST_WORDS)[0]


_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
# The first match counts, so subclasses come before their base classes.
_STATUSES: tuple[tuple[type[BaseException], Status, float | None], ...] = (
    (errors.InputError, Status.INVALID_ARGUMENT, None),
    (errors.StepTimeout, Status.DEADLINE_EXCEEDED, None),
    (errors.PoolTimeout, Status.DEADLINE_EXCEEDED, None),
    (errors.OutOfMemory, Status.RESOURCE_EXHAUSTED, None),
    (errors.BudgetExceeded, Status.RESOURCE_EXHAUSTED, 1.0),
    (errors.SessionBroken, Status.UNAVAILABLE, 1.0),
    (errors.LeaseExpired, Status.UNAVAILABLE, 1.0),
    (errors.SessionClosed, Status.UNAVAILABLE, 1.0),
    (errors.SessionBusy, Status.UNAVAILABLE, 1.0),
    (errors.PlatformError, Status.UNAVAILABLE, 1.0),  # no thread or process could be started
    (errors.ModelError, Status.FAILED_PRECONDITION, None),
    (errors.SandboxError, Status.FAILED_PRECONDITION, None),
    (errors.DeviceError, Status.FAILED_PRECONDITION, None),
)
# TensorFlow's status codes, which are gRPC's. NOT_FOUND is missing on purpose: what a step does not
# find is not a path of this server.
_OF_MODELS = {
    status.grpc: status
    for status in (
        Status.RESOURCE_EXHAUSTED,
        Status.FAILED_PRECONDITION,
        Status.OUT_OF_RANGE,
        Status.UNIMPLEMENTED,
        Status.INTERNAL,
    )
}
