"""`sojourn top`: the sessions of this user over all processes."""

from __future__ import annotations

import sys
import time

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.top_table import KEYS, ordered, render
from sojourn.session.listing import Listed, Lister

_RATE_SECONDS = 0.5


@click.command(name="top")
@click.option("--once", is_flag=True, help="Print a table and exit.")
@data_options
@click.option(
    "--sort",
    type=click.Choice(KEYS),
    default="name",
    show_default=True,
    help="The column to sort by; numbers from the largest.",
)
@click.option("--reverse", is_flag=True, help="Sort the other way round.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    help="Seconds between two looks of the live view.",
)
def command(once: bool, data: Data, sort: str, reverse: bool, interval: float) -> None:
    """Watch every session of this user: what it holds, what it does, and the line that opened it.

    In a terminal this is a live view (with the `top` extra); otherwise, or with --once, a table.
    Runs a second are those of now; p50 and p99 those of the whole life of a session.
    """
    if not (once or data.is_wanted) and sys.stdout.isatty() and sys.stdin.isatty():
        try:
            from sojourn.cli.top_view import TopView
        except ImportError:
            click.echo("The live view needs textual: pip install 'sojourn[top]'\n", err=True)
        else:
            TopView(sort, reverse, interval).run()
            return
    sessions = ordered(_look_twice(), sort, reverse)
    data.give({"sessions": [one.to_dict() for one in sessions]})
    if not data.is_printed:
        click.echo(render(sessions))


def _look_twice() -> list[Listed]:
    lister = Lister()
    if lister.list():
        time.sleep(_RATE_SECONDS)  # a rate needs two readings
    return lister.list()
