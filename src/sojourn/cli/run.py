"""`sojourn run`: run a TensorFlow 1 program, unmodified, on the TensorFlow of today."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from sojourn.cli.program_command import ProgramCommand


@click.command(cls=ProgramCommand, name="run")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--tf1", "as_tf1", is_flag=True, help="Give it TensorFlow 1, whatever it looks like.")
@click.option("--tf2", "as_tf2", is_flag=True, help="Leave TensorFlow as it is.")
@click.option("--isolation", type=click.Choice(["process", "inline", "raw"]), default="process",
              show_default=True, help="Where its sessions run; raw: TensorFlow's own.")  # fmt: skip
@click.option("--strict-placement", is_flag=True,
              help="Fail where an op names a device that is not here.")  # fmt: skip
@click.option("--json", "account", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the account of its sessions to FILE.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No account on standard error.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(
    module: str | None,
    as_tf1: bool,
    as_tf2: bool,
    isolation: str,
    strict_placement: bool,
    account: Path | None,
    quiet: bool,
    program: tuple[str, ...],
) -> None:
    """Run a program of the TensorFlow 1 era, unmodified, on the TensorFlow that is installed.

    \b
        sojourn run train.py --epochs 3
        sojourn run --tf1 -m models.train

    Which TensorFlow it was written for is read from its source. Each of its sessions is isolated
    and accounted for; the account goes to standard error when the program has ended. The exit
    code is the program's own.
    """
    if module is None and not program:
        raise click.UsageError("Name a program to run, or a module with -m.")
    if as_tf1 and as_tf2:
        raise click.UsageError("--tf1 and --tf2 exclude each other.")
    era = "tf1" if as_tf1 else "tf2" if as_tf2 else None
    if account is not None and not account.absolute().parent.is_dir():
        raise click.UsageError(f"No such folder: {account.absolute().parent}")
    # TensorFlow's start-up notes are about the machine, not about the program.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    from sojourn.compat import legacy
    from sojourn.program import Program, ProgramNotFound

    target, args = (module, program) if module is not None else (program[0], program[1:])
    pid = os.getpid()
    try:
        verdict = legacy.judge(target, module is not None, era)
        running = Program(target, args, is_module=module is not None)
        with legacy.environment(verdict, isolation, strict_placement) as ledger:
            exit_code = running.run()
            if os.getpid() != pid:
                # A fork of the program came out of it here; the account is its parent's to give.
                sys.exit(exit_code)
            ledger.program_ended()
            running.end()
    except ProgramNotFound as error:
        raise click.UsageError(str(error)) from None
    except legacy.ProgramSyntaxError as error:
        click.echo(f"sojourn: {error}", err=True)
        sys.exit(1)
    if account is not None:
        told = {**ledger.to_dict(), "era": verdict.era, "exit_code": exit_code}
        account.write_text(json.dumps(told, indent=2) + "\n")
    if not quiet:
        click.echo(ledger.text(), err=True)
    sys.exit(exit_code)
