"""Errors on their way from a worker to its client: as plain records, never as pickles."""

from __future__ import annotations

import builtins
import traceback
from typing import Any

import msgspec

from sojourn import errors
from sojourn.engines import hooks
from sojourn.process.plain import plain
from sojourn.values.places import with_cells
from sojourn.values.texts import sendable

# In characters. Errors are printed and logged: an untrusted model must not fill the disk.
_MOST_OF_A_NAME, _MOST_OF_A_TEXT = 1_000, 20_000

# All that decoding a worker's bytes may raise: msgspec lets two of Python's own errors through.
NONSENSE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ErrorRecord(msgspec.Struct, frozen=True):
    """An exception in the form in which it is sent to the client."""

    module: str
    name: str
    message: str
    traceback: str
    code: int | None = None  # a framework's status code
    node: str | None = None  # the name of the op that failed


def record(error: BaseException) -> bytes:
    """Encode an exception in the worker. Never fails, because a caller waits for this answer."""
    try:
        return _encoded(error)
    except Exception as worse:  # the user's own code raised, or no memory for a long text
        kind = type(error)
        text = f"(its text cannot be shown: {type(worse).__name__})"
        return msgspec.msgpack.encode(
            ErrorRecord(_name(kind.__module__), _name(kind.__name__), text, text)
        )


def _encoded(error: BaseException) -> bytes:
    code = getattr(error, "error_code", None)
    message = getattr(error, "message", None)
    node = getattr(getattr(error, "op", None), "name", None)
    return msgspec.msgpack.encode(
        ErrorRecord(
            _name(type(error).__module__),
            _name(type(error).__name__),
            sendable(message if isinstance(message, str) else _text_of(error)),
            sendable("".join(traceback.format_exception(error)).rstrip()),
            code if isinstance(code, int) else None,
            _name(node) if isinstance(node, str) else None,
        )
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:  # the user's `__str__` raised; it must not end the worker
        return f"(its text cannot be shown: {worse!r})"


def _name(name: object) -> str:
    return sendable(str(name)[:_MOST_OF_A_NAME])


def revive(payload: bytes, graph: Any = None, *, trusted: bool = True) -> BaseException:
    """Return the exception to raise in the client, with the worker's traceback as its cause.

    Texts of an untrusted worker are made plain. Raises one of NONSENSE if the payload is not a
    record.
    """
    failure = msgspec.msgpack.decode(payload, type=ErrorRecord)
    if not trusted:
        failure = msgspec.structs.replace(
            failure,
            name=plain(failure.name, _MOST_OF_A_NAME),
            message=plain(failure.message, _MOST_OF_A_TEXT),
            traceback=plain(failure.traceback, _MOST_OF_A_TEXT),
            node=None if failure.node is None else plain(failure.node, _MOST_OF_A_NAME),
        )
    error = _as_own(failure, graph) or _as_frameworks(failure, graph) or _as_builtin(failure)
    if error is None:
        error = errors.EngineError(f"{failure.name}: {failure.message}")
    error.__cause__ = errors.RemoteTraceback(with_cells(failure.traceback))
    return error


def _as_own(failure: ErrorRecord, graph: Any) -> BaseException | None:
    kind = getattr(errors, failure.name, None) if failure.module == errors.__name__ else None
    # The name that the worker sent may be anything: accept our own error classes only.
    is_error = isinstance(kind, type) and issubclass(kind, errors.SojournError)
    if kind is errors.BudgetExceeded and failure.code is not None:
        frameworks = hooks.limit_reached(failure.message, failure.node, graph)
        if frameworks is not None:
            return frameworks
    return kind(failure.message) if is_error else None  # type: ignore[misc]


def _as_builtin(failure: ErrorRecord) -> BaseException | None:
    kind = getattr(builtins, failure.name, None) if failure.module == "builtins" else None
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(failure.message)
        except TypeError:  # UnicodeDecodeError and the like need more than a message
            return None
    return None


def _as_frameworks(failure: ErrorRecord, graph: Any) -> BaseException | None:
    if failure.code is None:
        return None
    error = hooks.revive(failure.code, failure.message, failure.node, graph)
    return error or errors.EngineError(f"{failure.name}: {failure.message}", code=failure.code)
