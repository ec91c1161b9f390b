"""The `sojourn` command. Each command is a file that is imported only when it is requested."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from sojourn._version import __version__

# name -> one-line help; the command lives in `sojourn.cli.<name>` as `command`.
COMMANDS = {
    "audit": "Run a program and report what its TensorFlow sessions leak.",
    "bench": "Compare raw TensorFlow with sojourn on this machine, as ratios.",
    "convert": "Convert a model for other engines, and compare them with TensorFlow.",
    "demo": "Train several models on raw TensorFlow and on sojourn, and compare.",
    "doctor": "Check that this machine has what sojourn needs, and say what to do if not.",
    "inspect": "Show what a model contains, without loading it.",
    "lint": "Find sessions that are never closed, by reading the source.",
    "load": "Have a running server load a model.",
    "logs": "Print what a running server has logged.",
    "nodes": "List the nodes of a cluster, their budgets and copies.",
    "predict": "Send a request to a model of a running server.",
    "ps": "List the running servers and their models.",
    "report": "Make a page of memory, sessions and latencies from recorded events.",
    "run": "Run a TensorFlow 1 program, unmodified, on the TensorFlow of today.",
    "serve": "Serve models by HTTP and gRPC.",
    "stop": "Stop a server after the requests under way.",
    "top": "Watch this user's sessions in all processes.",
    "unload": "Have a running server free a model's memory.",
}
_RUN_PROGRAMS = ("audit", "run")  # the program's streams and errors are its own


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Disable garbage collection during imports, which leave no garbage to collect."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Lazy(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            # click handles a broken pipe itself: the reader has seen enough.
            if ctx.invoked_subcommand in _RUN_PROGRAMS or error.errno == errno.EPIPE:
                raise
            raise click.ClickException(str(error)) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        if name not in _RUN_PROGRAMS:
            _show_what_can_be_shown()
        with loading():
            command = importlib.import_module(f"sojourn.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


def _show_what_can_be_shown() -> None:
    """Make output to a closed stream, or of a character that a stream cannot encode, not fail."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # stays open until the process ends
        elif getattr(stream, "errors", None) == "strict":
            stream.reconfigure(errors="backslashreplace")


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sojourn")
def main() -> None:
    """TensorFlow sessions that leave nothing behind."""


if __name__ == "__main__":
    main(prog_name="sojourn")
