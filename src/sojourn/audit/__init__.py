"""Watches unmodified raw TensorFlow code and reports its leaks, with the lines that caused them.

`watch` records facts, `judge` turns them into findings, `text` and `html` show them; `lint` finds
the same codes in the source. The module can be called: `with sojourn.audit() as found:`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn.audit.block import Audit as Audit
    from sojourn.audit.block import Found as Found
    from sojourn.audit.codes import CODES as CODES
    from sojourn.audit.codes import Code as Code
    from sojourn.audit.finding import Finding as Finding

_HOMES = {
    "Audit": "block",
    "Found": "block",
    "Finding": "finding",
    "CODES": "codes",
    "Code": "codes",
}


def audit() -> Audit:
    """Watch the raw TensorFlow sessions opened in a `with` block.

    The block's value is the findings, which are complete when the block ends.
    """
    from sojourn.audit.block import Audit

    return Audit()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"sojourn.audit.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Callable(ModuleType):
    """Makes `sojourn.audit` both this package and the function, in any order of imports."""

    def __call__(self) -> Audit:
        return audit()


sys.modules[__name__].__class__ = _Callable

__all__ = ["CODES", "Audit", "Code", "Finding", "Found", "audit"]
