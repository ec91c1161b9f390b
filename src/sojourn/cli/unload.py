"""`sojourn unload`: make a server free a model's memory."""

from __future__ import annotations

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.server_client import Wanted, model_path, server_options
from sojourn.cli.terminal import plain


@click.command(name="unload")
@click.argument("model")
@click.option("--version", type=click.IntRange(min=1), help="This version only.")
@click.option("--keep-serving", is_flag=True,
              help="Free the memory, but load the model again at the next request.")  # fmt: skip
@server_options
@data_options
def command(
    model: str, version: int | None, keep_serving: bool, wanted: Wanted, data: Data
) -> None:
    """Unload MODEL once its requests are answered, and print the receipts.

    It is not served until `sojourn load`.
    """
    client = wanted.client(admin=True)
    what = "evict" if keep_serving else "unload"
    answer = client.ask("POST", model_path(model, what), {"version": version})
    data.give(answer)
    if data.is_printed:
        return
    if keep_serving:
        click.echo("its idle copies are gone" if answer["evicted"] else "still in use")
        return
    for receipt in answer["receipts"]:
        click.echo(plain(receipt["text"]))
    if not answer["receipts"]:
        click.echo("it was not loaded")
