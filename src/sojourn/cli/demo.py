"""`sojourn demo`: the same program on raw TensorFlow and on sojourn, side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sojourn.cli.options import Data, data_options
from sojourn.values import format_bytes, format_seconds

if TYPE_CHECKING:
    from sojourn.demo.sides import Facts, Side

_STYLES = {"raw": "red", "sojourn": "green"}


@click.command(name="demo")
@data_options
def command(data: Data) -> None:
    """Train three models one after the other, on raw TensorFlow and on sojourn.

    It is one TF1-style program; only the name of the session's class differs. Watch what the
    program holds while each model's session is open, and after it was closed.
    """
    from rich.console import Console

    from sojourn.demo.sides import HIDDEN_UNITS, SideFailed

    console = Console(stderr=data.is_printed)
    busy = _busy_machine()
    try:
        raw, ours = tell_story(console, HIDDEN_UNITS)
    except SideFailed as error:
        raise click.ClickException(str(error)) from None
    data.give(
        {
            side.which: {"standing": side.imported["standing"], "models": side.models}
            for side in (raw, ours)
        }
    )
    if not data.is_printed:
        print_table(console, raw, ours)
        if busy:
            console.print(busy, highlight=False)


def _busy_machine() -> str:
    """Return a warning if the machine is too busy for the times to mean much."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load <= cores:
        return ""
    return (
        f"This machine was busy at the start (load {load:.1f} on {cores} cores): a call to a "
        "worker then waits for a core twice, a raw one does not."
    )


def tell_story(console: Any, sizes: Sequence[int]) -> tuple[Side, Side]:
    """Run both programs, with a progress bar on a terminal; print what each `close` returned."""
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn

    from sojourn.demo.sides import both, compare

    console.print(
        "One program trains models, one after the other, each in a session that it closes.\n"
        "It runs on [red]tf.compat.v1.Session[/] (raw) and on "
        "[green]sojourn.compat.v1.Session[/].",
        highlight=False,
        soft_wrap=True,
    )
    bar = (TextColumn("  {task.description:<38}"), BarColumn(), TextColumn("{task.fields[now]}"))
    with Progress(
        *bar, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("importing TensorFlow, in both", total=None, now="")

        def on_step(side: Side, facts: Facts) -> None:
            progress.update(
                task,
                description=f"{side.which}: training {facts['units']} hidden units",
                completed=facts["step"],
                total=facts["steps"],
                now=f"loss {facts['loss']:.3f}",
            )

        with both(sizes) as sides:
            for units in sizes:
                console.print(f"[bold]{units} hidden units[/bold]", highlight=False)
                for side, facts in zip(sides, compare(sides, on_step), strict=True):
                    line = (
                        f"{side.which:<8} holds {format_bytes(facts['held']):>8} while open, "
                        f"{format_bytes(facts['kept']):>8} after close()"
                    )
                    console.print(f"  [{_STYLES[side.which]}]{escape(line)}[/]", highlight=False)
    return sides


def print_table(console: Any, raw: Side, ours: Side) -> None:
    """Print the measurements of both sides, and what they mean."""
    from rich.table import Table

    table = Table(title="What the program holds beyond TensorFlow itself")
    for column in ("session", "", "while open", "after close()", "came back", "one call"):
        table.add_column(column, justify="left" if column in ("session", "") else "right")
    for pair in zip(raw.models, ours.models, strict=True):
        for side, facts in zip((raw, ours), pair, strict=True):
            share = facts["returned"] / facts["held"] if facts["held"] else 0
            table.add_row(
                f"{facts['units']} units" if side is raw else "",
                side.which,
                format_bytes(facts["held"]),
                f"[{_STYLES[side.which]}]{format_bytes(facts['kept'])}[/]",
                f"[{_STYLES[side.which]}]{share:.0%}[/]",
                format_seconds(facts["call_seconds"]),
            )
        table.add_section()
    console.print(table)
    console.print(
        f"Every session is closed. The raw program still holds "
        f"[red]{format_bytes(raw.models[-1]['kept'])}[/], and does until it exits. The one on "
        f"sojourn holds [green]{format_bytes(ours.models[-1]['kept'])}[/] (Python objects of its "
        f"graphs); its zygote, which has TensorFlow imported for the next session, stands at "
        f"{format_bytes(ours.imported['standing'])}.\n"
        "One call computes one row: the median of calls on both sides in turn.\n"
        "Next: [bold]sojourn bench[/bold] measures every claim; docs/index.md has more.",
        highlight=False,
    )
