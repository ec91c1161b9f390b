"""Report that a worker's memory is used up: always the same error, whatever allocation failed.

Frameworks report a failed allocation in many ways, and often as the cause of another error. In a
worker without a limit, this module changes nothing.
"""

from __future__ import annotations

import ctypes
import math
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sojourn.errors import BudgetExceeded
from sojourn.values.amounts import format_bytes, parse_bytes

_PHRASES = re.compile(
    r"OOM when|bad_alloc|[Uu]nable to allocate|[Cc]annot allocate|[Cc]ould not allocate|"
    r"[Ff]ailed to allocate|[Oo]ut of memory|Cannot parse tensor from proto|"
    r"can't start new thread|pthread_create|Failed to serialize proto"
)
_NUMPYS_WORDS = re.compile(r"Unable to allocate ([\d.]+?)\.? ((?:[KMGT]i)?[Bb])(?:ytes)?\b")
_TENSORFLOWS_WORDS = re.compile(r"OOM when allocating tensor with shape\[([\d,]*)\] and type (\w+)")
_ITEM_BYTES = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "bool": 1}
# Feeds with fewer bytes are not checked: they fit into the memory that is reserved anyway.
_LARGE_FEED = 2**20

# The exit status of a process that could not go on because its memory was used up.
OUT_OF_MEMORY = 77
# The exit status of a worker that cannot go on for another reason.
CANNOT_GO_ON = 71
# For the message about a process that could not report how much memory it held.
HELD_THE_LIMIT = "held nearly that much and asked for more"
# The smallest limit of a worker: with less, TensorFlow cannot run anything.
LEAST_BYTES = 64 * 2**20

_MOST_CAUSES = 64  # causes of one error that are followed, because they might form a cycle

_limit_bytes: int | None = None
_start_bytes = _stack_bytes = 0


def note_limit(limit_bytes: int, start_bytes: int, stack_bytes: int) -> None:
    """Note this process's limit, which excludes its memory at the start and its threads' stacks.

    `stack_bytes` is the stack of a thread that Python did not start.
    """
    global _limit_bytes, _start_bytes, _stack_bytes
    _limit_bytes, _start_bytes, _stack_bytes = limit_bytes, start_bytes, stack_bytes


def was_reached(limit_bytes: int) -> str:
    """Return the words that every error about a memory limit contains."""
    words = f"memory='{format_bytes(limit_bytes).replace(' ', '')}' was reached"
    least = f" (every worker has {format_bytes(LEAST_BYTES)})"
    return words if limit_bytes >= LEAST_BYTES else words + least


def mentions_shortage(words: str) -> bool:
    """Whether the last output of a process mentions a failed allocation."""
    return _PHRASES.search(words) is not None


def is_shortage(error: BaseException) -> bool:
    """Whether the memory limit of this process caused the error, directly or not."""
    return _limit_bytes is not None and any(map(_speaks_of_memory, _chain(error)))


def relieve(error: BaseException | None) -> None:
    """Release the memory of the failed work by clearing the frames in the error's tracebacks.

    Allocates next to nothing, because no memory may be left.
    """
    if _limit_bytes is None:
        return
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        entry = error.__traceback__
        while entry is not None:
            try:
                entry.tb_frame.clear()
            except RuntimeError:
                pass  # the frame is still running
            entry = entry.tb_next
        error = error.__context__


def exit_status(error: BaseException) -> int:
    """Return the exit status of a process that cannot report this error."""
    try:
        is_short = is_shortage(error)
    except MemoryError:
        is_short = _limit_bytes is not None
    return OUT_OF_MEMORY if is_short else CANNOT_GO_ON


