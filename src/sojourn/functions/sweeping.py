"""Sweeps: many calls in parallel, each in its own worker; finished results are never lost.

The caller's thread takes the items and collects the results, so that Ctrl-C and the iterables stay
on that thread; one more thread waits for each worker. Between runs a sweep is only data.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sojourn.errors import RemoteTraceback
from sojourn.functions.calling import Call
from sojourn.functions.items import as_given, described
from sojourn.functions.progress import Show, showing
from sojourn.functions.stored import Stored
from sojourn.probes.platform import require_process_isolation
from sojourn.process.interrupts import to_the_end
from sojourn.values import arguments

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

R = TypeVar("R")
Item = tuple[Any, ...]
# Makes the call of an item, with a label for its output, and the function that runs the call.
Prepare = Callable[[Item, str], tuple[Call, Callable[[], R]]]
RAISE, RETURN, SKIP = "raise", "return", "skip"

_REFRESH_SECONDS = 0.5  # the longest wait for a call until the progress is shown again


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """One finished call of a sweep: its `item` as it was given, and its result or error.

    `item` is None if it came from an iterator and its call finished in an earlier run.
    """

    index: int
    item: Any
    value: R | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a sweep."""

    name: str
    workers: int
    quiet: bool
    on_error: str
    is_local: bool = True

    @classmethod
    def checked(
        cls,
        name: str,
        workers: int | None,
        quiet: bool,
        on_error: str,
        elsewhere: int | None = None,
    ) -> Settings:
        """Check the settings. `elsewhere` is the number of workers on other machines, if all calls
        go there."""
        if on_error not in (RAISE, RETURN, SKIP):
            raise ValueError(f'on_error must be "raise", "return" or "skip", not {on_error!r}')
        require_process_isolation()
        if workers is None:
            workers = elsewhere or len(os.sched_getaffinity(0))
        workers = arguments.whole("workers", workers)
        return cls(name, workers, quiet, on_error, is_local=elsewhere is None)


