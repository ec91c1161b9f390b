"""Compare servers of models: `make serving`, or `python benchmarks/serving`."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import signal
import sys
import tempfile
from typing import Any

import click
import scenarios
import table
from environments import HERE, NotMeasured, python_of
from running import running
from systems import CLIENT, SYSTEMS, System

import sojourn

sys.path.insert(0, str(HERE / "peers"))


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only these peers (may be repeated).")
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="Of each run.")
@click.option("--peers/--no-peers", default=True, help="Compare with others.")
@click.option("--extras/--no-extras", default=True, help="Batching, starting, a model of 400 MB.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures, not the tables.")
@click.option("--write", is_flag=True, help="Write score.md and score.json here.")
def main(
    only: tuple[str, ...],
    rounds: int,
    seconds: float,
    peers: bool,
    extras: bool,
    as_json: bool,
    write: bool,
) -> None:
    """Serve the same small model by each system and load them in turns."""
    chosen = [
        system
        for system in SYSTEMS
        if not system.packages or (peers and (not only or system.name in only))
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # like Ctrl-C: clean up, then end
    with tempfile.TemporaryDirectory(prefix="serving-models-") as folder:
        import ours

        progress("writing the models")
        sojourn.isolated(ours.save)(folder)
        score = measure(chosen, folder, rounds, seconds, extras)
    text = table.markdown(score)
    click.echo(json.dumps(score, indent=2) if as_json else text, nl=as_json)
    if write:
        (HERE / "score.json").write_text(json.dumps(score, indent=2) + "\n")
        (HERE / "score.md").write_text(f"# Servers of models\n\n{text}")


def measure(
    chosen: list[System], folder: str, rounds: int, seconds: float, extras: bool
) -> dict[str, Any]:
    score: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[1],
        "rounds": rounds,
        "seconds": seconds,
        "not_measured": {},
    }
    pythons: dict[System, str] = {}
    for system in chosen:  # installation is not measured
        try:
            pythons[system] = python_of(system.name, system.packages, progress)
        except NotMeasured as why:
            score["not_measured"][system.name] = str(why)
    with contextlib.ExitStack() as stack:
        targets = {}
        for system, python in pythons.items():
            progress(f"starting {system.name}")
            try:
                targets[system] = stack.enter_context(
                    running(system, python, *([folder] if not system.packages else []))
                )
            except NotMeasured as why:
                progress(f"not measured: {why}")
                score["not_measured"][system.name] = str(why)
        score["protocols"] = scenarios.in_turns(targets, rounds, seconds, progress)
        try:
            python = python_of(*CLIENT, progress)
            progress("tritonclient")
            score["tritonclient"] = scenarios.real_client(targets, python, rounds, seconds)
        except NotMeasured as why:
            score["not_measured"]["tritonclient"] = str(why)
        score["in_process_p50"] = scenarios.in_process(folder)
    ours = next(system for system in chosen if not system.packages)
    if extras:
        progress("batching, and a model of 400 MB")
        with running(ours, sys.executable, folder) as target:
            score["batching"] = scenarios.batching(target, rounds, seconds)
            score["big_model"] = scenarios.big_model(target, seconds, rounds)
        progress("starting each alone")
        score["starts"] = {
            system.name: scenarios.starting(
                system, pythons[system], *([folder, "many"] if system is ours else [])
            )
            for system in targets
        }
    return score


def progress(text: str) -> None:
    click.echo(f"... {text}", err=True)


if __name__ == "__main__":
    main()