def explained(error: BaseException) -> BaseException:
    """Return the error to report: BudgetExceeded with amounts if the limit caused it, or itself."""
    if _limit_bytes is None or isinstance(error, BudgetExceeded) or not is_shortage(error):
        return error
    root = next(found for found in _chain(error) if _speaks_of_memory(found))
    words = _first_line(root)
    exceeded = BudgetExceeded(
        f"{was_reached(_limit_bytes)}: the worker {_numbers(_limit_bytes, _held(), _asked(words))}"
        + (f" ({words})" if words else "")
    )
    exceeded.__cause__ = error
    if hasattr(root, "error_code"):  # so that the caller gets TensorFlow's own type as well
        exceeded.__dict__.update(error_code=_RESOURCE_EXHAUSTED, op=getattr(root, "op", None))
    return exceeded


def not_enough_for(what: str) -> BudgetExceeded:
    """Return the error for work in another process that could not report what it held."""
    return BudgetExceeded(f"{was_reached(_limit_bytes or 0)}: {what} {HELD_THE_LIMIT}")


def require(wanted_bytes: int) -> None:
    """Raise MemoryError unless this much can be allocated now, before code that would crash."""
    if _limit_bytes is None or wanted_bytes < _LARGE_FEED:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    place = libc.malloc(ctypes.c_size_t(wanted_bytes))
    if not place:
        raise MemoryError(f"Unable to allocate {format_bytes(wanted_bytes)} for what is fed")
    libc.free(ctypes.c_void_p(place))


def guarded(plan: Any) -> Any:
    """Return the plan, guarded against feeds that do not fit: TensorFlow copies them unchecked."""
    return plan if _limit_bytes is None else _GuardedPlan(plan)


class _GuardedPlan:
    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def run(self, arrays: Sequence[np.ndarray]) -> Any:
        require(sum(array.nbytes for array in arrays))
        return self._plan.run(arrays)


_RESOURCE_EXHAUSTED = 8  # TensorFlow's status code


def _numbers(limit_bytes: int, held: int | None, asked: int | None) -> str:
    """Describe the memory held and requested, as far as known.

    The memory that the failed work held may be freed by now. Then it was at least the limit minus
    the requested amount, or the request would have succeeded.
    """
    amount = "an unknown amount" if held is None else format_bytes(held)
    if asked is None:
        return f"held {amount} afterwards, and had asked for more than was left"
    then = max(limit_bytes, LEAST_BYTES) - asked
    if held is not None and held < then:
        amount = f"{format_bytes(then)} or more"
    return f"held {amount} and asked for {format_bytes(asked)} more"


def _held() -> int | None:
    """Return the bytes that count against the limit now; None if unknown."""
    try:
        with open("/proc/self/status") as status:
            numbers = dict(line.split(":", 1) for line in status)
    except OSError:
        return None  # a sandbox may deny access to /proc
    lanes = threading.active_count() - 1  # the main thread had its stack at the start
    others = int(numbers["Threads"]) - 1 - lanes
    stacks = lanes * threading.stack_size() + others * _stack_bytes
    return max(0, int(numbers["VmData"].split()[0]) * 1024 - _start_bytes - stacks)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, the latest first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _speaks_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, SystemError) and "without" in _text(error):
        return True  # "error return without exception set": no memory was left for a MemoryError
    # TensorFlow reports a full disk as "resource exhausted" too.
    return not isinstance(error, OSError) and mentions_shortage(_text(error))


def _text(error: BaseException) -> str:
    message = getattr(error, "message", None)
    try:
        return message if isinstance(message, str) else str(error)
    except Exception:
        return ""  # `__str__` may be the user's code


def _first_line(error: BaseException) -> str:
    """Return the line that mentions memory; TensorFlow's first line says where it happened."""
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    return next(filter(mentions_shortage, lines), lines[0] if lines else "")


def _asked(words: str) -> int | None:
    if found := _NUMPYS_WORDS.search(words):
        return parse_bytes(found[1] + found[2])  # the pattern drops the point of "128. MiB"
    if found := _TENSORFLOWS_WORDS.search(words):
        bits = re.search(r"\d+$", found[2])
        size = _ITEM_BYTES.get(found[2]) or (int(bits[0]) // 8 if bits else 0)
        if size:
            return size * math.prod(int(n) for n in found[1].split(",") if n)
    return None
