"""`sojourn audit`: run a program and report the TensorFlow sessions it leaks."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import click

from sojourn.cli.options import Data, data_options, file_option
from sojourn.cli.program_command import (
    Chosen,
    ProgramCommand,
    output_to_stderr,
    program_options,
    reporting,
    written,
)
from sojourn.cli.terminal import wants_colour


@click.command(cls=ProgramCommand, name="audit")
@file_option("--html", "page", help="Write the report with its timeline to FILE.")
@data_options
@click.option("--ignore", metavar="CODES", default="", help="Codes to leave out: SOJ003,SOJ007.")
@program_options
def command(chosen: Chosen, page: Path | None, data: Data, ignore: str) -> None:
    """Run a program, unchanged, and report what its TensorFlow sessions leak.

    \b
        sojourn audit train.py --epochs 3
        sojourn audit --html report.html -m pytest tests

    A program of the TensorFlow 1 era gets the TensorFlow that `sojourn run` gives it, with
    TensorFlow's own sessions. The report goes to standard error, after the program's own output.
    With --json it is printed as JSON, and the program's own output goes to standard error.
    The exit code is the program's own if it failed, 1 if something was found, and 0 if all is well.
    """
    from sojourn.audit.block import Audit
    from sojourn.audit.codes import CODES
    from sojourn.compat import legacy
    from sojourn.program import Program

    ignored = {code.strip().upper() for code in ignore.split(",") if code.strip()}
    if unknown := sorted(ignored - CODES.keys()):
        raise click.UsageError(
            f"Unknown code: {', '.join(unknown)}. There are {', '.join(sorted(CODES))}."
        )
    pid = os.getpid()
    audit = Audit(goes_on=False)
    verdict = legacy.judge(chosen.target, chosen.is_module, chosen.era)
    with (
        output_to_stderr(data.is_printed),
        legacy.environment(verdict, "raw") if verdict.graph else nullcontext(),
    ):
        running = Program(chosen.target, chosen.args, is_module=chosen.is_module)
        audit.start()
        try:
            exit_code = running.run()
            if os.getpid() != pid:
                # This is a fork of the program; its parent prints the report.
                sys.exit(exit_code)
            audit.mark_exit()
            running.end()
        finally:
            # Report before the environment closes the sessions that the program left open.
            if os.getpid() == pid:
                found = audit.finish()
    found.findings = tuple(f for f in found if f.code not in ignored)

    value = {**found.to_dict(), "exit_code": exit_code}
    is_written = written(lambda: data.write(value))
    has_page = page is not None and written(partial(found.write_html, page, chosen.title))
    with reporting():
        data.print(value)
        if not data.is_printed:
            colour = wants_colour(sys.stderr)
            click.echo("\n" + found.text(colour), err=True, color=colour)
            if has_page:
                click.echo(f"report: {page}", err=True)
    has_failed = not is_written or has_page != (page is not None)
    sys.exit(exit_code or int(bool(found) or has_failed))
