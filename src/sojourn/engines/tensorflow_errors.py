"""Rebuild TensorFlow's own errors in a process where TensorFlow is loaded."""

from __future__ import annotations

from functools import cache
from typing import Any

from sojourn.errors import BudgetExceeded


def rebuild(code: int, message: str, node: str | None, graph: Any = None) -> BaseException:
    """Return the `tf.errors` exception for a status code, with its op from `graph` if given."""
    from tensorflow.python.framework import errors_impl

    node_def, op = _found(node, graph)
    try:
        kind = errors_impl.exception_type_from_error_code(code)
    except KeyError:
        return errors_impl.UnknownError(node_def, op, message, code)  # type: ignore[no-any-return]
    return kind(node_def, op, message)  # type: ignore[no-any-return]


def limit_reached(message: str, node: str | None, graph: Any) -> BaseException:
    """Return the error for sojourn's memory limit, as a type that TensorFlow programs know."""
    return _both_types()(*_found(node, graph), message)  # type: ignore[no-any-return]


@cache
def _both_types() -> Any:
    from tensorflow.python.framework import errors_impl

    class MemoryLimitReached(BudgetExceeded, errors_impl.ResourceExhaustedError):  # type: ignore[misc]
        """An error that can be caught as BudgetExceeded and as TensorFlow's own error."""

        def __init__(self, node_def: Any, op: Any, message: str) -> None:
            errors_impl.ResourceExhaustedError.__init__(self, node_def, op, message)

    return MemoryLimitReached


def _found(node: str | None, graph: Any) -> tuple[Any, Any]:
    """Return the definition of an op and the op itself, if the graph has it."""
    if node is None or graph is None:
        return None, None
    try:
        op = graph.get_operation_by_name(node)
    except (KeyError, ValueError):
        return None, None  # TensorFlow's optimiser added the op
    return op.node_def, op
