"""Requests that an event loop has for a worker, and which of them are sent together.

Short steps of one plan that wait at the same time go in one message and are answered in one: a
worker that is woken for each step would spend its time waking up.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from sojourn.process.calls import FAILED, OK, SOME_FAILED, STEP, NoAnswer, bundle_meta
from sojourn.transport.headers import ProtocolError
from sojourn.transport.lane import Answer, CallerLane
from sojourn.values.rows import Rows

# A power of two, as is the number of requests in every bundle, so that few layouts occur.
_MOST_TOGETHER = 16
_TOGETHER_BYTES = 16 * 1024  # the most that one request of a bundle may carry


class Request:
    __slots__ = (
        "adoptable", "arrays", "future", "has_waited", "is_left", "lane", "may_wait", "meta",
        "prints",
    )  # fmt: skip

    def __init__(
        self,
        future: asyncio.Future[Answer],
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        adoptable: bool,
        may_wait: bool,
        prints: bool,
    ) -> None:
        self.future = future
        self.meta = meta
        self.arrays = arrays
        self.adoptable = adoptable
        self.may_wait = may_wait
        self.prints = prints
        self.lane: CallerLane | None = None
        self.has_waited = False  # in the queue, for its turn
        self.is_left = False  # its caller no longer waits

    @property
    def is_small(self) -> bool:
        """Whether it may be sent together with others."""
        return (
            self.meta[0] == STEP
            and not (self.may_wait or self.prints)
            and sum(_cost(array) for array in self.arrays) <= _TOGETHER_BYTES
        )

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        self.fail(NoAnswer(sent=self.lane is not None))


def _cost(array: np.ndarray | Rows) -> int:
    """Return the bytes to copy. For objects they are unknown before the copy, which may fail."""
    if array.dtype.kind == "O":
        return _TOGETHER_BYTES + 1
    return math.prod(array.shape) * array.dtype.itemsize


class Bundle:
    """Requests that are answered together; usually a single one."""

    __slots__ = ("requests",)

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests

    @property
    def may_wait(self) -> bool:
        return self.requests[0].may_wait

    @property
    def is_awaited(self) -> bool:
        return not all(request.is_left for request in self.requests)

    def message(self) -> tuple[bytes, Sequence[np.ndarray | Rows]]:
        first = self.requests[0]
        if len(self.requests) == 1:
            return first.meta, first.arrays
        arrays = [array for request in self.requests for array in request.arrays]
        return bundle_meta(first.meta, len(self.requests)), arrays

    def fail(self, error: Callable[[], BaseException]) -> None:
        """Fail each request with an error of its own."""
        for request in self.requests:
            request.fail(error())

    def resolve(self, answer: Answer) -> None:
        count = len(self.requests)
        parts = [answer] if count == 1 else _parts(answer, count)
        for request, part in zip(self.requests, parts, strict=True):
            if not (request.is_left or request.future.done()):
                request.future.set_result(part)


def _parts(answer: Answer, count: int) -> list[Answer]:
    """Return the answer to each request of a bundle."""
    status, meta, arrays = answer
    failures: list[bytes | None] = [None] * count
    if status == SOME_FAILED:
        try:
            failures = msgspec.msgpack.decode(meta, type=list[bytes | None])
        except msgspec.DecodeError as error:
            raise ProtocolError(str(error)) from None
    elif status != OK:
        failures = [meta] * count
    succeeded = failures.count(None)
    size = len(arrays) // (succeeded or 1)
    if len(failures) != count or size * succeeded != len(arrays):
        raise ProtocolError(f"{len(arrays)} results for {count} steps")
    rest = iter(arrays)
    return [
        (OK, b"", list(itertools.islice(rest, size))) if record is None else (FAILED, record, [])
        for record in failures
    ]


def next_bundle(waiting: deque[Request], most: int) -> Bundle | None:
    """Return what to send next: the request that has waited longest, and similar ones behind it."""
    while waiting and waiting[0].future.done():
        waiting.popleft()
    if not waiting:
        return None
    first = waiting[0]

    def is_like_it(other: Request) -> bool:
        return other.is_small and other.meta == first.meta and not other.future.done()

    count = 1
    most = min(most, _MOST_TOGETHER)
    if most > 1 and first.is_small:
        alike = itertools.takewhile(is_like_it, itertools.islice(waiting, most))
        count = 1 << (sum(1 for _ in alike).bit_length() - 1)
    return Bundle([waiting.popleft() for _ in range(count)])
