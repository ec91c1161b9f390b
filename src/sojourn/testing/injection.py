"""Failure injection: fail the Nth call of some functions, or raise at the Nth possible interrupt.

Repeated with N = 1, 2, ... until nothing fails any more, this covers every path.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import sojourn

INJECTED = "raised on purpose"
_HERE = os.path.dirname(sojourn.__file__) + os.sep


class Refusals:
    """Counts calls of some functions, and makes one of them fail. Use it in a `with` block."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self._error = error
        self._left = 0
        self._real: list[tuple[Any, str, Any]] = []
        self.has_failed = False

    def __enter__(self) -> Refusals:
        return self

    def __exit__(self, *raised: object) -> None:
        while self._real:
            setattr(*self._real.pop())

    def at(self, n: int) -> None:
        """Make the Nth call from now on fail, and no other."""
        self._left, self.has_failed = n, False

    def stop(self) -> None:
        """Make no call fail from now on."""
        self._left = 0

    def count(self) -> None:
        """Count a call; raise the error if this is the call to fail."""
        self._left -= 1
        if self._left == 0:
            self.has_failed = True
            raise self._error()

    def cover(self, owner: Any, name: str) -> None:
        """Count the calls of this function too."""
        real = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count()
            return real(*args, **kwargs)

        self._real.append((owner, name, real))
        setattr(owner, name, counted)


@contextlib.contextmanager
def interrupted(n: int, error: type[BaseException] = KeyboardInterrupt) -> Iterator[list[str]]:
    """Raise at the Nth point where the interpreter could answer a signal in sojourn's own code.

    CPython checks for signals when it enters a function and when a call of C code returns; here
    that means where a function of sojourn begins, and where a C function that it called returns.
    The list has the point where the error was raised; it is empty if there were fewer points. With
    N = 0 nothing is raised and the list has all points. An error in a finalizer is only printed by
    Python; there it is recognised by its text, INJECTED.
    """
    where: list[str] = []
    left = n
    me = threading.get_ident()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        code = frame.f_code
        if event not in ("call", "c_return") or not code.co_filename.startswith(_HERE):
            return
        if code.co_name.startswith("<") or _is_spared(code) or _is_out_of_reach(frame):
            return
        if threading.get_ident() != me:
            return
        if event == "c_return" and _hands_over_a_descriptor(argument):
            return
        left -= 1
        if left == 0 or n == 0:
            what = f" after {argument.__name__}" if event == "c_return" else ""
            where.append(f"{code.co_filename}:{frame.f_lineno} {code.co_name}{what}")
        if left == 0:
            sys.setprofile(None)
            raise error(INJECTED)

    sys.setprofile(profile)
    try:
        yield where
    finally:
        sys.setprofile(None)


# Functions that hold descriptors as plain numbers: an interrupt in the few microseconds after one
# has arrived loses its number, and the descriptor stays open until the process ends.
_SPARED = {
    os.path.join(_HERE, "transport", "frames.py"): "receive_fds receive".split(),
    os.path.join(_HERE, "process", "zygote.py"): "ask _ask fork".split(),
    os.path.join(_HERE, "process", "zygote_process.py"): ["_close_all"],
}


def _is_spared(code: CodeType) -> bool:
    return code.co_name in _SPARED.get(code.co_filename, ())


def _is_out_of_reach(frame: FrameType | None) -> bool:
    # A transition cannot be reported if the report itself is interrupted, and Python only prints
    # an interrupt in a finalizer.
    while frame is not None and frame.f_code.co_name not in ("announce", "_to", "emit", "__del__"):
        frame = frame.f_back
    return frame is not None


def _hands_over_a_descriptor(function: Any) -> bool:
    # Between the system call and the assignment no code could close the descriptor.
    return getattr(function, "__name__", "") in (
        "memfd_create eventfd open pidfd_open dup recvmsg acquire __enter__".split()
    )
