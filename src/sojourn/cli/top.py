"""`sojourn top`: the sessions of this user in all processes, or the views of a server."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

import click
from click.core import ParameterSource

from sojourn.cli.options import Data, data_options
from sojourn.cli.server_client import Client, Wanted, server_options
from sojourn.cli.top_server import render as render_server
from sojourn.cli.top_table import KEYS, ordered, render
from sojourn.session.listing import Listed, Lister

_RATE_SECONDS = 0.5
_NEEDS_TEXTUAL = "The live view needs textual: pip install 'sojourn[top]'\n"


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
    help="Seconds between two updates of the live view.",
)
@click.option("--server", is_flag=True, help="Show a server: that at --url, or the one here.")
@server_options
def command(
    once: bool,
    data: Data,
    sort: str,
    reverse: bool,
    interval: float,
    server: bool,
    wanted: Wanted,
) -> None:
    """Watch every session of this user: what it holds, what it does, and the line that opened it.

    In a terminal this is a live view (with the `top` extra); otherwise, or with --once, a table.
    Runs per second are the current rate; p50 and p99 cover the whole life of a session.

    With --server, or a --url, it shows the views of a server's page: memory and who waits for it,
    models, receipts.
    """
    is_live = not (once or data.is_wanted) and sys.stdout.isatty() and sys.stdin.isatty()
    url_from = click.get_current_context().get_parameter_source("url")
    if server or url_from is ParameterSource.COMMANDLINE:  # SOJOURN_URL alone is for other commands
        _show_server(wanted.client(), data, is_live, interval)
        return
    if is_live:
        try:
            from sojourn.cli.top_view import TopView
        except ImportError:
            click.echo(_NEEDS_TEXTUAL, err=True)
        else:
            TopView(sort, reverse, interval).run()
            return
    sessions = ordered(_look_twice(), sort, reverse)
    data.give({"sessions": [one.to_dict() for one in sessions]})
    if not data.is_printed:
        click.echo(render(sessions))


def _show_server(client: Client, data: Data, is_live: bool, interval: float) -> None:
    def look() -> dict[str, Any]:
        state: dict[str, Any] = client.ask("GET", "/page/api/state")
        return state

    if is_live:
        try:
            from sojourn.cli.top_server_view import ServerView
        except ImportError:
            click.echo(_NEEDS_TEXTUAL, err=True)
        else:
            ServerView(look, client.url, interval).run()
            return
    state = look()
    state["server"].pop("secret", None)  # only the page needs it
    data.give(state)
    if not data.is_printed:
        click.echo(render_server(state, client.url, shutil.get_terminal_size().columns))


def _look_twice() -> list[Listed]:
    lister = Lister()
    if lister.list():
        time.sleep(_RATE_SECONDS)  # a rate needs two readings
    return lister.list()
