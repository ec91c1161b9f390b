"""What a worker says when its memory is used up: one error, whatever it was that failed.

Frameworks tell a failed allocation in many ways, and often as the cause of something else. In a
worker without a limit nothing here changes anything.
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
# What is fed and smaller than this fits into what is kept for other things.
_LARGE_FEED = 2**20

# The exit status of a process that could not go on for lack of memory.
OUT_OF_MEMORY = 77
# That of a worker that cannot go on for another reason.
CANNOT_GO_ON = 71
# Of a process that could not tell its numbers.
HELD_THE_LIMIT = "held nearly that much and asked for more"
# The least that a worker gets: with less, TensorFlow cannot run anything.
LEAST_BYTES = 64 * 2**20

_MOST_CAUSES = 64  # of an error; they might go in a circle

_limit_bytes: int | None = None
_start_bytes = _stack_bytes = 0


def note_limit(limit_bytes: int, start_bytes: int, stack_bytes: int) -> None:
    """This process may have no more than this, beyond what it had at the start and the stacks of
    its threads; `stack_bytes` is what one has that is not Python's."""
    global _limit_bytes, _start_bytes, _stack_bytes
    _limit_bytes, _start_bytes, _stack_bytes = limit_bytes, start_bytes, stack_bytes


def was_reached(limit_bytes: int) -> str:
    """The words that every such error has."""
    words = f"memory='{format_bytes(limit_bytes).replace(' ', '')}' was reached"
    least = f" (every worker has {format_bytes(LEAST_BYTES)})"
    return words if limit_bytes >= LEAST_BYTES else words + least


def mentions_shortage(words: str) -> bool:
    """Whether the last words of a process speak of memory that it did not get."""
    return _PHRASES.search(words) is not None


def is_shortage(error: BaseException) -> bool:
    """Whether it was raised, or caused, by the limit of this process."""
    return _limit_bytes is not None and any(map(_speaks_of_memory, _chain(error)))


def relieve(error: BaseException | None) -> None:
    """Let go of what the failed work held: its frames, which the error refers to, hold it all.

    Allocates next to nothing, since there may be nothing left.
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
                pass  # it still runs
            entry = entry.tb_next
        error = error.__context__


def exit_status(error: BaseException) -> int:
    """How to end where an error cannot be told."""
    try:
        is_short = is_shortage(error)
    except MemoryError:
        is_short = _limit_bytes is not None
    return OUT_OF_MEMORY if is_short else CANNOT_GO_ON


def explained(error: BaseException) -> BaseException:
    """The error to tell: BudgetExceeded with the numbers if the limit is behind it, else itself."""
    if _limit_bytes is None or isinstance(error, BudgetExceeded) or not is_shortage(error):
        return error
    root = next(found for found in _chain(error) if _speaks_of_memory(found))
    words = _first_line(root)
    exceeded = BudgetExceeded(
        f"{was_reached(_limit_bytes)}: the worker {_numbers(_limit_bytes, _held(), _asked(words))}"
        + (f" ({words})" if words else "")
    )
    exceeded.__cause__ = error
    if hasattr(root, "error_code"):  # so that it arrives as TensorFlow's own type as well
        exceeded.__dict__.update(error_code=_RESOURCE_EXHAUSTED, op=getattr(root, "op", None))
    return exceeded


def not_enough_for(what: str) -> BudgetExceeded:
    """The error for work in another process, which could not tell what it held."""
    return BudgetExceeded(f"{was_reached(_limit_bytes or 0)}: {what} {HELD_THE_LIMIT}")


def require(wanted_bytes: int) -> None:
    """Raise unless this much can be allocated now: for callers of code that would crash."""
    if _limit_bytes is None or wanted_bytes < _LARGE_FEED:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    place = libc.malloc(ctypes.c_size_t(wanted_bytes))
    if not place:
        raise MemoryError(f"Unable to allocate {format_bytes(wanted_bytes)} for what is fed")
    libc.free(ctypes.c_void_p(place))


def guarded(plan: Any) -> Any:
    """The plan, made safe against feeds that do not fit: TensorFlow copies them unchecked."""
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
    """What was held and asked for, as far as it is known.

    By the time it is told, what the work held may have been freed. Then it was at least what was
    missing for the rest to fit.
    """
    amount = "an unknown amount" if held is None else format_bytes(held)
    if asked is None:
        return f"held {amount} afterwards, and had asked for more than was left"
    then = max(limit_bytes, LEAST_BYTES) - asked
    if held is not None and held < then:
        amount = f"{format_bytes(then)} or more"
    return f"held {amount} and asked for {format_bytes(asked)} more"


def _held() -> int | None:
    """What counts against the limit now."""
    try:
        with open("/proc/self/status") as status:
            numbers = dict(line.split(":", 1) for line in status)
    except OSError:
        return None  # in a sandbox
    lanes = threading.active_count() - 1  # the main thread had its stack at the start
    others = int(numbers["Threads"]) - 1 - lanes
    stacks = lanes * threading.stack_size() + others * _stack_bytes
    return max(0, int(numbers["VmData"].split()[0]) * 1024 - _start_bytes - stacks)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """It and what led to it, the latest first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _speaks_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, SystemError) and "without" in _text(error):
        return True  # "error return without exception set": not even a MemoryError could be made
    # TensorFlow says "resource exhausted" of a full disk as well.
    return not isinstance(error, OSError) and mentions_shortage(_text(error))


def _text(error: BaseException) -> str:
    message = getattr(error, "message", None)
    try:
        return message if isinstance(message, str) else str(error)
    except Exception:
        return ""  # code of the user's


def _first_line(error: BaseException) -> str:
    """The line that speaks of memory; TensorFlow begins with where it happened."""
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    return next(filter(mentions_shortage, lines), lines[0] if lines else "")


def _asked(words: str) -> int | None:
    if found := _NUMPYS_WORDS.search(words):
        return parse_bytes(found[1] + found[2])  # "128. MiB" has a point that is not ours
    if found := _TENSORFLOWS_WORDS.search(words):
        bits = re.search(r"\d+$", found[2])
        size = _ITEM_BYTES.get(found[2]) or (int(bits[0]) // 8 if bits else 0)
        if size:
            return size * math.prod(int(n) for n in found[1].split(",") if n)
    return None
