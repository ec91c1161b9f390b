"""`sojourn nodes`: the nodes of a cluster, their memory budgets and their open copies."""

from __future__ import annotations

import logging
from typing import Any

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.terminal import in_columns, plain
from sojourn.values import format_bytes

HEADINGS = ("node", "holds", "of", "calls", "model", "state", "size", "leases", "runs")


@click.command(name="nodes")
@click.option("--address", default="auto", help="The address of Ray. Default: that of this node.")
@data_options
def command(address: str, data: Data) -> None:
    """List the nodes of the cluster that Ray knows, their budgets and the copies open on them.

    Exit code 1 if no program is connected to it.
    """
    try:
        from sojourn.cluster.connecting import look
    except ImportError as error:
        raise click.ClickException(f"{error}: install sojourn[ray]") from None
    try:
        found = look(address, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise click.ClickException(f"no Ray at {address!r}: {error}") from None
    data.give(found or {"nodes": []})
    if not data.is_printed:
        click.echo("no program is connected to this cluster" if found is None else _text(found))
    if found is None:
        raise SystemExit(1)


def _text(found: dict[str, Any]) -> str:
    rows: list[tuple[str, ...]] = [HEADINGS]
    for node in found["nodes"]:
        facts = (
            plain(node["node"]),
            format_bytes(node["held_bytes"]),
            format_bytes(node["budget_bytes"]),
            str(node["calls"]),
        )
        copies = [_copy(copy) for copy in node["copies"]] or [("",) * 5]
        rows.append((*facts, *copies[0]))
        rows += [("", "", "", "", *copy) for copy in copies[1:]]
    return "\n".join([*in_columns(rows), *map(plain, found["lost"])])


def _copy(copy: dict[str, Any]) -> tuple[str, ...]:
    return (
        plain(copy["model"]),
        copy["state"],
        format_bytes(copy["bytes"]),
        str(copy["leases"]),
        str(copy["runs"]),
    )
