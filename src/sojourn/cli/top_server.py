"""The output of `sojourn top --server`: the views of a server's page as lines of text. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sojourn.cli.terminal import in_columns, plain
from sojourn.cli.top_table import UNKNOWN, idle, short
from sojourn.values import format_bytes, format_seconds

State = Mapping[str, Any]
# State of a block of the bar -> its character, and the name that is shown.
STATES = {
    "leased": ("█", "in use"),
    "idle": ("▓", "idle"),
    "opening": ("░", "being opened"),
    "parking": ("▒", "being parked"),
    "closing": ("▒", "being released"),
    "broken": ("x", "worker died"),
    "spare": ("=", "spare worker"),
}
FREE = "·"


def overview(state: State, width: int = 80) -> list[str]:
    """Return the memory bar, its blocks, the current rates, and the requests that wait."""
    shown, now = state["snapshot"], state["now"]
    budget, blocks = shown["budget"], shown["blocks"]
    limit = budget["limit_bytes"]
    of = " held, no limit" if limit is None else f" of {format_bytes(limit)}"
    lines = [f"memory {format_bytes(budget['charged_bytes'])}{of}", bar(budget, blocks, width), ""]
    rows = [[_name(b["name"]), *_standing(b, now)] for b in blocks]
    titles = ["copy", "state", "holds", "charged", "runs", "what happens"]
    lines += in_columns([titles, *rows]) if rows else ["nothing is resident"]
    lines += ["", numbers(state["latest"].get(""))]
    for wait in shown["waits"]:
        for_how_long = idle(max(0.0, now - wait["since"]))
        lines.append(
            plain(f"{wait['waiting']} wait for {wait['model']}, {for_how_long}: {wait['why']}")
        )
    for incident in shown["incidents"][:5]:
        at = _moment(incident["at"])
        lines.append(plain(f"{at} {incident['kind']} {incident['session']}: {incident['words']}"))
    return lines


def models(state: State, width: int = 80) -> list[str]:
    """Return a table of all versions of all models."""
    rows = [
        [
            _name(model["name"]),
            str(model["version"]),
            model["state"].lower() + (", pinned" if model["pinned"] else ""),
            str(model["copies"]),
            str(model["leases"]),
            str(model["waiting"]),
            format_bytes(model["bytes"]) if model["bytes"] else UNKNOWN,
            str(model["requests"]),
            str(model["failures"]),
            plain(model["error"]),
        ]
        for model in state["snapshot"]["models"]
    ]
    titles = "model version state copies in-use waiting charged requests errors note".split()
    return in_columns([titles, *rows]) if rows else ["no model is served"]


def receipts(state: State, width: int = 80) -> list[str]:
    """Return a table of the last receipts."""
    rows = [
        [
            _name(receipt["session"]),
            _moment(receipt["at"]),
            format_bytes(receipt["held_bytes"] or 0),
            format_bytes(receipt["returned_bytes"] or 0),
            str(receipt["runs"]),
            format_seconds(receipt["seconds"] or 0.0),
            receipt["left_behind"] or "nothing left behind",
        ]
        for receipt in state["receipts"]
    ]
    titles = ["session", "closed", "held", "returned", "runs", "took", "residue"]
    return in_columns([titles, *rows]) if rows else ["nothing has been closed yet"]


VIEWS: dict[str, Callable[[State, int], list[str]]] = {
    "overview": overview,
    "models": models,
    "receipts": receipts,
}


def heading(state: State, url: str) -> str:
    """Return a line that identifies the server."""
    server = state["server"]
    since = _moment(server["started"])
    return plain(f"{url}  sojourn {server['version']} on {server['name']}, since {since}")


def render(state: State, url: str, width: int = 80) -> str:
    """Return all views below each other."""
    parts = [[heading(state, url)], *(view(state, width) for view in VIEWS.values())]
    return "\n\n".join("\n".join(lines) for lines in parts)


def bar(budget: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], width: int) -> str:
    """Draw the budget as a bar: each copy's width shows its charge, with at least one character."""
    used = sum(block["bytes"] for block in blocks)
    whole = max(budget["limit_bytes"] or used, used, 1)
    drawn = "".join(
        STATES[block["state"]][0] * max(1, round(block["bytes"] / whole * (width - 2)))
        for block in blocks
    )
    return f"[{drawn.ljust(width - 2, FREE)}]"


def numbers(point: Mapping[str, Any] | None) -> str:
    """Return the request rates of the last seconds in a line."""
    if point is None:
        return "no numbers yet"
    text = f"{point['requests']:.1f} requests/s, {point['failures']:.1f} errors/s"
    if point["p50"] is not None:
        text += f", p50 {format_seconds(point['p50'])}, p99 {format_seconds(point['p99'])}"
    if point["batch"] is not None:
        text += f", {point['batch']:.1f} rows a batch"
    return f"{text}, {point['waiting']} waiting"


def _standing(block: Mapping[str, Any], now: float) -> list[str]:
    words = ""
    left = None if block["until"] is None else max(0.0, block["until"] - now)
    if block["state"] == "broken":
        words = f"{idle(max(0.0, now - block['since']))} ago: {block['words']}"
    elif block["state"] == "leased":
        words = f"by {block['leases']} request{'s' * (block['leases'] != 1)}"
    elif block["pinned"]:
        words = "pinned"
    elif left is not None:
        what = {"idle": "leaves", "opening": "ready"}.get(block["state"], "receipt")
        words = f"{what} in {idle(left)}"
    held = UNKNOWN if block["held_bytes"] is None else format_bytes(block["held_bytes"])
    charged = format_bytes(block["bytes"]) if block["bytes"] else UNKNOWN
    return [STATES[block["state"]][1], held, charged, str(block["runs"]), plain(words)]


def _name(name: str) -> str:
    return short(plain(name))


def _moment(unix: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix))
