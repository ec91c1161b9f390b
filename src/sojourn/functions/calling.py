"""One call of an isolated function: its worker, from the fork to the receipt."""

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
    """The outcome of a call, as the engine reports it."""

    kind: str
    message: str = ""
    traceback: str = ""


class Call:
    """One call and its worker. The code that calls `start` always calls `end` as well."""

    _stay: Stay | None = None  # the class attribute serves a call interrupted in __init__

    def __init__(
        self,
        options: Options,
        name: str,
        place: Place,
        keep_receipt: Callable[[Receipt], None],
        label: str = "",
    ) -> None:
        """`label` is written before each line that the function prints."""
        self.name = name
        self._label = label
        self._options = options
        self._place = place
        self._keep_receipt = keep_receipt
        self._backend: CallBackend | None = None
        self._is_cut_off = False

    def start(self) -> None:
        """Fork the worker. If this raises, no worker is left."""
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
            stay.ending.watch(self, stay.ending.dropped)  # a Ctrl-C may prevent `end`
            self._stay = stay
        except BaseException as error:
            self._stay = None
            stay.beginning.abandon(error)  # interrupted, perhaps just after it was opened
            self._backend = None
            raise

    def ask(
        self, operation: str, arguments: dict[str, Any], arrays: Sequence[np.ndarray]
    ) -> tuple[str, Any]:
        """Send a request; return the outcome's kind and value. Raises the function's error."""
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
        """Like `ask`, awaited."""
        return self.unpacked(*await self.aanswer(operation, arguments, arrays))

    async def aanswer(
        self, operation: str, arguments: dict[str, Any], arrays: Sequence[np.ndarray]
    ) -> tuple[Outcome, Sequence[np.ndarray]]:
        """Like `aask`, but return the worker's answer as it arrived, to be forwarded."""
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
        """Return the outcome's kind and value. Raises the function's error."""
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
        """End the worker and pass its receipt to `keep_receipt`. May be called twice."""
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
            self._backend = None  # an error kept by the user would keep its memory

    async def __aenter__(self) -> Call:
        """Start the worker without blocking the event loop."""
        from sojourn.process.aside import aside

        try:
            await aside(self.start, lambda _: self.end(abruptly=True))
        except BaseException:
            self.cut_off()  # cancelled: the worker is killed as soon as it exists
            raise
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self.aend(error)

    async def aend(self, error: BaseException | None = None) -> None:
        """End the worker without blocking the event loop; kill it unless it is in order."""
        from sojourn.process.aside import aside

        is_in_order = error is None or is_own(error)
        await aside(lambda: self.end(abruptly=not is_in_order))

    def cut_off(self) -> None:
        """Kill the worker now, from any thread; a call that waits for it gets an error."""
        self._is_cut_off = True
        backend = self._backend
        if backend is not None:
            backend.kill()


def is_own(error: BaseException) -> bool:
    """Whether the function itself raised the error, so that its worker is in order."""
    return isinstance(error.__cause__, RemoteTraceback)


def _as_error(outcome: Outcome, results: Sequence[np.ndarray]) -> BaseException:
    """Return the function's error, in its own type if that exists in this process."""
    error: object = None
    if results:
        try:
            error = parcels.unpack(results)
        except Exception:
            pass  # its class does not exist here: described by its message instead
    if not isinstance(error, BaseException):
        error = EngineError(outcome.message)
    error.__cause__ = RemoteTraceback(with_cells(outcome.traceback))
    return error


def _label(name: str) -> str:
    return f"{re.sub(r'[^a-zA-Z0-9_.-]', '', name) or 'function'}-{next(_counter)}"
