"""How errors cross from a worker to its client: as plain records, never as pickles."""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any

import msgspec

from sojourn import errors


class ErrorRecord(msgspec.Struct, frozen=True):
    """What is told of an exception."""

    module: str
    name: str
    message: str
    traceback: str
    code: int | None = None  # TensorFlow's status code
    node: str | None = None  # the name of the op that failed


def record(error: BaseException) -> bytes:
    """Describe an exception in the worker."""
    code = getattr(error, "error_code", None)
    message = getattr(error, "message", None)
    op = getattr(error, "op", None)
    return msgspec.msgpack.encode(
        ErrorRecord(
            type(error).__module__,
            type(error).__name__,
            message if isinstance(message, str) else str(error),
            "".join(traceback.format_exception(error)).rstrip(),
            code if isinstance(code, int) else None,
            op.name if op is not None else None,
        )
    )


def revive(payload: bytes, graph: Any = None) -> BaseException:
    """The exception to raise in the client, with the worker's traceback as its cause."""
    told = msgspec.msgpack.decode(payload, type=ErrorRecord)
    error = _as_own(told) or _as_tensorflow(told, graph) or _as_builtin(told)
    if error is None:
        error = errors.EngineError(f"{told.name}: {told.message}")
    error.__cause__ = errors.RemoteTraceback(told.traceback)
    return error


def _as_own(told: ErrorRecord) -> BaseException | None:
    kind = getattr(errors, told.name, None) if told.module == errors.__name__ else None
    # What the worker says names a class of ours, or nothing.
    is_error = isinstance(kind, type) and issubclass(kind, errors.SojournError)
    return kind(told.message) if is_error else None  # type: ignore[misc]


def _as_builtin(told: ErrorRecord) -> BaseException | None:
    kind = getattr(builtins, told.name, None) if told.module == "builtins" else None
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(told.message)
        except TypeError:  # UnicodeDecodeError and its like want more than a message
            return None
    return None


def _as_tensorflow(told: ErrorRecord, graph: Any) -> BaseException | None:
    if told.code is None:
        return None
    if "tensorflow" not in sys.modules:
        return errors.EngineError(f"{told.name}: {told.message}", code=told.code)
    from sojourn.engines.tensorflow_errors import rebuild

    return rebuild(told.code, told.message, told.node, graph)
