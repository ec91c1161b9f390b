"""Do work that leaves garbage in memory in a child process, and keep only its result.

To read a file, Keras needs several times the model's memory, and TensorFlow's allocator returns
none of it to the system. The end of a process returns all of it.
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
    """The result of a child, followed in the file by byte arrays of these sizes."""

    facts: dict[str, Any] = {}
    sizes: list[int] = []
    error: str = ""
    message: str = ""
    traceback: str = ""


def allow() -> None:
    """Allow child processes: this process serves one session, and forking it is safe."""
    global _is_allowed
    _is_allowed = True


def is_possible() -> bool:
    """Whether a child would work. A fork of a process in which TensorFlow has run would hang."""
    return _is_allowed and len(os.listdir("/proc/self/task")) == threading.active_count()


def do(work: Callable[[], Result], what: str) -> Result:
    """Do the work in a child, wait for it, and raise its error here.

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
        # Python warns about other threads. A worker's other threads wait for the client and hold
        # no lock.
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
