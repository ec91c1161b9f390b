"""`sojourn bench`: raw TensorFlow against sojourn, as ratios."""

from __future__ import annotations

import importlib.util
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from sojourn.cli import notes
from sojourn.cli.options import Data, data_options, file_option


@click.command(name="bench")
@data_options
@file_option("--plot", help="Write a plot (PNG, SVG) to FILE.")
@click.option("--quick", is_flag=True, help="A rough look in a minute or two.")
@click.option(
    "--only",
    type=click.Choice(["calls", "awaiting", "opening", "endings"]),
    multiple=True,
    help="Only this part (may be repeated).",
)
def command(data: Data, plot: Path | None, quick: bool, only: tuple[str, ...]) -> None:
    """Compare raw TensorFlow with sojourn on this machine.

    Contestants take turns within one run, and the result is a ratio: what disturbs the machine
    disturbs them all. TensorFlow's own remote session takes part only where this process can have
    a network namespace of its own. Exits with 1 if a bar is not met.
    """
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("The plot needs matplotlib: pip install 'sojourn[plot]'")
    from sojourn.bench import awaiting, calls, endings, namespace, opening

    namespace.enter()
    parts: dict[str, Any] = {
        "calls": calls,
        "awaiting": awaiting,
        "opening": opening,
        "endings": endings,
    }
    chosen = only or tuple(parts)
    rows = []
    with notes.kept_aside() as errors:
        for name in chosen:
            rows += parts[name].rows(lambda text: click.echo(f"... {text}", errors), quick=quick)
    data.give(
        {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "unix_time": time.time(),
            "rows": [row.to_dict() for row in rows],
        }
    )
    if not data.is_printed:
        _print(rows)
    if plot is not None:  # last, so that a plot that cannot be drawn costs no measurement
        from sojourn.bench.plot import draw

        try:
            draw(rows, str(plot))
        except ValueError as error:
            raise click.ClickException(f"No plot: {error}") from None
    if any(row.meets_bar is False for row in rows):
        raise SystemExit(1)


def _shown(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def _print(rows: Iterable[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="sojourn bench", title_justify="left")
    for column in ("work", "measured", "against", "ratio", "bar", ""):
        table.add_column(column, justify="left" if column in ("work", "against", "") else "right")
    for row in rows:
        against = f"{row.shown(row.baseline)} {row.against}" if row.baseline else row.note
        ratio = "" if row.ratio is None else _shown(row.ratio)
        bar = "" if row.bar is None else _shown(row.bar) if row.baseline else row.shown(row.bar)
        verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[row.meets_bar]
        table.add_row(row.work, row.shown(row.value), against, ratio, bar, verdict)
    Console(file=sys.stdout).print(table)
