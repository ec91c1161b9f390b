"""`sojourn convert`: convert a model for other engines ahead of time."""

from __future__ import annotations

import sys
from typing import Any
from zipfile import BadZipFile

import click
import msgspec

from sojourn.cli.options import Data, data_options
from sojourn.cli.terminal import plain
from sojourn.errors import SojournError
from sojourn.session.conversion import cache
from sojourn.session.conversion.candidates import ENGINES, FASTEST, Examined
from sojourn.session.conversion.choosing import fastest, words_for
from sojourn.values import caller, format_bytes, format_seconds


def _read_samples(_ctx: Any, _parameter: Any, paths: tuple[str, ...]) -> Any:
    import numpy as np

    def read(path: str) -> dict[str, Any]:
        try:
            with np.load(path) as file:
                return dict(file)
        except (OSError, ValueError, TypeError, AttributeError, EOFError, BadZipFile) as error:
            raise click.BadParameter(f"{path} is not an .npz file of arrays: {error}") from None

    return [read(path) for path in paths] or None


@click.command(name="convert", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path(), required=False)
@click.option(
    "--to",
    type=click.Choice([FASTEST, *ENGINES]),
    default=FASTEST,
    show_default=True,
    help="The engine, or whichever is fastest.",
)
@click.option("--signature", help="Which signature of a SavedModel.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="The largest difference allowed. Default: measured.",
)
@click.option(
    "--samples",
    type=click.Path(exists=True, dir_okay=False),
    multiple=True,
    callback=_read_samples,
    metavar="FILE",
    help="An .npz file of inputs by name to compare with; may be repeated. Default: generated.",
)
@click.option("--clear", is_flag=True, help="Remove everything that was converted before.")
@data_options
def command(
    path: str | None,
    to: str,
    signature: str | None,
    tolerance: float | None,
    samples: list[dict[str, Any]] | None,
    clear: bool,
    data: Data,
) -> None:
    """Convert a TensorFlow model for other engines, and compare them with TensorFlow.

    PATH is a SavedModel folder, a .keras or .h5 file, a frozen .pb, or a checkpoint. The result is
    kept and found by `sojourn.open(PATH, engine=...)` with the same samples and tolerance.
    The exit code is 1 when no engine can be used.
    """
    if path is None and not clear:
        raise click.UsageError("Missing argument 'PATH'.")
    if clear:
        removed = cache.clear()
        words = f"Removed {format_bytes(removed)} from {cache.folder()}."
        click.echo(words, err=data.is_printed)
    if path is None:
        data.give({"removed_bytes": removed, "folder": str(cache.folder())})
        return
    from sojourn.session.opening import Blueprint

    try:
        blueprint = Blueprint(
            path, signature=signature, engine=to, samples=samples, tolerance=tolerance
        )
        examined = blueprint.examine(caller())
    except SojournError as error:
        click.echo(f"Error: {plain(str(error))}", err=True)
        sys.exit(1)
    data.give(msgspec.to_builtins(examined))
    if not data.is_printed:
        _print(examined, to)
    sys.exit(0 if any(candidate.agrees for candidate in examined.candidates) else 1)


def _print(examined: Examined, to: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("engine", "", "time by batch (tensorflow: 1)", "memory", "opens in"):
        table.add_column(title)
    table.add_row("tensorflow", "", "1", *_costs(examined.held_bytes, examined.open_seconds))
    for one in examined.candidates:
        if one.agrees:
            agrees = f"agrees ({one.worst:.0e} of {one.tolerance:.0e})"
            ratios = ", ".join(f"{ratio:.2f} at {batch}" for batch, ratio in one.ratios.items())
            ratios += " (one thread)" if one.threads == 1 else ""
            table.add_row(one.engine, agrees, ratios, *_costs(one.held_bytes, one.open_seconds))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for one in examined.candidates:
        if one.refusal:
            console.print(Text(f"{one.engine} refused: {plain(one.refusal)}", "yellow"))
    if to == FASTEST:
        uses = fastest(examined)
        winner = words_for(examined, uses) if uses else "tensorflow, no other is clearly faster"
        console.print(f"Fastest: {winner}")


def _costs(held_bytes: int, open_seconds: float) -> tuple[str, str]:
    return format_bytes(held_bytes), format_seconds(open_seconds)
