"""`sojourn ps`: the running servers and their models."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.server_client import Client, ServerError, Wanted, server_options
from sojourn.cli.terminal import in_columns, plain
from sojourn.service.records import Record, running
from sojourn.values import format_bytes, format_seconds

ANSWER_SECONDS = 5.0  # timeout: a server that is stuck must not hide the others


@click.command(name="ps")
@server_options
@data_options
def command(wanted: Wanted, data: Data) -> None:
    """List the servers of this user and their models: state, memory, when an idle one is closed.

    Without --url these are all servers that run here. Exit code 1 if there are none.
    """
    if wanted.url is not None:
        record = wanted.record()
        facts = {"url": wanted.url} if record is None else _facts(record)
        found = [{**_status(wanted.client(admin=True)), **facts}]
    else:
        found = [_asked(wanted, record) for record in running()]
    data.give({"servers": found})
    if not data.is_printed:
        click.echo("\n\n".join(map(_text, found)) if found else "no server of yours runs here")
    if not found:
        raise SystemExit(1)


def _asked(wanted: Wanted, record: Record) -> dict[str, Any]:
    facts = _facts(record)
    try:
        return {**_status(wanted.of_record(record, admin=True)), **facts}
    except click.ClickException as error:  # list it nevertheless: the server runs
        status = error.status if isinstance(error, ServerError) else None
        return {**facts, "problem": error.message, "problem_status": status}


def _status(client: Client) -> dict[str, Any]:
    status: dict[str, Any] = replace(client, timeout=ANSWER_SECONDS).ask("GET", "/admin/status")
    return status


def _facts(record: Record) -> dict[str, Any]:
    return {
        "pid": record.pid,
        "url": record.name,
        "grpc": record.grpc,
        "started": record.started,
    }


def _text(server: dict[str, Any]) -> str:
    up = format_seconds(max(0.0, time.time() - server["started"]))
    head = f"{server['url']}  pid {server['pid']}, up {up}"
    if server.get("grpc"):
        head += f", gRPC at {server['grpc']}"
    if "problem" in server:
        return plain(f"{head}: {server['problem']}")
    memory = server["memory"]
    head += f", {format_bytes(memory['charged_bytes'])}"
    if memory["limit_bytes"] is not None:
        head += f" of {format_bytes(memory['limit_bytes'])}"
    rows: list[tuple[str, ...]] = [
        ("model", "version", "state", "holds", "copies", "under way", "leaves in", "")
    ]
    rows += [_row(m) for m in sorted(server["models"], key=lambda m: (m["name"], m["version"]))]
    return "\n".join([plain(head), *in_columns(rows)])


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    state = model["state"].lower()
    if state == "available" and not model["is_loaded"]:
        state = "on demand"
    elif state == "end":
        state = "failed" if model["error"] else "unloaded"
    labels = "".join(f" ({label})" for label in model["labels"])
    leaves = model["leaves_in_seconds"]
    return (
        plain(model["name"]),
        plain(f"{model['version']}{labels}"),
        state,
        format_bytes(model["memory_bytes"]) if model["is_loaded"] else "-",
        str(model["copies"]),
        str(model["uses"]),
        "pinned" if model["pinned"] else "-" if leaves is None else format_seconds(leaves),
        plain(model["error"]),
    )
