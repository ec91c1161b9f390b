"""A server as a process of its own: what `sojourn serve` runs from its start to its end.

SIGTERM and SIGINT drain it, a second one cuts the drain short; SIGHUP reloads the configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import FrameType
from typing import Any, Protocol

from sojourn import events
from sojourn.errors import SessionClosed, SojournError
from sojourn.pool import Pool
from sojourn.process.zygote import zygote_for
from sojourn.service import notices, records, tokens, tracing
from sojourn.service.addresses import parsed
from sojourn.service.catalogue import Catalogue
from sojourn.service.config import Config
from sojourn.service.config_changes import changes, unchanged
from sojourn.service.descriptors import connections
from sojourn.service.folders import frameworks_of
from sojourn.service.http.limits import Limits
from sojourn.service.log_lines import LogLines, logging_to
from sojourn.service.operating import Operation
from sojourn.service.server import Server
from sojourn.service.settings import Settings
from sojourn.service.tls import Tls
from sojourn.service.tokens import Tokens, is_loopback

_log = logging.getLogger("sojourn.service")
_STOP = (signal.SIGTERM, signal.SIGINT)


class Serving(Protocol):
    """What serves requests: one server in this process, or several in other processes."""

    addresses: dict[str, str]

    @property
    def where(self) -> str:
        """The addresses, for people."""

    @property
    def facts(self) -> dict[str, Any]:
        """The addresses, for programs."""

    def start(self) -> None: ...

    def close(self, grace_seconds: float | None = None) -> None: ...


class _Hurried(BaseException):
    """A second signal to end arrived during the drain."""


class Daemon:
    """One server process. When `run` returns, everything is closed and the process should exit."""

    def __init__(self, read: Callable[[], Config]) -> None:
        self._read = read
        self._config = read()
        self._entries = self._config.entries()
        # Read once and removed: secrets do not stay in the environment.
        self._secrets = {
            name: os.environ.pop(name) for name in tokens.VARIABLES.values() if name in os.environ
        }
        self._tokens = self._read_tokens(self._config.settings)
        self._tls = tls_of(self._config.settings)
        if self._tls is not None:
            self._tls.check()
        self._lines = LogLines()
        self._wishes: queue.SimpleQueue[signal.Signals] = queue.SimpleQueue()
        self._is_draining = False
        self._is_given_up = False
        self._give_up: Callable[[], object] | None = None  # set while the server starts
        self._server: Serving | None = None
        self._local: Server | None = None  # the same object, if the server runs in this process
        self._reading = asyncio.Lock()  # one configuration at a time

    def run(self, on_start: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        """Serve until a signal arrives. `on_start` wraps the start, until the server answers."""
        settings = self._config.settings
        with contextlib.suppress(_Hurried), contextlib.ExitStack() as stack:
            stack.enter_context(self._signals())
            stack.enter_context(logging_to(settings, self._lines))
            notices.remove_stale_ready_file(settings.ready_file)
            self._server = self._make_server(stack)
            for warning in exposed(settings, self._tokens):
                _log.warning("%s", warning)
            with on_start():
                try:
                    self._server.start()
                except SessionClosed:  # the start was given up before it began
                    if not self._is_given_up:
                        raise
                    return
            stack.callback(self._drain)
            self._give_up = None  # from now on signals are queued
            if self._is_given_up:
                return
            stack.enter_context(self._announced(settings))
            self._serve()

    def _make_server(self, stack: contextlib.ExitStack) -> Serving:
        """Create the server; the caller starts it. Its resources are closed with the stack."""
        settings = self._config.settings
        # Importing a framework takes seconds: begin now, so that the first request does not have to
        # wait for all of it.
        for framework in frameworks_of(rules.path for rules in self._entries.values()):
            zygote_for(framework).start()
        tracer = None
        if settings.trace:
            tracer, end = tracing.tracer()
            stack.callback(end)
            stack.callback(events.trace(tracer))
        pool = stack.enter_context(
            Pool(
                settings.memory,
                devices=settings.devices,
                max_sessions=settings.max_sessions,
                spares=settings.spares,
            )
        )
        self._give_up = pool.close
        catalogue = Catalogue(
            pool,
            self._entries,
            find=lambda: self._config.entries(),
            watch_seconds=settings.watch_seconds,
        )
        operation = operation_of(settings, self._tokens, self._lines)
        self._local = server_of(
            settings,
            catalogue,
            self._tls,
            replace(
                operation,
                tracer=tracer,
                drain=lambda: self._wishes.put(signal.SIGTERM),
                reload=self._reload,
            ),
        )
        return self._local

    # -- while it runs ---------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            wish = self._wishes.get()
            if wish is not signal.SIGHUP:
                _log.info("%s: answering what is under way, then ending", wish.name)
                return
            notices.tell_systemd(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._reload_now()

    def _drain(self) -> None:
        assert self._server is not None
        try:
            self._is_draining = True
            self._server.close()
        except _Hurried:
            self._server.close(0)

    def _reload_now(self) -> None:
        """Start a reload without waiting for it: loading may take long, and must not delay the next
        signal."""
        assert self._local is not None
        self._local.begin(self._reload).add_done_callback(_has_reloaded)

    async def _reload(self) -> list[str]:
        """Read the configuration again and report the result. An invalid one changes nothing."""
        server = self._local
        assert server is not None
        async with self._reading:
            before = self._config
            try:
                config, entries, known = await asyncio.to_thread(self._read_again)
            except (SojournError, ValueError, OSError) as error:
                told = unchanged(error)
                for line in told:
                    _log.error("%s", line)
                return told
            told = str(changes(before, config, self._entries, entries)).splitlines()
            self._config, self._entries, self._tokens = config, entries, known
            server.operating.gate.tokens = known
            server.grace_seconds = config.settings.grace_seconds
            logging.getLogger("sojourn").setLevel(config.settings.log_level.upper())
            if self._tls is not None:
                server.reload_certificates()
                told.append("the certificate was read again")
            if config.settings.tokens is not None:
                told.append("the tokens were read again")
            for line in told:
                _log.info("reload: %s", line)
            if config.settings.watch_seconds != before.settings.watch_seconds:
                await server.handler.catalogue.watch(config.settings.watch_seconds)
        # Loading may take long, so it happens outside the lock: the next configuration does not
        # have to wait, and its changes are still applied after these.
        await server.handler.reload(entries)
        return told

    def _read_again(self) -> tuple[Config, dict[str, Any], Tokens]:
        config = self._read()
        if self._tls is not None:
            self._tls.check()
        return config, config.entries(), self._read_tokens(config.settings)

    def _read_tokens(self, settings: Settings) -> Tokens:
        return tokens.read(settings.tokens, dict(self._secrets))

    # -- signals and announcements ---------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_draining:
            if number != signal.SIGHUP:
                raise _Hurried
        elif self._give_up is not None and number != signal.SIGHUP:
            # Give up the models that are being loaded, so that the start ends.
            self._is_given_up = True
            threading.Thread(target=self._give_up, name="sojourn-give-up").start()
        else:
            self._wishes.put(signal.Signals(number))

    def _catch_signals(self) -> None:
        for number in (*_STOP, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        self._catch_signals()
        try:
            yield
        finally:
            # Everything is closed and the process is about to exit: a signal must not change its
            # exit code.
            for number in (*_STOP, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)

    @contextlib.contextmanager
    def _announced(self, settings: Settings) -> Iterator[None]:
        """Publish the server's record and ready file, until it stops."""
        assert self._server is not None
        record = self._record(self._server.addresses, settings)
        facts = {"pid": record.pid, "url": record.url, **self._server.facts}
        withdraw = records.publish(record)
        try:
            with notices.ready_file(settings.ready_file, facts):
                notices.tell_systemd("READY=1")
                count = "1 model" if len(self._entries) == 1 else f"{len(self._entries)} models"
                _log.info("serving %s, %s", count, self._server.where)
                yield
                notices.tell_systemd("STOPPING=1")
        finally:
            withdraw()

    def _record(self, addresses: dict[str, str], settings: Settings) -> records.Record:
        scheme = "http" if self._tls is None else "https"
        url = f"{scheme}://{_reachable(addresses['http'])}" if "http" in addresses else ""
        admin: str | None = url or None
        if settings.admin == "off":
            admin = None
        elif "admin" in addresses:
            admin = f"{scheme}://{_reachable(addresses['admin'])}"
        grpc = addresses.get("grpc")
        return records.Record(
            os.getpid(),
            url,
            None if grpc is None else _reachable(grpc),
            admin,
            time.time(),
            os.getcwd(),
            None if self._tls is None else os.path.abspath(self._tls.certificate),
        )


