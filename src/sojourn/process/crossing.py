"""How errors cross from a worker to its client: as plain records, never as pickles."""

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

# Errors are printed and logged: a model that nobody vouches for fills no disk by them.
_MOST_OF_A_NAME, _MOST_OF_A_TEXT = 1_000, 20_000

# What decoding may raise of bytes that come from a worker: msgspec passes two of Python's own on.
NONSENSE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ErrorRecord(msgspec.Struct, frozen=True):
    """What is told of an exception."""

    module: str
    name: str
    message: str
    traceback: str
    code: int | None = None  # a framework's status code
    node: str | None = None  # the name of the op that failed


def record(error: BaseException) -> bytes:
    """Describe an exception in the worker, whatever it is: somebody waits for this answer."""
    try:
        return _encoded(error)
    except Exception as worse:  # code of the user's, or no memory for a long text
        kind = type(error)
        text = f"(its text cannot be told: {type(worse).__name__})"
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
    except Exception as worse:  # code of the user's, which must not take the worker down
        return f"(its text cannot be told: {worse!r})"


def _name(name: object) -> str:
    return sendable(str(name)[:_MOST_OF_A_NAME])


def revive(payload: bytes, graph: Any = None, *, trusted: bool = True) -> BaseException:
    """The exception to raise in the client, with the worker's traceback as its cause.

    Of a worker that is not trusted, its words are made plain. Raises one of NONSENSE if it is no
    record.
    """
    told = msgspec.msgpack.decode(payload, type=ErrorRecord)
    if not trusted:
        told = msgspec.structs.replace(
            told,
            name=plain(told.name, _MOST_OF_A_NAME),
            message=plain(told.message, _MOST_OF_A_TEXT),
            traceback=plain(told.traceback, _MOST_OF_A_TEXT),
            node=None if told.node is None else plain(told.node, _MOST_OF_A_NAME),
        )
    error = _as_own(told, graph) or _as_frameworks(told, graph) or _as_builtin(told)
    if error is None:
        error = errors.EngineError(f"{told.name}: {told.message}")
    error.__cause__ = errors.RemoteTraceback(with_cells(told.traceback))
    return error


def _as_own(told: ErrorRecord, graph: Any) -> BaseException | None:
    kind = getattr(errors, told.name, None) if told.module == errors.__name__ else None
    # What the worker says names a class of ours, or nothing.
    is_error = isinstance(kind, type) and issubclass(kind, errors.SojournError)
    if kind is errors.BudgetExceeded and told.code is not None:
        frameworks = hooks.limit_reached(told.message, told.node, graph)
        if frameworks is not None:
            return frameworks
    return kind(told.message) if is_error else None  # type: ignore[misc]


def _as_builtin(told: ErrorRecord) -> BaseException | None:
    kind = getattr(builtins, told.name, None) if told.module == "builtins" else None
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(told.message)
        except TypeError:  # UnicodeDecodeError and its like want more than a message
            return None
    return None


def _as_frameworks(told: ErrorRecord, graph: Any) -> BaseException | None:
    if told.code is None:
        return None
    error = hooks.revive(told.code, told.message, told.node, graph)
    return error or errors.EngineError(f"{told.name}: {told.message}", code=told.code)
