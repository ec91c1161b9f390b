"""`sojourn report`: make a page and a picture from recorded events."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sojourn.audit.event_report.story import Story, read
from sojourn.cli.options import Data, data_options, file_option
from sojourn.cli.terminal import plain
from sojourn.values import format_bytes, format_seconds


@click.command(name="report")
@click.argument("events", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@file_option("--html", "page", help="Write the page to FILE.")
@file_option("--png", "picture", help="Write the picture to FILE.")
@data_options
def command(events: Path, page: Path | None, picture: Path | None, data: Data) -> None:
    """Make a page and a picture of what SOJOURN_EVENTS=file has recorded.

    \b
        SOJOURN_EVENTS=events.jsonl python serve.py
        sojourn report events.jsonl

    Memory over time, every session with its end, how long runs took, and the receipts. Without
    any option, page and picture are written beside EVENTS. The exit code is 1 if EVENTS holds no
    event.
    """
    story = read(events)
    if not story.counts:
        click.echo(f"Error: {events} holds no events", err=True)
        sys.exit(1)
    wanted = picture is not None
    if not (page or picture or data.is_wanted):
        page, picture = events.with_suffix(".html"), events.with_suffix(".png")
    for target in (page, picture, data.file):
        if target is not None and target.exists() and target.samefile(events):
            raise click.UsageError(f"{target} holds the events, and is not replaced")
    data.give(story.to_dict())
    if not data.is_printed:
        click.echo(_summary(story))
    title = plain(events.name)
    try:
        if page is not None:
            from sojourn.audit.event_report.page import render

            page.write_text(render(story, title), encoding="utf-8")
            click.echo(f"page: {page}", err=data.is_printed)
        if picture is not None:
            from sojourn.audit.event_report.picture import draw

            draw(story, picture, title)
            click.echo(f"picture: {picture}", err=data.is_printed)
    except ImportError:
        click.echo("The picture needs matplotlib: pip install 'sojourn[plot]'", err=True)
        sys.exit(1 if wanted else 0)
    except OSError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


def _summary(story: Story) -> str:
    count = len(story.sessions)
    text = f"{count} session{'s' * (count != 1)} in {format_seconds(story.seconds)}, "
    text += f"peak {format_bytes(story.peak_bytes)}"
    unclosed = sum(session.closed_at is None for session in story.sessions)
    died = sum(len(session.broke_at) for session in story.sessions)
    if unclosed:
        text += f", {unclosed} not closed"
    if died:
        text += f", {died} worker{'s' * (died != 1)} died"
    return text
