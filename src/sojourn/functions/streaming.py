"""A call that yields: the generator runs in the worker, the caller requests item after item."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from sojourn.engines.calling import CLOSE, NEXT, SEND, STREAM, STREAM_ENDED, THROW
from sojourn.errors import InputError
from sojourn.functions.calling import Call, is_own
from sojourn.functions.sending import pack_value
from sojourn.process.nets import net


class Stream(Generator[Any, Any, Any]):
    """A generator whose body runs in a worker, until it is exhausted, closed or garbage-collected.

    The worker starts when the first item is requested. Closing runs the generator's own clean-up
    in the worker and then ends the worker.
    """

    def __init__(self, call: Call, begin: Callable[[], Sequence[np.ndarray]] | None) -> None:
        self._call: Call | None = call
        self._begin = begin  # packs the call; None once the generator exists
        self._name = call.name
        self._turn = threading.Lock()
        self._when_gone: weakref.finalize[..., Any] | None = None
        if begin is None:
            self._has_begun(call)

    def send(self, value: Any) -> Any:
        """Resume the generator with a value and return its next item."""
        if value is None:
            return self._resume(NEXT, ())
        if self._begin is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        return self._resume(SEND, pack_value(value, self._name))

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        """Raise an error where the generator waits and return its next item."""
        if isinstance(error, type):
            error = (
                value if isinstance(value, error) else error() if value is None else error(value)
            )
        if self._begin is not None:
            self._call = self._begin = None
        if self._call is None:
            raise error
        return self._resume(THROW, pack_value(error, self._name))

    def close(self) -> None:
        """Close the generator, which runs its clean-up, and end the worker."""
        call = self._call
        self._let_go()
        if call is not None and self._begin is None:
            _close(call)

    def _resume(self, how: str, arrays: Sequence[np.ndarray]) -> Any:
        with self._alone():
            call = self._call
            if call is None:
                raise StopIteration
            try:
                if self._begin is not None:
                    self._start(call)
                kind, value = call.ask("resume", {"how": how}, arrays)
            except BaseException as error:
                self._let_go()
                # If the function itself raised the error, its worker can end in order.
                call.end(abruptly=not is_own(error))
                raise
            if kind == STREAM_ENDED:
                self._let_go()
                call.end()
                raise StopIteration(value)
            return value

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a second thread or task while one waits for an item, as any generator does."""
        if not self._turn.acquire(blocking=False):
            raise ValueError("generator already executing")
        try:
            yield
        finally:
            self._turn.release()

    def _start(self, call: Call) -> None:
        assert self._begin is not None
        parcel = self._begin()
        call.start()
        self._has_begun(call)
        self._require_stream(call.ask("call", {}, parcel))

    def _require_stream(self, answer: tuple[str, Any]) -> None:
        if answer[0] != STREAM:
            raise InputError(f"{self._name!r} is a generator here but not in the worker")

    # -- awaited -------------------------------------------------------------------------------

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        """Return the next item, without blocking the event loop."""
        with self._alone():
            call = self._call
            if call is None:
                raise StopAsyncIteration
            try:
                if self._begin is not None:
                    await self._astart(call)
                kind, value = await call.aask("resume", {"how": NEXT}, ())
            except BaseException as error:
                self._let_go()
                await call.aend(error)
                raise
            if kind == STREAM_ENDED:
                self._let_go()
                await call.aend()
                raise StopAsyncIteration
            return value

    async def _astart(self, call: Call) -> None:
        assert self._begin is not None
        parcel = self._begin()
        await call.__aenter__()
        self._has_begun(call)
        self._require_stream(await call.aask("call", {}, parcel))

    async def aclose(self) -> None:
        """Close the generator and end the worker, without blocking the event loop."""
        from sojourn.process.aside import aside

        await aside(self.close)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _has_begun(self, call: Call) -> None:
        self._begin = None
        self._when_gone = net(self, _close_aside, call)

    def _let_go(self) -> None:
        self._call = None
        if self._when_gone is not None:
            self._when_gone.detach()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the stream of {self._name!r} cannot be pickled: its generator is in a worker of this "
            "process. Send what it yields"
        )

    def __repr__(self) -> str:
        state = "ended" if self._call is None else "waiting" if self._begin is None else "not begun"
        return f"<stream of {self._name!r} | {state}>"


def _close_aside(call: Call) -> None:
    # Called when a `for` loop is left by `break`, and by the garbage collector, perhaps while
    # this thread holds one of sojourn's locks: blocking work is done on another thread.
    threading.Thread(target=_close, args=(call,), name="sojourn-stream-close").start()


def _close(call: Call) -> None:
    try:
        call.ask("resume", {"how": CLOSE}, ())
    except BaseException:
        call.end(abruptly=True)
        raise
    call.end()
