"""The server of one node: the listeners and handler of any server, with the cluster behind them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from sojourn.cluster.handle import Cluster
from sojourn.cluster.serving.pool import ClusterPool
from sojourn.process.aside import aside
from sojourn.service.catalogue import Catalogue
from sojourn.service.config import Config
from sojourn.service.daemon import operation_of, server_of, tls_of
from sojourn.service.failures import Refused
from sojourn.service.log_lines import LogLines
from sojourn.service.rules import ModelRules
from sojourn.service.served import Served
from sojourn.service.tokens import Tokens
from sojourn.session.session import Usable
from sojourn.values import Receipt

_RELOAD_SECONDS = 30.0
Tell = Callable[[str, str, int | None], object]  # tells all other fronts: operation, model, version


class FrontCatalogue(Catalogue):
    """The models of one front. Loading or unloading a model here does so on all fronts."""

    tell: Tell

    async def load(self, name: str, *, version: int | None = None) -> None:
        await self.load_here(name, version)
        await aside(partial(self.tell, "load", name, version))

    async def unload(
        self, name: str, *, version: int | None = None, generation: int | None = None
    ) -> tuple[Receipt, ...]:
        receipts, _ = await asyncio.gather(
            super().unload(name, version=version, generation=generation),
            aside(partial(self.tell, "unload", name, version)),
        )
        return receipts

    async def load_here(self, name: str, version: int | None) -> None:
        await super().load(name, version=version)

    async def unload_here(self, name: str, version: int | None) -> None:
        await super().unload(name, version=version)

    def outs(self) -> list[tuple[str, int]]:
        """Return the versions that were unloaded by request."""
        known = [served for model in self._models.values() for served in model.known.values()]
        return [(served.name, served.version) for served in known if served.is_out]

    def _options(self, rules: ModelRules) -> dict[str, Any]:
        return {**rules.for_pool(), "warms_up": rules.warm_up}

    async def _warm_up(self, session: Usable, served: Served) -> None:
        """Do nothing: the agent on the node warms up each copy."""


class Front:
    """Serves from `start()` to `close()`. Its owner closes the connection to the cluster."""

    def __init__(self, everywhere: Cluster, config: Config, known: Tokens, tell: Tell) -> None:
        self._config = config
        self.lines = LogLines()
        self._wish = ""
        self._answer: list[str] | None = None
        settings = config.settings
        self._pool = ClusterPool(everywhere)
        self._catalogue = FrontCatalogue(
            self._pool,
            config.entries(),
            find=lambda: self._config.entries(),
            watch_seconds=settings.watch_seconds,
        )
        self._catalogue.tell = tell
        operation = replace(
            operation_of(settings, known, self.lines),
            drain=self._drain,
            reload=self._reload,
            cluster=everywhere.status,
        )
        self._server = server_of(settings, self._catalogue, tls_of(settings), operation)

    def start(self, outs: Iterable[tuple[str, int]]) -> dict[str, str]:
        """Start listening; return the addresses. What was unloaded on other fronts is unloaded here
        too."""
        self._server.start()
        for name, version in outs:
            self.unload(name, version)
        return dict(self._server.addresses)

    def close(self, grace_seconds: float) -> None:
        """Answer the requests under way, and stop."""
        try:
            self._server.close(grace_seconds)
        finally:
            self._pool.close()

    # -- requests from other fronts and the command ------------------------------------------------

    def load(self, name: str, version: int | None) -> None:
        self._server.call(lambda: self._catalogue.load_here(name, version))

    def unload(self, name: str, version: int | None) -> None:
        try:
            self._server.call(lambda: self._catalogue.unload_here(name, version))
        except Refused:
            pass  # not known to this front yet, or no longer

    def outs(self) -> list[tuple[str, int]]:
        return self._catalogue.outs()

    def take_wish(self) -> str:
        """Return and clear what a client requested for the whole service: "drain", "reload" or
        ""."""
        wish, self._wish = self._wish, ""
        return wish

    def reload(self, config: Config, known: Tokens, lines: list[str]) -> None:
        """Apply another configuration."""
        entries = config.entries()
        self._config = config
        self._server.operating.gate.tokens = known
        self._server.call(lambda: self._server.handler.reload(entries))
        self._server.reload_certificates()
        self._answer = lines

    def tell_reloaded(self, lines: list[str]) -> None:
        """Answer a reload request that changed nothing, with the reasons."""
        self._answer = lines

    def _drain(self) -> None:
        self._wish = "drain"

    async def _reload(self) -> list[str]:
        """Ask the command to read its configuration again and apply it to all fronts; return its
        answer."""
        self._answer, self._wish = None, "reload"
        deadline = time.monotonic() + _RELOAD_SECONDS
        while self._answer is None and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        return ["the command does not answer"] if self._answer is None else self._answer
