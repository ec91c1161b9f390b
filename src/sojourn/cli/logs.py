"""`sojourn logs`: the last lines of a server's log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.server_client import Wanted, server_options
from sojourn.cli.terminal import plain


@click.command(name="logs")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=100, show_default=True,
              help="How many of the last lines.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the server ends.")
@server_options
@data_options
def command(lines: int, follow: bool, wanted: Wanted, data: Data) -> None:
    """Print what a server has logged: models that came and went, their receipts, what failed.

    The server keeps its last 2,000 lines. Requests are in its access log, if it has one. With
    --follow, --json prints each line as a JSON string of its own.
    """
    if follow and data.file is not None:
        raise click.UsageError("--follow and --output exclude each other.")
    client = wanted.client(admin=True)
    if follow:
        client = replace(client, timeout=None)  # a server that logs nothing has not failed
    try:
        logged: Iterable[str] = client.lines(f"/admin/logs?lines={lines}&follow={int(follow)}")
        if data.is_wanted and not follow:
            logged = list(logged)
            data.give({"lines": logged})
        if follow or not data.is_printed:
            for line in logged:
                click.echo(json.dumps(line) if data.is_printed else plain(line))
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the reader has seen enough
