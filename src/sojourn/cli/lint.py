"""`sojourn lint`: find leaks in source code, without running it and without TensorFlow."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from sojourn.audit.codes import CODES
from sojourn.audit.codes import explain as explain_code
from sojourn.audit.lint import Outcome, Settings, check_paths
from sojourn.audit.lint.fix import Fixed, FixerMissing, fix_source, require_libcst
from sojourn.audit.lint.formats import FORMATS, as_json, as_text
from sojourn.audit.lint.settings import SettingsError, read_settings
from sojourn.cli.options import Data, data_options
from sojourn.cli.terminal import wants_colour


@click.command(name="lint")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--fix", is_flag=True, help="Rewrite what can be closed safely (needs libcst).")
@click.option("--diff", is_flag=True, help="Show what --fix would change; write nothing.")
@click.option("--select", metavar="CODES", help="Report only these codes, separated by commas.")
@click.option("--ignore", metavar="CODES", help="Leave these codes out.")
@click.option("--exclude", metavar="PATTERN", multiple=True, help="Leave these files out.")
@click.option(
    "--format", "form", type=click.Choice(sorted(FORMATS)), default="text", show_default=True
)
@data_options
@click.option("--explain", metavar="CODE", help="Print what a code means, and its cure.")
@click.option("--isolated", is_flag=True, help="Read no pyproject.toml.")
def command(
    paths: tuple[Path, ...],
    fix: bool,
    diff: bool,
    select: str | None,
    ignore: str | None,
    exclude: tuple[str, ...],
    form: str,
    data: Data,
    explain: str | None,
    isolated: bool,
) -> None:
    """Find TensorFlow sessions that are never closed, replaced, reopened or used too late.

    PATHS are files or folders; without any, the current folder. Exits with 1 when something was
    found, 2 when it was called wrongly. Files that are not Python 3 are named and left alone.
    --output writes what --format says, or JSON; with --diff, the JSON has the diffs too.
    """
    if explain is not None:
        click.echo(_explained(explain.strip().upper()))
        return
    paths = paths or (Path("."),)
    try:
        settings = Settings() if isolated else read_settings(Path.cwd())
        settings = _merged(settings, select, ignore, exclude)
        if fix or diff:
            require_libcst()
    except (SettingsError, FixerMissing) as error:
        raise click.UsageError(str(error)) from None
    form = "json" if data.is_printed else form
    if diff and form not in ("text", "json"):
        raise click.UsageError(f"--diff goes with text or JSON, not with --format {form}.")
    outcome = check_paths(paths, settings)
    fixes = _fixes(outcome, settings) if fix or diff else {}
    if diff:
        diffs = {path: fixed.diff(path) for path, fixed in fixes.items()}
        document = as_json(outcome, diffs)
        click.echo(document if form == "json" else "".join(diffs.values()), nl=form == "json")
        data.give_file(document)
        sys.exit(1 if outcome.problems or diffs else 0)
    if fix:
        _write(fixes)
        outcome = check_paths(paths, settings)
    _show(outcome, form, len(fixes))
    data.give_file(FORMATS["json" if form == "text" else form](outcome))
    sys.exit(1 if outcome.problems else 0)


def _explained(code: str) -> str:
    try:
        return explain_code(code)
    except KeyError:
        raise click.UsageError(f"Unknown code: {code}. There are {', '.join(CODES)}.") from None


def _merged(
    settings: Settings, select: str | None, ignore: str | None, exclude: tuple[str, ...]
) -> Settings:
    if select is not None:
        settings = replace(settings, select=_codes(select))
    if ignore is not None:
        settings = replace(settings, ignore=(*settings.ignore, *_codes(ignore)))
    return replace(settings, exclude=(*settings.exclude, *exclude))


def _codes(text: str) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in text.split(",") if code.strip())


def _fixes(outcome: Outcome, settings: Settings) -> dict[str, Fixed]:
    """Return the files that fixing changes, by path."""
    sources = outcome.sources.items()
    found = {path: fix_source(text, settings, path, outcome.program) for path, text in sources}
    return {path: fixed for path, fixed in found.items() if fixed.changed}


def _write(fixes: dict[str, Fixed]) -> None:
    from sojourn.session.folders import replace_file

    for path, fixed in fixes.items():
        try:
            if Path(path).read_bytes() != fixed.before:  # for example, saved by an editor since
                raise OSError("it has changed meanwhile; run --fix again")
            replace_file(path, fixed.after)
        except OSError as error:
            raise click.ClickException(f"{path} is as it was: {error}") from None


def _show(outcome: Outcome, form: str, changed: int) -> None:
    if form == "text":
        colour = wants_colour(sys.stdout)
        text = as_text(outcome, _coloured) if colour else as_text(outcome)
        if changed:
            text += f", {changed} file{'s' * (changed != 1)} fixed"
        click.echo(text)
        return
    text = FORMATS[form](outcome)
    if text:
        click.echo(text)


def _coloured(text: str, style: str) -> str:
    return click.style(text, bold=True) if style == "bold" else click.style(text, fg=style)
