"""The progress of a sweep: a bar on a terminal, a line below the cell in a notebook, else nothing.

A failure to show it, as on a closed stream or one that lacks a character, never costs a result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

_WIDTH = 30  # characters of the bar in a notebook
_CELL_SECONDS = 0.2  # between two updates of the line in a notebook
STARTING = "starting the first worker"
Show = Callable[[int, int, int], None]  # number of calls done, failed, running


@contextmanager
def showing(name: str, total: int | None, quiet: bool) -> Iterator[Show]:
    """Show the progress within the block, beginning before the first worker is started."""
    shown = ExitStack()
    show: Show | None = None
    with suppress(Exception):
        if quiet:
            pass
        elif _is_in_notebook():
            show = _Cell(name, total).show
        elif sys.stderr.isatty():
            show = shown.enter_context(_terminal(name, total))

    def show_if_possible(done: int, failed: int, running: int) -> None:
        nonlocal show
        try:
            if show is not None:
                show(done, failed, running)
        except Exception:
            show = None

    try:
        yield show_if_possible
    finally:
        with suppress(Exception):
            shown.close()


@contextmanager
def _terminal(name: str, total: int | None) -> Iterator[Show]:
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
        TextColumn("{task.fields[state]}"),
        console=Console(stderr=True),
        # The workers' output goes above the bar, unless stdout is a file or a pipe.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )
    with bar:
        task = bar.add_task(name, total=total, state=STARTING)
        yield lambda done, failed, running: bar.update(
            task, completed=done + failed, state=_state(failed, running)
        )


class _Cell:
    """A line of a notebook that is updated in place. Needs no widgets."""

    def __init__(self, name: str, total: int | None) -> None:
        from IPython.display import display

        self._name, self._total = name, total
        self._began = self._shown = time.monotonic()
        self._handle = display(self._line(0, STARTING), raw=True, display_id=True)

    def show(self, done: int, failed: int, running: int) -> None:
        now = time.monotonic()
        if running and now - self._shown < _CELL_SECONDS:
            return  # each change is a message to the browser
        self._shown = now
        self._handle.update(self._line(done + failed, _state(failed, running)), raw=True)

    def _line(self, over: int, state: str) -> dict[str, str]:
        filled = _WIDTH * over // self._total if self._total else 0
        bar = "━" * filled + " " * (_WIDTH - filled)
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        total = "?" if self._total is None else self._total
        line = f"{self._name} {bar} {over}/{total} {minutes}:{seconds:02} {state}"
        return {"text/plain": line.rstrip()}


def _state(failed: int, running: int) -> str:
    parts = [f"{running} running"] if running else []
    if failed:
        parts.append(f"{failed} failed")
    return ", ".join(parts)


def _is_in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
