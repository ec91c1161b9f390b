"""Many calls beside each other, each in its own worker: the results in order, or the first error.

The caller's thread takes the items and collects the results, so that Ctrl-C and the iterables
stay with it; one thread waits for each worker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from operator import length_hint
from typing import Any, TypeVar

from sojourn.functions.calling import Call
from sojourn.probes.platform import require_process_isolation
from sojourn.values import arguments

R = TypeVar("R")
Prepare = Callable[[tuple[Any, ...]], tuple[Call, Callable[[], R]]]


def sweep(
    prepare: Prepare[R],
    iterables: Sequence[Iterable[Any]],
    workers: int | None,
    name: str,
    quiet: bool,
) -> list[R]:
    """Run a call for every item. When this returns or raises, no worker of it is left."""
    if not iterables:
        raise TypeError("map() needs at least one iterable")
    for items in iterables:
        if not hasattr(items, "__iter__") and not hasattr(items, "__getitem__"):
            raise TypeError(f"map() takes lists and the like, one for each argument, not {items!r}")
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    workers = arguments.whole("workers", workers)
    require_process_isolation()
    from sojourn.process.zygote import zygote

    zygote.frameworks()  # waited for here, where Ctrl-C is answered
    results: dict[int, R] = {}
    running: dict[Future[R], tuple[int, Call]] = {}
    with (
        ThreadPoolExecutor(workers, thread_name_prefix=f"sojourn-map-{name}") as threads,
        _progress(name, _total(iterables), quiet) as advance,
    ):
        try:
            for index, args in enumerate(zip(*iterables, strict=False)):
                if len(running) >= workers:
                    _collect(running, results, advance)
                call, run = prepare(args)
                running[threads.submit(run)] = index, call
            while running:
                _collect(running, results, advance)
        except BaseException:
            for future, (_, call) in running.items():
                future.cancel()
                call.cut_off()
            raise  # leaving the block waits for the threads, and they for their workers
    return [results[index] for index in range(len(results))]


def _collect(
    running: dict[Future[R], tuple[int, Call]],
    results: dict[int, R],
    advance: Callable[[], None],
) -> None:
    """Wait until at least one call is over; raise its error if it had one."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    try:
        for future in sorted(done, key=lambda f: running[f][0]):
            index, _ = running.pop(future)
            results[index] = future.result()
            advance()
    finally:
        # A future keeps its error, which refers to this frame: neither would go, nor what the other
        # calls had in hand, until the garbage collector comes by.
        del done, future


def _total(iterables: Sequence[Iterable[Any]]) -> int | None:
    hints = [length_hint(iterable, -1) for iterable in iterables]
    known = [hint for hint in hints if hint >= 0]
    return min(known) if known else None


@contextmanager
def _progress(name: str, total: int | None, quiet: bool) -> Iterator[Callable[[], None]]:
    """A bar on standard error if that is a terminal, else nothing."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        # What the workers print goes above the bar, unless it goes to a file or a pipe.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )
    with bar:
        task = bar.add_task(name, total=total)
        yield lambda: bar.advance(task)
