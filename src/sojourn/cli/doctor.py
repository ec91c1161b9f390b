"""`sojourn doctor`: check whether sojourn works on this machine, and advise what to do if not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sojourn._version import __version__
from sojourn.cli.options import Data, data_options
from sojourn.cli.terminal import wants_colour

if TYPE_CHECKING:
    from sojourn.probes.doctor import Check

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command(name="doctor")
@data_options
def command(data: Data) -> None:
    """Check Python, TensorFlow, GPUs, the kernel's features, limits and stale processes.

    Features are tried, not looked up. Every line is ok, a warning or a problem with advice.
    The exit code is 1 if there is a problem. TensorFlow is not imported.
    """
    from sojourn.probes import doctor, machine
    from sojourn.process.trial import try_lifeline

    checks = doctor.examine(machine.collect({"lifeline": try_lifeline}))
    verdicts = [check.verdict for check in checks]
    data.give(
        {
            "sojourn": __version__,
            "system": machine.describe(),
            "checks": [check.to_dict() for check in checks],
            "problems": verdicts.count(doctor.PROBLEM),
            "warnings": verdicts.count(doctor.WARNING),
        }
    )
    if not data.is_printed:
        _show(checks, f"sojourn {__version__}, {machine.describe()}")
    sys.exit(1 if doctor.PROBLEM in verdicts else 0)


def _show(checks: list[Check], heading: str) -> None:
    colour = wants_colour(sys.stdout)
    width = max(len(check.name) for check in checks)
    click.echo(heading)
    for check in checks:
        verdict = check.verdict.ljust(7)
        if colour:
            verdict = click.style(verdict, fg=_COLOURS[check.verdict], bold=check.verdict != "ok")
        click.echo(f"{verdict}  {check.name.ljust(width)}  {check.text}", color=colour)
        if check.cure:
            click.echo(f"{' ' * (width + 11)}{check.cure}")
    problems = sum(check.verdict == "problem" for check in checks)
    warnings = sum(check.verdict == "warning" for check in checks)
    click.echo(f"\n{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}")


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' * (count != 1)}"
