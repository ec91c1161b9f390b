"""`sojourn serve`: a model server that gives memory back."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import click
import msgspec

from sojourn.cli.main import loading
from sojourn.cli.options import Data, data_options
from sojourn.cli.terminal import plain
from sojourn.service.config import Config, ConfigError, read_config
from sojourn.service.config_changes import check
from sojourn.service.settings import PREFIX, SETTINGS, Setting


def _with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each setting to the command."""
    for setting in reversed(SETTINGS):
        if setting.name != "paths":
            command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    help = f"{setting.help[:1].upper()}{setting.help[1:]}. [{setting.variable}]"
    if setting.is_switch:
        flag = f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(flag, setting.name, default=None, help=help)
    if setting.default not in (None, "", []):
        help = f"{help[:-1]}; {setting.default}]"
    metavar = setting.name.rpartition("_")[2].upper()
    return click.option(
        setting.flag, setting.name, metavar=metavar, multiple=setting.is_list, help=help
    )


@click.command(name="serve")
@click.argument("paths", nargs=-1, metavar="[FOLDER | MODEL | NAME=PATH]...")
@click.option("--config", metavar="FILE", envvar=f"{PREFIX}CONFIG",
              help=f"Settings and models, in TOML. [{PREFIX}CONFIG]")  # fmt: skip
@click.option("--check", "is_check", is_flag=True, help="Only check, and say what it would do.")
@_with_settings
@data_options
def command(
    paths: tuple[str, ...], config: str | None, is_check: bool, data: Data, **given: Any
) -> None:
    """Serve models by HTTP and gRPC, in the protocols of TensorFlow Serving and KServe.

    \b
        sojourn serve models/                              every model in the folder, by its name
        sojourn serve resnet=models/resnet bert=bert.onnx --memory 8GiB
        sojourn serve --config serve.toml --check
        sojourn serve --cluster auto models/               on every node that Ray knows

    Each model runs in workers of its own. It is loaded at its first request and closed when its
    memory is needed. A flag overrides its environment variable (in brackets, before its default),
    which overrides the file. On SIGTERM or Ctrl-C the server finishes the requests under way and
    ends; on SIGHUP it reads the configuration again. --json and --output print what --check finds.
    The exit code is 0 after such a signal, 1 if the server could not start, 2 if it was called or
    configured wrongly.
    """
    if data.is_wanted and not is_check:
        raise click.UsageError("--json and --output need --check.")
    flags = {"paths": paths, **{name: _value(name, value) for name, value in given.items()}}

    def read() -> Config:
        return read_config(config, os.environ, flags)

    try:
        found = read()
    except ConfigError as error:
        if is_check:
            data.give({"lines": [], "problems": list(error.problems), "warnings": []})
        for problem in error.problems:
            click.echo(f"sojourn: {plain(problem)}", err=True)
        sys.exit(2)
    if is_check:
        _check(found, data)
        return
    if not found.models and not found.folders:
        raise click.UsageError("Name a folder of models, a model, or a --config with some.")
    _run(read, found.settings.cluster)


def _value(name: str, text: Any) -> Any:
    """Convert the value of a flag; a wrong one is kept, and reported with all other mistakes."""
    if not isinstance(text, str):
        return text
    [setting] = [one for one in SETTINGS if one.name == name]
    try:
        return msgspec.convert(text, setting.type, strict=False)
    except msgspec.ValidationError:
        return text


def _check(config: Config, data: Data) -> None:
    from sojourn.service import tokens
    from sojourn.service.daemon import exposed, tls_of

    found = check(config)
    problems = list(found.problems)
    warnings: list[str] = []
    try:
        warnings = exposed(config.settings, tokens.read(config.settings.tokens, dict(os.environ)))
        if (tls := tls_of(config.settings)) is not None:
            tls.check()
    except (ValueError, OSError) as error:
        if not any(str(error) in problem for problem in problems):
            problems.append(str(error))
    data.give({"lines": list(found.lines), "problems": problems, "warnings": warnings})
    if not data.is_printed:
        for line in (*found.lines, *(f"warning: {one}" for one in warnings)):
            click.echo(plain(line))
        for problem in problems:
            click.echo(plain(f"wrong: {problem}"))
    sys.exit(1 if problems else 0)


def _run(read: Callable[[], Config], cluster: str | None) -> None:
    # TensorFlow's start-up notes are about the machine, not about the models.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    extra = "serve" if cluster is None else "ray"
    try:
        with loading():
            from sojourn.service.daemon import Daemon

            kind = Daemon
            if cluster is not None:
                from sojourn.cluster.serving.daemon import ClusterDaemon

                kind = ClusterDaemon
    except ImportError as error:
        _fail(f"{error}; pip install 'sojourn[{extra}]'")
    gc.freeze()  # the garbage collector need not scan imported modules during requests
    from sojourn.errors import SojournError

    try:
        kind(read).run(_progress)
    except (SojournError, OSError, ValueError, ImportError) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"sojourn: {plain(line)}", err=True)
    sys.exit(1)


@contextlib.contextmanager
def _progress() -> Iterator[None]:
    """Show on a terminal which models are being opened; elsewhere only the log shows it."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    from sojourn import events

    opening: dict[str, None] = {}
    console = Console(stderr=True)
    with console.status("starting") as status:

        def show(event: events.Event) -> None:
            if event.kind == "session.opening":
                opening[event.session] = None
            elif event.kind in ("session.ready", "session.closed", "session.broken"):
                opening.pop(event.session, None)
            else:
                return
            status.update(Text(plain(f"loading {', '.join(opening)}" if opening else "starting")))

        stop = events.subscribe(show, wants_bytes=False)
        try:
            yield
        finally:
            stop()
