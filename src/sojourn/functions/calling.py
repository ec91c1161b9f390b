"""One call: a worker from the fork to the receipt. It is gone when the call is over."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from sojourn.engines import parcels
from sojourn.engines.calling import ERROR
from sojourn.errors import EngineError, InputError, RemoteTraceback, StepTimeout
from sojourn.functions.options import Options
from sojourn.probes.platform import require_process_isolation
from sojourn.process.interrupts import to_the_end
from sojourn.session.stay import Stay
from sojourn.values import Place, Receipt
from sojourn.values.places import with_cells

if TYPE_CHECKING:
    from sojourn.functions.backend import CallBackend

_counter = itertools.count(1)


class Outcome(msgspec.Struct, frozen=True):
    """What came of a call, as the engine reports it."""

    kind: str
    message: str = ""
    traceback: str = ""


class Call:
    """The worker of one call. The code that starts it ends it, whatever happens in between."""

    _stay: Stay | None = None  # also of one that was interrupted while it was being made

    def __init__(
        self,
        options: Options,
        name: str,
        place: Place,
        keep_receipt: Callable[[Receipt], None],
        label: str = "",
    ) -> None:
        """`label` stands before each line that the function prints."""
        self.name = name
        self._label = label
        self._options = options
        self._place = place
        self._keep_receipt = keep_receipt
        self._backend: CallBackend | None = None
        self._is_cut_off = False

    def start(self) -> None:
        """Fork the worker. If this raises, it is gone already."""
        require_process_isolation()
        from sojourn.functions.backend import CallBackend

        options = self._options
        choice = options.choice()
        stay = Stay(_label(self.name), "process", choice.label, self._place, model=self.name)

        def new_backend(deadline: float | None) -> CallBackend:
            self._backend = CallBackend(
                stay.name,
                self._label,
                memory_bytes=options.memory_bytes,
                environment=dict(choice.environment),
                on_gpu=choice.on_gpu,
                deadline=deadline,
            )
            if self._is_cut_off:
                self._backend.kill()
            return self._backend

        try:
            stay.beginning.open(new_backend, options.engine_arguments())
            stay.ending.watch(self, stay.ending.dropped)  # a Ctrl-C may come before the end
            self._stay = stay
        except BaseException as error:
            self._stay = None
            stay.beginning.abandon(error)  # an interrupt may come when it has just been opened
            self._backend = None
            raise

    def ask(
        self, operation: str, arguments: dict[str, Any], arrays: Sequence[np.ndarray]
    ) -> tuple[str, Any]:
        """The kind of the outcome and its value. What the function raised is raised here."""
        assert self._stay is not None
        timeout = self._options.timeout
        try:
            answer = self._stay.call(operation, arguments, arrays, result=Outcome, timeout=timeout)
        except StepTimeout:
            raise self._late() from None
        return self.unpacked(*answer)

    async def aask(
        self, operation: str, arguments: dict[str, Any], arrays: Sequence[np.ndarray]
    ) -> tuple[str, Any]:
        """The same, awaited."""
        return self.unpacked(*await self.aanswer(operation, arguments, arrays))

    async def aanswer(
        self, operation: str, arguments: dict[str, Any], arrays: Sequence[np.ndarray]
    ) -> tuple[Outcome, Sequence[np.ndarray]]:
        """The same as it came from the worker, for those who hand it on."""
        assert self._stay is not None
        timeout = self._options.timeout
        try:
            return await self._stay.acall(
                operation, arguments, arrays, result=Outcome, timeout=timeout
            )
        except StepTimeout:
            raise self._late() from None

    def _late(self) -> StepTimeout:
        return StepTimeout(
            f"{self.name!r} did not answer within {self._options.timeout:g} s; its worker was ended"
        )

    def unpacked(self, outcome: Outcome, results: Sequence[np.ndarray]) -> tuple[str, Any]:
        """The kind of the outcome and its value. What the function raised is raised here."""
        if outcome.kind == ERROR:
            raise _as_error(outcome, results)
        if not results:
            return outcome.kind, None
        try:
            return outcome.kind, parcels.unpack(results)
        except Exception as error:
            raise InputError(
                f"the result of {self.name!r} cannot be read here: {type(error).__name__}: {error}"
            ) from error

    def end(self, *, abruptly: bool = False) -> None:
        """End the worker and hand over the receipt. May be called twice."""
        stay, backend = self._stay, self._backend
        if stay is None or backend is None:
            return
        backend.ends_abruptly = abruptly

        def close() -> None:
            self._stay = None
            self._keep_receipt(stay.close(timeout=0, place=self._place))

        try:
            to_the_end(close, self.cut_off)
        finally:
            self._backend = None  # an error that the user keeps would keep its memory too

    async def __aenter__(self) -> Call:
        """Start the worker while the event loop goes on."""
        from sojourn.process.aside import aside

        try:
            await aside(self.start, lambda _: self.end(abruptly=True))
        except BaseException:
            self.cut_off()  # cancelled: it ends before it has begun
            raise
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self.aend(error)

    async def aend(self, error: BaseException | None = None) -> None:
        """End the worker while the event loop goes on, at once if it is not in order."""
        from sojourn.process.aside import aside

        is_in_order = error is None or is_own(error)
        await aside(lambda: self.end(abruptly=not is_in_order))

    def cut_off(self) -> None:
        """End the worker now, from any thread; a call that waits for it gets an error."""
        self._is_cut_off = True
        backend = self._backend
        if backend is not None:
            backend.kill()


def is_own(error: BaseException) -> bool:
    """Whether the function itself raised it, so that its worker is in order."""
    return isinstance(error.__cause__, RemoteTraceback)


def _as_error(outcome: Outcome, results: Sequence[np.ndarray]) -> BaseException:
    """The error of the function, in its own type if that exists here."""
    error: object = None
    if results:
        try:
            error = parcels.unpack(results)
        except Exception:
            pass  # its class does not exist here: described instead
    if not isinstance(error, BaseException):
        error = EngineError(outcome.message)
    error.__cause__ = RemoteTraceback(with_cells(outcome.traceback))
    return error


def _label(name: str) -> str:
    return f"{re.sub(r'[^a-zA-Z0-9_.-]', '', name) or 'function'}-{next(_counter)}"
