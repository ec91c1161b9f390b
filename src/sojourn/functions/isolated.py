"""`sojourn.isolated`: the decorator, and the wrapped function that it returns."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from sojourn.engines import code_capture
from sojourn.engines.calling import STREAM
from sojourn.functions.calling import Call, is_own
from sojourn.functions.items import as_call
from sojourn.functions.options import Options
from sojourn.functions.sending import pack_call
from sojourn.functions.stored import Stored
from sojourn.functions.streaming import Stream
from sojourn.functions.submitting import submit
from sojourn.functions.sweeping import Settings, Sweep
from sojourn.probes.platform import require_process_isolation
from sojourn.values import Place, Receipt, caller

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
OnError = Literal["raise", "return", "skip"]


class Elsewhere(Protocol):
    """Other machines on which calls can run, as returned by `sojourn.cluster.connect`."""

    def workers(self, device: str) -> int: ...

    def new_call(
        self,
        options: Options,
        name: str,
        place: Place,
        keep_receipt: Callable[[Receipt], None],
        label: str,
        repeatable: bool,
    ) -> Call: ...


class _Last:
    """The receipt of the last call, shared by a function and its bound methods."""

    __slots__ = ("receipt",)

    def __init__(self) -> None:
        self.receipt: Receipt | None = None

    def keep(self, receipt: Receipt) -> None:
        self.receipt = receipt


class Isolated(Generic[P, R]):
    """A function of which each call runs in its own new worker. Calls may run in parallel."""

    __wrapped__: Callable[P, R]
    __name__: str

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        if isinstance(function, classmethod):
            raise TypeError("write @classmethod above @isolated, not below it")
        if isinstance(function, staticmethod):
            function = function.__func__
        if not callable(function):
            raise TypeError(f"isolated takes a function, not {type(function).__name__}")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("isolated takes plain functions and generators, not `async def`")
        _wear(self, function)
        self._function = function
        self._options = options
        self._name = options.name or str(getattr(function, "__name__", type(function).__name__))
        self._last = _Last()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in a new worker, which is gone when this returns or raises."""
        function: Callable[..., Any] = self._function
        call = self._new_call(caller())
        if _yields(function):
            # As with any generator, the body begins when the first item is requested.
            return Stream(  # type: ignore[return-value]
                call, lambda: pack_call(function, args, kwargs, self._name)
            )
        return self._run(call, args, kwargs)  # type: ignore[no-any-return]

    async def acall(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it in a new worker, awaited: no thread waits for the function.

        For a function that yields, loop over the call itself: `async for item in function(...)`.
        """
        self._require_plain("acall")
        parcel = pack_call(self._function, args, kwargs, self._name)
        call = self._new_call(caller())
        async with call:
            kind, value = await call.aask("call", {}, parcel)
            if kind == STREAM:
                raise TypeError(f"{self._name!r} returned a generator; return a list instead")
        return value  # type: ignore[no-any-return]

    @overload
    def map(
        self,
        *iterables: Iterable[Any],
        workers: int | None = None,
        quiet: bool = False,
        on_error: Literal["raise", "skip"] = "raise",
        results: str | os.PathLike[str] | None = None,
        on: Elsewhere | None = None,
        repeatable: bool = False,
    ) -> list[R]: ...
    @overload
    def map(
        self,
        *iterables: Iterable[Any],
        workers: int | None = None,
        quiet: bool = False,
        on_error: Literal["return"],
        results: str | os.PathLike[str] | None = None,
        on: Elsewhere | None = None,
        repeatable: bool = False,
    ) -> list[R | BaseException]: ...
    def map(
        self,
        *iterables: Iterable[Any],
        workers: int | None = None,
        quiet: bool = False,
        on_error: OnError = "raise",
        results: str | os.PathLike[str] | None = None,
        on: Elsewhere | None = None,
        repeatable: bool = False,
    ) -> list[Any]:
        """Call it for every item, up to `workers` at a time; return the results in item order.

        Like the built-in `map`, several iterables give several arguments; items of `sojourn.grid`
        are passed by keyword. With `on_error="raise"` the first error ends all other calls and is
        raised; `"return"` puts errors into the list in place of results, `"skip"` leaves them out.
        `results` names a file that keeps every result, from which a rerun continues. Progress is
        shown on terminals and in notebooks unless `quiet`. With `on`, a connection to a cluster,
        the calls run on its nodes; calls on a node that is lost have an unknown outcome, and
        are repeated only if the function is `repeatable`. Any exception that this raises, including
        KeyboardInterrupt, has a `sweep` attribute with the results so far.
        """
        return self.sweep(
            *iterables,
            workers=workers,
            quiet=quiet,
            on_error=on_error,
            results=results,
            on=on,
            repeatable=repeatable,
        ).run()

    def sweep(
        self,
        *iterables: Iterable[Any],
        workers: int | None = None,
        quiet: bool = False,
        on_error: OnError = "raise",
        results: str | os.PathLike[str] | None = None,
        on: Elsewhere | None = None,
        repeatable: bool = False,
    ) -> Sweep[R]:
        """Like `map`, as an object: loop over it for results as they arrive, or `run()` it.

        It keeps its results when it is interrupted, and continues from there when it is run again.
        """
        elsewhere = None if on is None else on.workers(self._options.device)
        settings = Settings.checked(self._name, workers, quiet, on_error, elsewhere)
        self._require_plain("map")
        place = caller()

        def prepare(item: tuple[Any, ...], label: str) -> tuple[Call, Callable[[], R]]:
            call = self._new_call(place, label)
            if on is not None:
                options, keep = self._options, self._last.keep
                call = on.new_call(options, self._name, place, keep, label, repeatable)
            args, kwargs = as_call(item)
            return call, lambda: self._run(call, args, kwargs, may_stream=False)

        stored = None if results is None else Stored(results, self._function, self._options)
        return Sweep(prepare, iterables, settings, stored)

    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call it in the background. At most one such call per processor runs at a time."""
        self._require_plain("submit")
        require_process_isolation()
        place = caller()
        return submit(lambda: self._run(self._new_call(place), args, kwargs, may_stream=False))

    def _require_plain(self, method: str) -> None:
        if _yields(self._function):
            raise TypeError(f"{self._name!r} yields; {method}() takes functions that return")

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the call that ended last, on any thread; None before the first."""
        return self._last.receipt

    def _new_call(self, place: Place, label: str = "") -> Call:
        return Call(self._options, self._name, place, self._last.keep, label)

    def _run(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], may_stream: bool = True
    ) -> Any:
        parcel = pack_call(self._function, args, kwargs, self._name)
        try:
            call.start()
            kind, value = call.ask("call", {}, parcel)
            if kind == STREAM:
                if may_stream:
                    return Stream(call, None)
                raise TypeError(f"{self._name!r} returned a generator; return a list instead")
        except BaseException as error:
            call.end(abruptly=not is_own(error))
            raise
        call.end()
        return value

    @overload
    def __get__(self, instance: None, owner: type) -> Isolated[P, R]: ...
    @overload
    def __get__(
        self: Isolated[Concatenate[Any, Q], S], instance: object, owner: type | None = None
    ) -> Isolated[Q, S]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Isolated[Any, Any]:
        if instance is None:
            return self
        # A partial: a bound method would be pickled by its name, which refers to this wrapper.
        bound: Isolated[Any, Any] = Isolated(
            functools.partial(self._function, instance),
            self._options,
        )
        _wear(bound, self._function)
        bound._name = self._name
        bound._last = self._last
        return bound

    def __reduce__(self) -> tuple[Any, ...]:
        # By value: its module may exist only in this process.
        return Isolated, (self._function, self._options)

    def __repr__(self) -> str:
        limits = f" | {self._options}" if str(self._options) else ""
        last = f" | last call {self.receipt}" if self.receipt is not None else ""
        return f"<isolated {self._name!r}{limits}{last}>"


@overload
def isolated(
    function: Callable[P, R],
    /,
    *,
    timeout: float | None = None,
    memory: int | str | None = None,
    device: str = "auto",
    name: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
) -> Isolated[P, R]: ...
@overload
def isolated(
    *,
    timeout: float | None = None,
    memory: int | str | None = None,
    device: str = "auto",
    name: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
) -> Callable[[Callable[P, R]], Isolated[P, R]]: ...
def isolated(
    function: Callable[..., Any] | None = None,
    /,
    *,
    timeout: float | None = None,
    memory: int | str | None = None,
    device: str = "auto",
    name: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
) -> Any:
    """Make a function run in its own worker process, which leaves nothing behind.

    Use it as `@isolated`, as `@isolated(memory="4GiB")` or as `isolated(function)(...)`. Arguments
    and results are anything that can be pickled; arrays cross through shared memory. The
    function's output appears here, its errors are raised here, items it yields arrive one by one.

    `timeout`: seconds after which a call (for a generator: each item) ends with StepTimeout.
    `memory`: the most the worker may allocate, such as `"4GiB"`. `device`: the devices it sees,
    `"auto"` (all that this process sees), `"cpu"`, `"gpu"` (the one with the most free memory),
    `"gpu:1"` or `"gpu:GPU-<uuid>"`. `seed`: seeds Python, numpy and TensorFlow before each call, so
    that the same work gives the same bits; `deterministic`, with a seed, makes TensorFlow use
    deterministic ops only.
    """
    code_capture.note()  # now, because a file may be edited before the first call
    options = Options(
        timeout=timeout,
        memory=memory,
        device=device,
        name=name,
        seed=seed,
        deterministic=deterministic,
    )
    if function is None:
        return lambda given: Isolated(given, options)
    return Isolated(function, options)


def _wear(wrapper: Isolated[Any, Any], function: Any) -> None:
    """Copy the function's name, docstring and attributes to the wrapper, except attributes that
    would hide the wrapper's: the function may be an object with a `map` or `_settings`."""
    own = dir(Isolated)
    facts = getattr(function, "__dict__", {})
    vars(wrapper).update({name: facts[name] for name in facts if name not in own})
    functools.update_wrapper(wrapper, function, updated=())


def _yields(function: Any) -> bool:
    return inspect.isgeneratorfunction(function)  # looks through partials and bound methods
