"""`sojourn load`: make a server load a model."""

from __future__ import annotations

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.server_client import Wanted, model_path, server_options
from sojourn.cli.terminal import plain
from sojourn.values import format_bytes


@click.command(name="load")
@click.argument("model")
@click.option("--version", type=click.IntRange(min=1), help="This version. Default: those served.")
@server_options
@data_options
def command(model: str, version: int | None, wanted: Wanted, data: Data) -> None:
    """Have a running server load MODEL now, also if it was unloaded; returns when it is ready."""
    client = wanted.client(admin=True)
    answer = client.ask("POST", model_path(model, "load"), {"version": version})
    data.give(answer)
    if not data.is_printed:
        for one in answer["models"]:
            size = f", {format_bytes(one['memory_bytes'])}" if one["is_loaded"] else ""
            text = f"{one['name']}, version {one['version']}: {one['state'].lower()}{size}"
            click.echo(plain(f"{text} {one['error']}".rstrip()))
