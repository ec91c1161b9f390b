"""`sojourn audit`: run a program and report the TensorFlow sessions it leaks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from sojourn.cli.program_command import ProgramCommand
from sojourn.cli.terminal import wants_colour


@click.command(cls=ProgramCommand, name="audit")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--tf1", "as_tf1", is_flag=True, help="Give it TensorFlow 1, whatever it looks like.")
@click.option("--tf2", "as_tf2", is_flag=True, help="Leave TensorFlow as it is.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the report with its timeline to FILE.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON; the program's own output goes to standard error.")  # fmt: skip
@click.option("--ignore", metavar="CODES", default="", help="Codes to leave out: SOJ003,SOJ007.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(
    module: str | None,
    as_tf1: bool,
    as_tf2: bool,
    page: Path | None,
    as_json: bool,
    ignore: str,
    program: tuple[str, ...],
) -> None:
    """Run a program that knows nothing of sojourn, and report what its TensorFlow sessions leak.

    \b
        sojourn audit train.py --epochs 3
        sojourn audit --html report.html -m pytest tests

    A program of the TensorFlow 1 era gets the TensorFlow that `sojourn run` gives it, with
    TensorFlow's own sessions. The report goes to standard error, after the program's own output.
    The exit code is the program's own if it failed, 1 if something was found, and 0 if all is well.
    """
    from sojourn.audit.block import Audit
    from sojourn.audit.codes import CODES
    from sojourn.compat import legacy
    from sojourn.program import Program, ProgramNotFound

    if module is None and not program:
        raise click.UsageError("Name a program to run, or a module with -m.")
    if as_tf1 and as_tf2:
        raise click.UsageError("--tf1 and --tf2 exclude each other.")
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
    try:
        era = "tf1" if as_tf1 else "tf2" if as_tf2 else None
        verdict = legacy.judge(target, module is not None, era)
        with (
            _output_to_stderr() if as_json else nullcontext(),
            legacy.environment(verdict, "raw") if verdict.graph else nullcontext(),
        ):
            running = Program(target, args, is_module=module is not None)
            audit.start()
            try:
                exit_code = running.run()
                if os.getpid() != pid:
                    # A fork of the program came out of it here; the report is its parent's to give.
                    sys.exit(exit_code)
                audit.mark_exit()
                running.end()
            finally:
                # Before the environment closes what the program left open.
                if os.getpid() == pid:
                    found = audit.finish()
    except ProgramNotFound as error:
        raise click.UsageError(str(error)) from None
    except legacy.ProgramSyntaxError as error:
        click.echo(f"sojourn: {error}", err=True)
        sys.exit(1)
    found.findings = tuple(f for f in found if f.code not in ignored)

    if page is not None:
        found.write_html(page, " ".join((f"-m {module}" if module else target, *args)))
    if as_json:
        click.echo(json.dumps({**found.to_dict(), "exit_code": exit_code}, indent=2))
    else:
        colour = wants_colour(sys.stderr)
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
