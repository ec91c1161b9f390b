"""`sojourn logs`: the last lines of a server's log."""

from __future__ import annotations

import json

import click

from sojourn.cli.server_client import Wanted, server_options
from sojourn.cli.terminal import plain


@click.command(name="logs")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True,
              help="How many of the last lines.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the server ends.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON string.")
@server_options
def command(lines: int, follow: bool, as_json: bool, wanted: Wanted) -> None:
    """Print what a server has logged: models that came and went, their receipts, what failed.

    The server keeps its last 2,000 lines. Requests are in its access log, if it has one.
    """
    client = wanted.client(admin=True)
    try:
        for line in client.lines(f"/admin/logs?lines={lines}&follow={int(follow)}"):
            click.echo(json.dumps(line) if as_json else plain(line))
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the reader has seen enough
