"""`sojourn run`: run a TensorFlow 1 program, unmodified, on the TensorFlow of today."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

import click

from sojourn.cli import notes
from sojourn.cli.options import Data, data_options
from sojourn.cli.program_command import (
    Chosen,
    ProgramCommand,
    output_to_stderr,
    program_options,
    reporting,
    written,
)


@click.command(cls=ProgramCommand, name="run")
@click.option("--isolation", type=click.Choice(["process", "inline", "raw"]), default="process",
              show_default=True, help="Where its sessions run; raw: TensorFlow's own.")  # fmt: skip
@click.option("--strict-placement", is_flag=True,
              help="Fail where an op names a device that is not here.")  # fmt: skip
@data_options
@click.option("-q", "--quiet", is_flag=True, help="No account on standard error.")
@program_options
def command(
    chosen: Chosen, isolation: str, strict_placement: bool, data: Data, quiet: bool
) -> None:
    """Run a program of the TensorFlow 1 era, unmodified, on the TensorFlow that is installed.

    \b
        sojourn run train.py --epochs 3
        sojourn run --tf1 -m models.train

    The program's source shows which TensorFlow it was written for. Each of its sessions is isolated
    and accounted for; the account goes to standard error when the program has ended. With --json
    it is printed as JSON, and the program's own output goes to standard error. The exit code is
    the program's own.
    """
    from sojourn.compat import legacy
    from sojourn.program import Program

    pid = os.getpid()
    verdict = legacy.judge(chosen.target, chosen.is_module, chosen.era)
    running = Program(chosen.target, chosen.args, is_module=chosen.is_module)
    environment = legacy.environment(verdict, isolation, strict_placement)
    with ExitStack() as stack:
        stack.enter_context(output_to_stderr(data.is_printed))
        with notes.kept_aside():  # TensorFlow's notes are about the machine, not the program
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
            ledger = stack.enter_context(environment)
        exit_code = running.run()
        if os.getpid() != pid:
            # This is a fork of the program; its parent prints the account.
            sys.exit(exit_code)
        ledger.hold()
        running.end()  # sessions that its exit handlers close count as closed by the program
        ledger.program_ended()
    value = {**ledger.to_dict(), "era": verdict.era, "exit_code": exit_code}
    is_written = written(lambda: data.write(value))
    with reporting():
        data.print(value)
        if not quiet:
            click.echo(ledger.text(), err=True)
    sys.exit(exit_code or int(not is_written))