def _has_reloaded(reload: Future[list[str]]) -> None:
    if not reload.cancelled() and (error := reload.exception()) is not None:
        _log.error("the configuration could not be put to use", exc_info=error)
    notices.tell_systemd("READY=1")


def operation_of(settings: Settings, known: Tokens, lines: LogLines) -> Operation:
    """Return how a server with these settings is operated."""
    admin = {"on": True, "off": False}.get(settings.admin, settings.admin)
    return Operation(
        tokens=known,
        admin=admin,
        access_log=settings.access_log,
        log=lines,
        page=settings.page,
        page_hosts=tuple(settings.page_hosts),
        history=settings.history,
    )


def server_of(
    settings: Settings, catalogue: Catalogue, tls: Tls | None, operation: Operation
) -> Server:
    """Create a server with these settings."""
    return Server(
        catalogue,
        http=settings.http or None,
        grpc=settings.grpc or None,
        limits=Limits(
            body_bytes=settings.max_body_bytes,
            connections=connections(settings.max_connections, len(_addresses(settings))),
        ),
        tls=tls,
        operation=operation,
        grace_seconds=settings.grace_seconds,
    )


def tls_of(settings: Settings) -> Tls | None:
    """Return the TLS files that these settings name."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return Tls(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)


def _addresses(settings: Settings) -> list[str]:
    """Return the addresses to listen at."""
    admin = "" if settings.admin in ("on", "off") else settings.admin
    return [one for one in (settings.http, settings.grpc, admin) if one]


def exposed(settings: Settings, known: Tokens) -> list[str]:
    """Return warnings about access from the network that may not be intended."""
    open_to_all = [one for one in _addresses(settings) if not _is_local(one)]
    if not open_to_all:
        return []
    where = " and ".join(open_to_all)
    found = []
    if not known.are_wanted and settings.tls_client_ca is None:
        found.append(f"anybody who reaches {where} may use the models: see --tokens")
    if known.are_wanted and settings.tls_certificate is None:
        found.append(f"tokens cross the network readable at {where}: see --tls-certificate")
    return found


def _is_local(address: str) -> bool:
    host = parsed(address)[0]
    return host == "localhost" or is_loopback(host)


def _reachable(address: str) -> str:
    """Return the address that clients on this machine use."""
    host, port = parsed(address)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
