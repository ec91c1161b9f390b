"""`sojourn demo`: the same program on raw TensorFlow and on sojourn, side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import click

from sojourn.values import format_bytes, format_seconds


@click.command(name="demo")
@click.option("--json", "as_json", is_flag=True, help="Print what was measured as JSON.")
def command(as_json: bool) -> None:
    """Train three models one after the other, on raw TensorFlow and then on sojourn.

    It is one TF1-style program; only the name of the session's class differs. Watch what each
    model's session holds, and what comes back when it is closed.
    """
    from rich.console import Console

    console = Console(stderr=as_json)
    results = {}
    for which, title in (("raw", "raw TensorFlow"), ("sojourn", "sojourn")):
        console.print(f"[bold]{title}[/bold]: three models, one after the other")
        results[which] = _run(which, console)
    if as_json:
        click.echo(json.dumps(results, indent=2))
    else:
        _print(console, results)


def _run(which: str, console: Any) -> dict[str, Any]:
    from rich.progress import BarColumn, Progress, TextColumn

    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    program = subprocess.Popen(
        [sys.executable, "-m", "sojourn.demo.program", which],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    models: list[dict[str, Any]] = []
    bar = (
        TextColumn("  {task.description:<28}"),
        BarColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with program, Progress(*bar, console=console) as progress:
        task = progress.add_task("importing TensorFlow", total=None, now="")
        for line in program.stdout:
            facts = json.loads(line)
            if facts["kind"] == "step":
                progress.update(
                    task,
                    description=f"training {facts['units']} hidden units",
                    completed=facts["step"],
                    total=facts["steps"],
                    now=f"loss {facts['loss']:.3f}",
                )
            else:
                models.append(facts)
                console.print(
                    f"  {facts['units']:>5} units: {format_bytes(facts['held'])} held, "
                    f"{format_bytes(facts['returned'])} returned by close()"
                )
        errors = program.stderr.read()
    if program.returncode != 0:
        click.echo(errors, err=True)
        raise click.ClickException(f"the {which} program ended with code {program.returncode}")
    return {"models": models}


def _print(console: Any, results: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title="What each session held, and what its close() gave back")
    for column in ("model", "", "held", "returned", "process still holds", "one call, batch 1"):
        table.add_column(column, justify="left" if column in ("model", "") else "right")
    for raw, ours in zip(results["raw"]["models"], results["sojourn"]["models"], strict=True):
        for name, facts, style in (("raw", raw, "red"), ("sojourn", ours, "green")):
            share = facts["returned"] / facts["held"] if facts["held"] else 0
            table.add_row(
                f"{facts['units']} units" if name == "raw" else "",
                name,
                format_bytes(facts["held"]),
                f"[{style}]{format_bytes(facts['returned'])} ({share:.0%})[/]",
                format_bytes(facts["kept"]),
                format_seconds(facts["call_seconds"]),
            )
        table.add_section()
    console.print(table)
    kept = {name: format_bytes(facts["models"][-1]["kept"]) for name, facts in results.items()}
    console.print(
        f"After its last session was closed, the raw program still holds {kept['raw']}, "
        f"the one on sojourn {kept['sojourn']} (its graphs' Python objects) and no process.\n"
        "Next: [bold]sojourn bench[/bold] measures every claim, docs/ explains them."
    )
