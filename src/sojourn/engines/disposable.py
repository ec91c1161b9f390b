"""Work whose garbage must not stay: done in a child, of which only the result is kept.

What Keras needs to read a file is several times what the model needs, and TensorFlow's allocator
gives none of it back. The end of a process does.
"""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from sojourn import errors
from sojourn.engines import shortage
from sojourn.errors import ModelError, RemoteTraceback, SojournError

Result = tuple[dict[str, Any], Sequence[np.ndarray]]

_is_allowed = False


class _Outcome(msgspec.Struct, frozen=True):
    """The result of a child. Arrays of bytes of these sizes follow it in the file."""

    facts: dict[str, Any] = {}
    sizes: list[int] = []
    error: str = ""
    message: str = ""
    traceback: str = ""


def allow() -> None:
    """This process was forked for one session, and nothing in it minds being forked."""
    global _is_allowed
    _is_allowed = True


def is_possible() -> bool:
    """Whether a child would work: one of a process in which TensorFlow has run would hang."""
    return _is_allowed and len(os.listdir("/proc/self/task")) == threading.active_count()


def do(work: Callable[[], Result], what: str) -> Result:
    """Do the work in a child, wait for it, and raise here what it raised there.

    `what` names the work in the error for a child that dies.
    """
    file = os.memfd_create("sojourn-result", os.MFD_CLOEXEC)
    try:
        pid = _fork()
        if pid == 0:
            _carry_out(work, file)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == shortage.OUT_OF_MEMORY:
            raise shortage.not_enough_for(what)
        if code:
            how = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            )
            raise ModelError(f"{what}: the process that did it {how}")
        return _read(file)
    finally:
        os.close(file)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns of other threads. Those here wait for the client and hold no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _carry_out(work: Callable[[], Result], file: int) -> None:
    try:
        try:
            facts, arrays = work()
            _write(file, _Outcome(facts, [array.nbytes for array in arrays]), arrays)
        except Exception as error:
            error = shortage.explained(error)  # type: ignore[assignment]
            words = "".join(traceback.format_exception(error)).rstrip()
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            _write(file, _Outcome({}, [], type(error).__name__, str(error), words), ())
        os._exit(0)
    except MemoryError:
        os._exit(shortage.OUT_OF_MEMORY)
    finally:
        os._exit(1)


def _write(file: int, outcome: _Outcome, arrays: Sequence[np.ndarray]) -> None:
    head = msgspec.msgpack.encode(outcome)
    parts: list[Any] = [len(head).to_bytes(8, "little"), head, *arrays]
    for part in parts:
        rest = memoryview(part)
        while len(rest):
            rest = rest[os.write(file, rest) :]


def _read(file: int) -> Result:
    whole = np.frombuffer(mmap.mmap(file, 0, prot=mmap.PROT_READ), np.uint8)
    start = 8 + int.from_bytes(whole[:8].tobytes(), "little")
    outcome = msgspec.msgpack.decode(whole[8:start].tobytes(), type=_Outcome)
    if outcome.error:
        kind: Any = getattr(errors, outcome.error, None)
        if not (isinstance(kind, type) and issubclass(kind, SojournError)):
            kind = ModelError
        raise kind(outcome.message) from RemoteTraceback(outcome.traceback)
    ends = np.cumsum([start, *outcome.sizes])
    return outcome.facts, [whole[a:b] for a, b in itertools.pairwise(ends)]
