"""`sojourn audit`: run a program and report the TensorFlow sessions it leaks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sojourn.cli.program_command import ProgramCommand


@click.command(cls=ProgramCommand, name="audit")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the report with its timeline to FILE.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON; the program's own output goes to standard error.")  # fmt: skip
@click.option("--ignore", metavar="CODES", default="", help="Codes to leave out: SOJ003,SOJ007.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(
    module: str | None, page: Path | None, as_json: bool, ignore: str, program: tuple[str, ...]
) -> None:
    """Run a program that knows nothing of sojourn, and report what its TensorFlow sessions leak.

    \b
        sojourn audit train.py --epochs 3
        sojourn audit --html report.html -m pytest tests

    The report goes to standard error, after the program's own output. The exit code is the
    program's own if it failed, 1 if something was found, and 0 if all is well.
    """
    from sojourn.audit.block import Audit
    from sojourn.audit.codes import CODES
    from sojourn.program import Program, ProgramNotFound

    if module is None and not program:
        raise click.UsageError("Name a program to run, or a module with -m.")
    ignored = {code.strip().upper() for code in ignore.split(",") if code.strip()}
    if unknown := sorted(ignored - CODES.keys()):
        raise click.UsageError(
            f"Unknown code: {', '.join(unknown)}. There are {', '.join(sorted(CODES))}."
        )
    if page is not None and not page.absolute().parent.is_dir():
        raise click.UsageError(f"No such folder: {page.absolute().parent}")

    target, args = (module, program) if module is not None else (program[0], program[1:])
    pid = os.getpid()
    audit = Audit(goes_on=False)
    with _output_to_stderr() if as_json else _output_as_it_is():
        running = Program(target, args, is_module=module is not None)
        audit.start()
        try:
            exit_code = running.run()
        except ProgramNotFound as error:
            audit.finish()
            raise click.UsageError(str(error)) from None
        if os.getpid() != pid:
            # A fork of the program came out of it here; the report is its parent's to give.
            sys.exit(exit_code)
        audit.mark_exit()
        running.end()
    found = audit.finish()
    found.findings = tuple(f for f in found if f.code not in ignored)

    if page is not None:
        found.write_html(page, " ".join((f"-m {module}" if module else target, *args)))
    if as_json:
        click.echo(json.dumps({**found.to_dict(), "exit_code": exit_code}, indent=2))
    else:
        colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        click.echo("\n" + found.text(colour), err=True, color=colour)
        if page is not None:
            click.echo(f"report: {page}", err=True)
    sys.exit(exit_code or (1 if found else 0))


@contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Send descriptor 1 to standard error, so that what comes after is alone on standard output."""
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


@contextmanager
def _output_as_it_is() -> Iterator[None]:
    yield