class Sweep(Generic[R]):
    """One call for each item. Calls run only within `run()` and `for` loops over it.

    `results` has the finished results, by the position of the item, even after an error or Ctrl-C;
    `run()` or a loop then continues with the rest. Failed calls are repeated.
    """

    def __init__(
        self,
        prepare: Prepare[R],
        iterables: Sequence[Iterable[Any]],
        settings: Settings,
        stored: Stored | None,
    ) -> None:
        _check(iterables)
        self._prepare: Prepare[R] | None = prepare
        self._settings = settings
        self._stored = stored
        self.results: dict[int, R] = {}
        self.errors: dict[int, BaseException] = {}
        # Items taken from the iterables, without a result: not started, running, or failed.
        self._open: dict[int, Item] = {}
        self._coming: Iterator[tuple[int, Item]] = enumerate(zip(*iterables, strict=False))
        self._is_cut_short = False
        self._is_running = False
        self._unstored = 0  # results that could not be added to the file
        self._total = _total(iterables)
        # Items of an iterator are taken one at a time, and not kept.
        self._items: dict[int, Item] = {}
        if all(map(_has_length, iterables)):
            self._items.update(self._coming)
            self._open.update(self._items)
        if stored is not None:
            stored.read()
            for index in list(self._open):
                self._recall(index)

    def run(self) -> list[Any]:
        """Make the remaining calls; return the results in the order of the items.

        Errors are raised, are in the list (`on_error="return"`) or are left out of it (`"skip"`).
        """
        try:
            for _ in self._advance():
                pass
            over: dict[int, Any] = dict(self.results)
            if self._settings.on_error == RETURN:
                over |= self.errors
            return [over[index] for index in sorted(over)]
        except BaseException as error:
            self._explain(error)
            raise

    def __iter__(self) -> Iterator[Done[R]]:
        """Yield each item once, when its call has finished; items that have a result come first."""
        for index in sorted(self.results):
            item = self._items.get(index)
            yield Done(index, None if item is None else as_given(item), self.results[index])
        yield from self._advance()

    def __len__(self) -> int:
        """The number of items; from an iterator, the number taken so far."""
        return len(self.results) + len(self._open)

    def __repr__(self) -> str:
        total = "?" if self._total is None else self._total
        failed = f", {len(self.errors)} failed" if self.errors else ""
        running = ", running" if self._is_running else ""
        return (
            f"<sweep of {self._settings.name!r} | {len(self.results)} of {total} done"
            f"{failed}{running}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which has no calls: such as of one that belongs to an error
        and is sent to another process."""
        without: dict[str, Any] = {
            "_prepare": None,
            "_stored": None,
            "_open": {},
            "_items": {},
            "_coming": iter(()),
        }
        return {**vars(self), **without, "_is_running": False}

    # -- running -------------------------------------------------------------------------------

    def _advance(self) -> Iterator[Done[R]]:
        """Make the remaining calls. When this returns or raises, no worker is left."""
        if self._prepare is None:
            raise RuntimeError("this is a copy of a sweep, which has its results and cannot go on")
        if self._is_running:
            raise RuntimeError(f"this sweep of {self._settings.name!r} is running already")
        if self._is_cut_short:
            raise RuntimeError("the iterator of this sweep has failed, and its rest is lost")
        try:
            self._is_running = True
            self.errors.clear()
            with ExitStack() as stack:
                if self._stored is not None:
                    stack.enter_context(self._stored.writing())
                show = stack.enter_context(
                    showing(self._settings.name, self._total, self._settings.quiet)
                )
                if self._settings.is_local:
                    _wait_for_zygote()  # here, where Ctrl-C can interrupt the wait
                yield from self._fly(show)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._explain(error)
            raise
        finally:
            self._is_running = False

    def _fly(self, show: Show) -> Iterator[Done[R]]:
        # Imported only by sweeps: the module cannot be imported after the main thread has ended.
        from concurrent.futures import ThreadPoolExecutor

        flight: _Flight[R] = _Flight(
            ThreadPoolExecutor(
                self._settings.workers, thread_name_prefix=f"sojourn-map-{self._settings.name}"
            )
        )

        def show_now() -> None:
            show(len(self.results), len(self.errors), len(flight.calls))

        try:
            while True:
                while len(flight.calls) < self._settings.workers:
                    index = self._next(flight)
                    if index is None:
                        break
                    item = self._open[index]
                    if self._recall(index):
                        yield self._done(index, item)
                    else:
                        self._start(flight, index)
                show_now()
                if not flight.calls:
                    return
                for index in flight.wait():
                    item = self._open[index]
                    self._collect(flight, index)
                    show_now()
                    if index in self.results or self._settings.on_error == RETURN:
                        yield self._done(index, item)
        finally:
            self._land(flight)
            # The last line stays visible, even after an error or Ctrl-C: no call must seem to run.
            show_now()

    def _next(self, flight: _Flight[R]) -> int | None:
        """Return the index of the next item to make a call for, or None."""
        for index in self._open:
            if index not in flight.calls and index not in self.errors:
                return index
        before = len(self._open)
        try:
            # In one call of C code, so that no Ctrl-C arrives between taking and keeping an item.
            self._open.update(itertools.islice(self._coming, 1))
        except BaseException:
            self._is_cut_short = len(self._open) == before
            raise
        return next(reversed(self._open)) if len(self._open) > before else None

    def _start(self, flight: _Flight[R], index: int) -> None:
        item = self._open[index]
        label = f"[{index}: {described(item)}] " if self._settings.workers > 1 else ""
        assert self._prepare is not None
        call, run = self._prepare(item, label)
        flight.calls[index] = call  # before it starts, so that it is always ended
        flight.futures[index] = flight.threads.submit(run)

    def _collect(self, flight: _Flight[R], index: int) -> None:
        """Keep the result or the error of a finished call, or raise the error."""
        error = flight.futures[index].exception()
        try:
            if error is None:
                to_the_end(lambda: self._finish(flight, index))
            elif self._settings.on_error == RAISE:
                _note(error, f"in call {index} of the sweep: {self._words(index)}")
                raise error
            else:
                self.errors[index] = error
                flight.forget(index)
        finally:
            del error  # it refers to this frame

    def _finish(self, flight: _Flight[R], index: int) -> None:
        value = flight.futures[index].result()
        flight.forget(index)
        self.results[index] = value
        del self._open[index]
        if self._stored is not None:
            self._unstored += 1
            self._stored.add(index, value)
            self._unstored -= 1

    def _recall(self, index: int) -> bool:
        """Take the result of an earlier run from the file; return whether there was one."""
        found = [] if self._stored is None else self._stored.recall(index, self._open[index])
        if found:
            [self.results[index]] = found
            del self._open[index]
        return bool(found)

    def _land(self, flight: _Flight[R]) -> None:
        """End the calls that still run, and keep the results of the finished ones."""

        def cut_off() -> None:
            for call in list(flight.calls.values()):
                call.cut_off()

        def work() -> None:
            cut_off()
            flight.threads.shutdown(cancel_futures=True)  # the threads wait for their workers
            failures = []
            for index in flight.succeeded():
                try:
                    self._finish(flight, index)
                except Exception as error:  # such as a full disk: keep the others nevertheless
                    failures.append(error)
            flight.calls.clear()
            flight.futures.clear()
            if failures:
                raise failures[0]

        to_the_end(work, cut_off)

    # -- reporting -----------------------------------------------------------------------------

    def _done(self, index: int, item: Item) -> Done[R]:
        return Done(index, as_given(item), self.results.get(index), self.errors.get(index))

    def _words(self, index: int) -> str:
        return f"{self._settings.name}({described(self._open[index])})"

    def _explain(self, error: BaseException) -> None:
        """Attach this sweep to the error, so that code that catches it finds the results."""
        if getattr(error, "sweep", None) is self:
            return
        with suppress(Exception):
            error.sweep = self  # type: ignore[attr-defined]
        if count := len(self.results):
            where = ": see `sweep.results` of this exception"
            if self._stored is not None:
                where = f" in {self._stored.path}"
                if self._unstored:
                    where += f", but for {self._unstored}: see `sweep.results` of this exception"
            _note(error, f"{count} result{' is' if count == 1 else 's are'} kept{where}")


@dataclass
class _Flight(Generic[R]):
    """The running calls, by the index of their items."""

    threads: ThreadPoolExecutor
    calls: dict[int, Call] = field(default_factory=dict)
    futures: dict[int, Future[R]] = field(default_factory=dict)

    def wait(self) -> list[int]:
        """Wait until a call has finished, or briefly; return the indices of all finished calls."""
        wait(self.futures.values(), _REFRESH_SECONDS, FIRST_COMPLETED)
        return sorted(index for index, future in self.futures.items() if future.done())

    def succeeded(self) -> list[int]:
        return [
            index
            for index, future in self.futures.items()
            if future.done() and not future.cancelled() and future.exception() is None
        ]

    def forget(self, index: int) -> None:
        del self.calls[index], self.futures[index]


def _check(iterables: Sequence[Iterable[Any]]) -> None:
    if not iterables:
        raise TypeError("map() needs at least one iterable")
    for items in iterables:
        if not hasattr(items, "__iter__") and not hasattr(items, "__getitem__"):
            raise TypeError(f"map() takes an iterable for each argument, not {items!r}")


def _note(error: BaseException, text: str) -> None:
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(text)
    elif isinstance(error.__cause__, RemoteTraceback):
        error.__cause__.text += f"\n{text}"


def _wait_for_zygote() -> None:
    from sojourn.process.zygote import zygote

    zygote.frameworks()


def _has_length(items: Any) -> bool:
    """Whether `len` works: a progress bar around an iterator has `__len__`, but it may fail."""
    try:
        return len(items) >= 0
    except Exception:  # of the user's __len__, or an overflow
        return False


def _total(iterables: Sequence[Iterable[Any]]) -> int | None:
    known = []
    for items in iterables:
        with suppress(Exception):
            known += [hint for hint in [length_hint(items, -1)] if hint >= 0]
    return min(known, default=None)
