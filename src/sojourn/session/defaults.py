"""The default session of a context: a `with` block, a thread, an asyncio task.

It is never process-wide, so one module's default is never another's by accident: a thread starts
without one, a task starts with the one it was created under, and nested blocks restore it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sojourn.session.session import Usable

_current: ContextVar[Usable | None] = ContextVar("sojourn_current", default=None)


def current() -> Usable | None:
    """Return the default session of this context, or None."""
    return _current.get()


@contextmanager
def as_default(session: Usable) -> Iterator[Usable]:
    """Make the session the default inside the block. Leaving the block does not close it."""
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)
