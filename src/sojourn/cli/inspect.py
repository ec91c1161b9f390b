"""`sojourn inspect`: what a model contains, before it is loaded."""

from __future__ import annotations

import sys

import click

from sojourn.cli.options import Data, data_options
from sojourn.cli.terminal import plain
from sojourn.errors import ModelError
from sojourn.probes.model_files import ModelSummary, inspect_model
from sojourn.values import format_bytes

_SHOWN = 15
_MOST_FINDINGS = 50


@click.command(name="inspect", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path())
@click.option("--all", "show_all", is_flag=True, help="Show every op, layer and weight.")
@data_options
def command(path: str, show_all: bool, data: Data) -> None:
    """Show what a model contains, without loading it and without its framework.

    PATH is a SavedModel folder, a .keras, .h5, .onnx or .tflite file, a frozen .pb, or a
    checkpoint. The exit code is 1 when something in it touches files or the network or runs code,
    or when it or a part of it cannot be read.
    """
    try:
        summary = inspect_model(path)
    except ModelError as error:
        data.give({"path": path, "error": str(error)})
        if not data.is_printed:
            click.echo(f"Error: {plain(str(error))}", err=True)
        sys.exit(1)
    data.give(summary.to_dict())
    if not data.is_printed:
        _print(summary, show_all)
    sys.exit(1 if summary.is_dangerous or summary.unread else 0)


def _print(summary: ModelSummary, show_all: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)  # honours NO_COLOR

    def line(text: str, style: str = "") -> None:
        console.print(Text(plain(text), style), soft_wrap=True)

    def table(title: str, rows: list[tuple[str, str]]) -> None:
        shown = rows if show_all else rows[:_SHOWN]
        grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for left, right in shown:
            grid.add_row(Text("  " + plain(left)), Text(plain(right)))
        line(title, "bold")
        console.print(grid)
        if len(rows) > len(shown):
            line(f"  and {len(rows) - len(shown)} more (--all shows them)", "dim")

    line(f"{summary.path}: {summary.kind}, {format_bytes(summary.file_bytes)}", "bold")
    facts = [summary.made_with, *(f"tags {tags}" for tags in summary.tags)]
    if summary.weights:
        count = len(summary.weights)
        size = format_bytes(summary.weight_bytes)
        facts.append(f"{count} weight{'s' if count != 1 else ''}, {size}")
    elif summary.weight_bytes:
        facts.append(f"weights {format_bytes(summary.weight_bytes)}")
    if summary.functions:
        facts.append(f"{summary.functions} function{'s' if summary.functions != 1 else ''}")
    if any(facts):
        line(", ".join(fact for fact in facts if fact))
    if summary.signatures:
        # The configuration of a Keras model only names the inputs.
        shown = [(n, str(s).removesuffix(" -> ()")) for n, s in summary.signatures.items()]
        table("signatures", shown)
    if summary.layers:
        table("layers", [(name, str(count)) for name, count in summary.layers.items()])
    if summary.ops:
        table("ops", [(name, str(count)) for name, count in summary.ops.items()])
    if summary.assets:
        table("assets", [(name, "") for name in summary.assets])
    if summary.weights and show_all:
        rows = [(w.name, f"{w.spec}  {format_bytes(w.size_bytes)}") for w in summary.weights]
        table("weights", rows)
    console.print()
    findings = summary.findings if show_all else summary.findings[:_MOST_FINDINGS]
    for finding in findings:
        is_danger = finding.severity == "danger"
        line(f"{finding.severity}: {finding}", "bold red" if is_danger else "yellow")
    if len(findings) < len(summary.findings):
        line(f"and {len(summary.findings) - len(findings)} more (--all shows them)", "dim")
    for reason in summary.unchecked:
        line(f"not checked: {reason}", "yellow")
    for reason in summary.unread:
        line(f"not read: {reason}", "bold red")
    if summary.is_dangerous:
        line("Open it only with untrusted=True, or not at all.", "bold red")
    elif summary.unread:
        line("Not all of it was read: open it only with untrusted=True.", "bold red")
    else:
        line("Nothing dangerous was found.", "green")
