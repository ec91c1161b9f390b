"""The process around a server: what its signals do, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import web  # noqa: F401  # libuv keeps what it makes with its first loop
from served import models
from sojourn.service.config import read_config
from sojourn.service.daemon import Daemon
from sojourn.service.log_lines import _Form

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class FakeServer:
    """Takes what a daemon tells its server."""

    def __init__(self) -> None:
        self.operating = SimpleNamespace(gate=SimpleNamespace(tokens=None))
        self.grace_seconds = 0.0
        self.served: list[Any] = []
        self.can_watch = asyncio.Event()
        self.watches = asyncio.Event()
        catalogue = SimpleNamespace(watch=self._watch)
        self.handler = SimpleNamespace(reload=self._reload, catalogue=catalogue)

    async def _watch(self, seconds: float) -> None:
        self.watches.set()
        await self.can_watch.wait()

    async def _reload(self, entries: Any) -> None:
        self.served.append(sorted(entries))

    def begin(self, work: Any) -> Future[Any]:
        return Future()  # it takes for ever


@pytest.fixture
def file(tmp_path: Path) -> Path:
    models(tmp_path / "models")
    (tmp_path / "serve.toml").write_text('paths = ["models"]\ngrace = 30\n')
    return tmp_path / "serve.toml"


@pytest.fixture
def daemon(file: Path) -> Daemon:
    made = Daemon(lambda: read_config(str(file), {}))
    made._local = made._server = FakeServer()  # type: ignore[assignment]
    return made


def test_models_that_take_long_to_load_again_do_not_hold_up_the_end(daemon: Daemon) -> None:
    daemon._wishes.put(signal.SIGHUP)
    daemon._wishes.put(signal.SIGTERM)
    daemon._serve()  # returns, so that the server is drained


def test_what_is_said_to_be_taken_over_is(daemon: Daemon, file: Path) -> None:
    server: Any = daemon._server
    file.write_text('paths = ["models"]\ngrace = 5\n')
    assert asyncio.run(daemon._reload()) == ["grace: 5.0 instead of 30.0"]
    assert server.grace_seconds == 5.0
    assert server.served == [["thrice", "times"]]


def test_the_last_configuration_has_the_last_word(daemon: Daemon, file: Path) -> None:
    server: Any = daemon._server

    async def twice() -> None:
        file.write_text('paths = ["models"]\nwatch = 60\n')
        first = asyncio.create_task(daemon._reload())
        await server.watches.wait()  # for a look at the folders that is under way
        file.write_text('paths = ["models/times"]\nwatch = 60\n')
        second = asyncio.create_task(daemon._reload())
        await asyncio.wait([second], timeout=0.2)
        server.can_watch.set()
        await asyncio.gather(first, second)

    asyncio.run(twice())
    assert server.served == [["thrice", "times"], ["times"]]


@pytest.mark.parametrize(
    "text", ['paths = ["not-there"]', "grace = -1", "nonsense", 'tokens = "not-there"']
)
def test_a_wrong_configuration_changes_nothing(daemon: Daemon, file: Path, text: str) -> None:
    server: Any = daemon._server
    before = daemon._config
    file.write_text(f"{text}\n")
    told = asyncio.run(daemon._reload())
    assert all(line.startswith("nothing was changed: ") for line in told)
    assert (daemon._config, server.served) == (before, [])


def test_no_name_and_no_last_words_can_fake_a_line_of_the_log() -> None:
    words = "m\n2026-01-01T00:00:00.000Z INFO forged\x1b[31m\rover"
    record = logging.makeLogRecord(
        {"msg": "model.loaded %s", "args": (words,), "levelname": "INFO"}
    )
    first, second = _Form().format(record).split("\n")
    assert first.endswith(" INFO model.loaded m")
    assert second == "    2026-01-01T00:00:00.000Z INFO forged\\x1b[31m\\rover"


def test_a_daemon_that_is_told_to_end_before_it_has_begun_ends_quietly(
    zygote: None, tmp_path: Path
) -> None:
    models(tmp_path)
    flags = {"paths": [str(tmp_path)], "http": "127.0.0.1:0", "grpc": ""}
    daemon = Daemon(lambda: read_config(None, {}, flags))
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    @contextlib.contextmanager
    def starting() -> Iterator[None]:
        signal.raise_signal(signal.SIGTERM)
        while any(thread.name == "sojourn-give-up" for thread in threading.enumerate()):
            time.sleep(0.01)
        yield

    try:
        daemon.run(starting)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert daemon._is_given_up
