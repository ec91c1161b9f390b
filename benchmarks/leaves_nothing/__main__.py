"""Score systems by what they leave behind: `make score`, or `python benchmarks/leaves_nothing`."""

from __future__ import annotations

import datetime
import json
import os
import platform
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import adapter
import click
import environments
import outside
import scenarios
import systems
import table
import timing
from scenarios import NotMeasured, Place


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only this system (may be repeated).")
@click.option(
    "--system", "own", multiple=True, metavar="FILE.py:CLASS", help="An adapter of your own, too."
)
@click.option("--times/--no-times", default=True, help="Compare opening, calls and closing.")
@click.option("--settle", default=5.0, metavar="SECONDS", help="How long things may take to go.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures, not the table.")
@click.option("--write", is_flag=True, help="Write score.md and score.json here, and into README.")
@click.option("--show", type=click.Path(exists=True), help="The table of this score.json.")
@click.option("--list", "as_list", is_flag=True, help="Print the systems and end.")
def main(
    only: tuple[str, ...],
    own: tuple[str, ...],
    times: bool,
    settle: float,
    as_json: bool,
    write: bool,
    show: str | None,
    as_list: bool,
) -> None:
    """Open, use, close and kill each system, and print what is left."""
    chosen = {address: adapter.load(address) for address in (*systems.ADDRESSES, *own)}
    names = {system.name for system in chosen.values()}
    if unknown := set(only) - names:
        raise click.UsageError(f"no such system: {', '.join(unknown)}; try --list")
    if only:
        chosen = {a: s for a, s in chosen.items() if s.name in only}
    if as_list:
        for system in chosen.values():
            click.echo(f"{system.name}: {system.about}")
        return
    if show:
        score = json.loads(Path(show).read_text())
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # like Ctrl-C: clean up, then end
        with tempfile.TemporaryDirectory(prefix="leaves-nothing-") as folder:
            score = _measure(chosen, times, settle, Path(folder))
    text = table.markdown(score)
    click.echo(json.dumps(score, indent=2) if as_json else text, nl=as_json)
    if write:
        here = scenarios.HERE
        (here / "score.json").write_text(json.dumps(score, indent=2) + "\n")
        (here / "score.md").write_text(f"# What is left behind\n\n{text}")
        table.put_into(environments.PROJECT / "README.md", text)


def _measure(
    chosen: dict[str, adapter.System], times: bool, settle: float, folder: Path
) -> dict[str, Any]:
    load = os.getloadavg()[1]  # of other programs, before this one adds to it
    found: dict[str, dict[str, Any]] = {}
    places: dict[str, Place] = {}
    pythons: dict[str, str | NotMeasured] = {}
    for address, system in chosen.items():  # installation is not measured
        try:
            pythons[address] = environments.python_of(system.environment, _progress)
        except NotMeasured as why:
            pythons[address] = why
    outside.become_subreaper()
    if not outside.have_own_shared_memory():
        _progress("/dev/shm is shared with other programs here: their names may be counted")
    for address, system in chosen.items():
        found[address] = {"name": system.name, "about": system.about, "address": address}
        prepared = folder / str(len(found))
        prepared.mkdir()
        _progress(system.name)
        try:
            python = pythons[address]
            if isinstance(python, NotMeasured):
                raise python
            place = Place(address, python, system.listens, prepared, settle)
            found[address] |= scenarios.score(place)
            places[address] = place
        except NotMeasured as why:
            _progress(f"not measured: {why}")
            found[address]["not_measured"] = str(why)
    if times:
        for address, middles in timing.time_all(places, _progress).items():
            found[address] |= middles
    baseline = chosen.get(systems.BASELINE)
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": load,
        "baseline": systems.BASELINE,
        "baseline_name": baseline.name if baseline else "",
        "systems": list(found.values()),
    }


def _progress(text: str) -> None:
    click.echo(f"... {text}", err=True)


if __name__ == "__main__":
    main()
