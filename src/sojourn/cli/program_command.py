"""What `run` and `audit` share: a program and its arguments, parsed as `python` does."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Chosen:
    """The program to run, and the TensorFlow chosen for it."""

    target: str
    args: tuple[str, ...]
    is_module: bool
    era: str | None

    @property
    def title(self) -> str:
        """The program and its arguments, as given on the command line."""
        return " ".join((f"-m {self.target}" if self.is_module else self.target, *self.args))


class ProgramCommand(click.Command):
    """A command whose options end at the program, or after `-m module`, as for `python` itself."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._split(ctx, list(args)))

    def _split(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        at = 0
        while at < len(args) and args[at].startswith("-"):
            token = args[at]
            if token == "--":
                return args
            if "m" in token and not token.startswith("--"):  # -m module, -mmodule, -qm module
                at += 1 if token.partition("m")[2] else 2
                break
            at += 2 if token in takes_value else 1
        return args if at > len(args) else [*args[:at], "--", *args[at:]]


def program_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a program argument, `-m`, `--tf1` and `--tf2` to a command; it receives `chosen`."""

    @click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
    @click.option("--tf1", is_flag=True, help="Run it with TensorFlow 1; skip the detection.")
    @click.option("--tf2", is_flag=True, help="Leave TensorFlow as it is.")
    @click.argument("program", nargs=-1, type=click.UNPROCESSED)
    @functools.wraps(command)
    def with_program(
        *args: Any,
        module: str | None,
        tf1: bool,
        tf2: bool,
        program: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        if module is None and not program:
            raise click.UsageError("Name a program to run, or a module with -m.")
        if tf1 and tf2:
            raise click.UsageError("--tf1 and --tf2 exclude each other.")
        era = "tf1" if tf1 else "tf2" if tf2 else None
        if module is not None:
            chosen = Chosen(module, program, True, era)
        else:
            chosen = Chosen(program[0], program[1:], False, era)
        with _report_failures():
            return command(*args, chosen=chosen, **kwargs)

    return with_program


@contextmanager
def _report_failures() -> Iterator[None]:
    """Report a missing program as a usage error, and one with a syntax error with exit code 1."""
    from sojourn.compat import legacy
    from sojourn.program import ProgramNotFound

    try:
        yield
    except ProgramNotFound as error:
        raise click.UsageError(str(error)) from None
    except legacy.ProgramSyntaxError as error:
        click.echo(f"sojourn: {error}", err=True)
        sys.exit(1)


@contextmanager
def output_to_stderr(is_wanted: bool) -> Iterator[None]:
    """Redirect descriptor 1 to standard error in this block, if requested.

    Standard output then contains only what is printed after the block.
    """
    if not is_wanted or sys.stdout is None:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    output = os.fstat(saved)
    try:
        os.dup2(2, 1)
        yield
    finally:
        # The program may have closed these descriptors, and reused the numbers for its own files.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(saved), output):
                os.dup2(saved, 1)
                os.close(saved)
            if sys.stdout.closed:
                sys.stdout = open(1, "w", encoding="utf-8", closefd=False)


def written(write: Callable[[], None]) -> bool:
    """Write a requested file; report an error and return False if that fails.

    The report is still shown: the program may have run for days.
    """
    try:
        write()
    except OSError as error:
        with reporting():
            click.echo(f"Error: {error}", err=True)
        return False
    return True


def reporting() -> contextlib.AbstractContextManager[None]:
    """Ignore errors of output after the program's end: it may have closed the streams, and the
    exit code must stay the program's own."""
    return contextlib.suppress(OSError, ValueError)
