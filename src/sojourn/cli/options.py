"""Options that several commands share, so that each means the same everywhere.

`--json` prints data to standard output, and nothing else goes there; `--output FILE` writes the
same data to a file.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


def file_to_write(_ctx: Any, _parameter: Any, path: Path | None) -> Path | None:
    """Refuse a missing folder before any work is done. Return an absolute path, because a program
    that is run may change the working directory."""
    if path is None:
        return None
    path = path.absolute()
    if not path.parent.is_dir():
        raise click.UsageError(f"No such folder: {path.parent}")
    return path


def file_option(*names: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option that names a file to write."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=kind, metavar="FILE", callback=file_to_write, help=help)


@dataclass(frozen=True, slots=True)
class Data:
    """Where a command writes its data."""

    is_printed: bool
    file: Path | None

    @property
    def is_wanted(self) -> bool:
        """Whether data was requested, printed or in a file."""
        return self.is_printed or self.file is not None

    def give(self, value: Any) -> None:
        """Write and print the data, as requested."""
        self.write(value)
        self.print(value)

    def write(self, value: Any) -> None:
        """Write the data to the file, if one was requested."""
        self.give_file(json.dumps(value, indent=2))

    def print(self, value: Any) -> None:
        """Print the data, if requested."""
        if self.is_printed:
            click.echo(json.dumps(value, indent=2))

    def give_file(self, text: str) -> None:
        """Write a text to the file, if one was requested."""
        if self.file is not None:
            self.file.write_text(text + "\n", encoding="utf-8")


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` and `--output` to a command, which receives them as `data`."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON to standard output.")
    @file_option("--output", help="Write the JSON to FILE.")
    @functools.wraps(command)
    def with_data(*args: Any, as_json: bool, output: Path | None, **kwargs: Any) -> Any:
        return command(*args, data=Data(as_json, output), **kwargs)

    return with_data
