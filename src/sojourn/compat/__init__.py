"""Support for existing TensorFlow code: the drop-in session, and old programs run unmodified.

`sojourn.compat.v1` imports TensorFlow, and is itself imported only on first access.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "v1":
        return importlib.import_module("sojourn.compat.v1")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
