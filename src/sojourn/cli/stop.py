"""`sojourn stop`: stop a server after the requests under way."""

from __future__ import annotations

import os
import select
import signal
from typing import Any

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.server_client import Wanted, server_options
from sojourn.service.records import Record, running


@click.command(name="stop")
@click.option("--all", "every", is_flag=True, help="Stop every server of yours that runs here.")
@click.option("--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
              help="Seconds to wait until it has ended.")  # fmt: skip
@server_options
@data_options
def command(every: bool, timeout: float, wanted: Wanted, data: Data) -> None:
    """Stop a server: it takes no more requests, answers those under way, and leaves nothing behind.

    One that runs here gets a signal and is waited for; one at a --url is asked by its admin API.
    """
    if every and wanted.url is not None:
        raise click.UsageError("--all and --url exclude each other.")
    record = None if every else wanted.record()
    if record is None and not every:
        wanted.client().ask("POST", "/admin/drain")
        stopped: list[dict[str, Any]] = [{"url": wanted.url, "ended": None}]
    else:
        records = running() if record is None else [record]
        stopped = [
            {"url": one.name, "pid": one.pid, "ended": _end(one, timeout)} for one in records
        ]
    data.give({"stopped": stopped})
    if not data.is_printed:
        if not stopped:
            click.echo("no server of yours runs here")
        for one in stopped:
            click.echo(f"{one['url']} {_HOW[one['ended']]}")
    if any(one["ended"] is False for one in stopped):
        raise SystemExit(1)


_HOW = {True: "has ended", False: "still answers requests", None: "was asked to end"}


def _end(record: Record, timeout: float) -> bool:
    try:
        pidfd = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return True
    try:
        # The pid may have been reused before the descriptor was opened: check the records again.
        if record in running():
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        return bool(select.select([pidfd], [], [], timeout)[0])
    finally:
        os.close(pidfd)
