"""Names for the C handles that TensorFlow passes down. A worker looks them up in its graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow.python.client import pywrap_tf_session as c_api


def tensor_names(outputs: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of C outputs, such as `"x:0"`."""
    return tuple(f"{c_api.TF_OperationName(o.oper)}:{o.index}" for o in outputs)


def operation_names(operations: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of C operations."""
    return tuple(c_api.TF_OperationName(operation) for operation in operations)
