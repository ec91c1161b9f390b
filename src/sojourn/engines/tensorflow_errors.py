"""TensorFlow's own errors, rebuilt where TensorFlow is loaded."""

from __future__ import annotations

from typing import Any


def rebuild(code: int, message: str, node: str | None, graph: Any = None) -> BaseException:
    """The `tf.errors` exception with this status code; its op is looked up in `graph` if given."""
    from tensorflow.python.framework import errors_impl

    op = node_def = None
    if node is not None and graph is not None:
        try:
            op = graph.get_operation_by_name(node)
            node_def = op.node_def
        except (KeyError, ValueError):
            pass  # made by TensorFlow while it optimised
    try:
        kind = errors_impl.exception_type_from_error_code(code)
    except KeyError:
        return errors_impl.UnknownError(node_def, op, message, code)  # type: ignore[no-any-return]
    return kind(node_def, op, message)  # type: ignore[no-any-return]
