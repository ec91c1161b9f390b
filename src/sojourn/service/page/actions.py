"""The administrator's actions on the page; each returns words that report the result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sojourn.errors import SojournError
from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.handler import Handler
from sojourn.values import Receipt

ANSWER_SECONDS = 0.2  # before a drain begins, so that the answer is sent first


class Actions:
    """The actions of one server, by name."""

    def __init__(
        self,
        handler: Handler,
        drain: Callable[[], None] | None,
        reload: Callable[[], Awaitable[list[str]]] | None,
    ) -> None:
        self._handler = handler
        self._drain_server = drain
        self._pool = handler.catalogue.pool
        self._reload = reload
        self._by_name: dict[str, Callable[[str, int | None], Awaitable[str]]] = {
            "load": self._load,
            "unload": self._unload,
            "evict": self._evict,
            "pin": lambda name, version: self._pin(name, version, True),
            "unpin": lambda name, version: self._pin(name, version, False),
            "reload": self._read_again,
            "drain": self._drain,
        }

    async def perform(self, action: str, model: str, version: int | None) -> str:
        """Perform the action, and return words about its result. Raises Refused if it fails."""
        do = self._by_name.get(action)
        if do is None:
            known = ", ".join(self._by_name)
            raise Refused(Status.NOT_FOUND, f"no action {action!r} (there are {known})")
        if action not in ("reload", "drain"):
            self._handler.statuses(model)  # raises if the model is not known
        try:
            return await do(model, version)
        except SojournError as error:
            raise refusal(error) from error

    async def _load(self, name: str, version: int | None) -> str:
        await self._handler.load(name, version=version)
        return f"{_named(name, version)} is loaded"

    async def _unload(self, name: str, version: int | None) -> str:
        receipts = await self._handler.unload(name, version=version)
        return f"{_named(name, version)} is no longer served{_accounts(receipts)}"

    async def _evict(self, name: str, version: int | None) -> str:
        keys = {(one.pool_name, one.version) for one in self._handler.in_service(name, version)}
        if not await self._handler.evict(name, version):
            return f"{_named(name, version)} is still there: its last requests have not ended"
        busy = sum((copy.model, copy.version) in keys for copy in self._pool.stats().copies)
        later = f"; {busy} in use leave when they are free" if busy else ", its memory is back"
        return f"{_named(name, version)} was evicted{later}"

    async def _pin(self, name: str, version: int | None, pinned: bool) -> str:
        self._handler.pin(name, pinned, version)
        return (
            f"{_named(name, version)} {'stays until it is unpinned' if pinned else 'is unpinned'}"
        )

    async def _read_again(self, name: str, version: int | None) -> str:
        if self._reload is None:
            raise Refused(Status.UNIMPLEMENTED, "this server has no configuration to read again")
        said = await self._reload()
        return "; ".join(["the configuration was read again", *said])

    async def _drain(self, name: str, version: int | None) -> str:
        if self._drain_server is None:
            raise Refused(Status.UNIMPLEMENTED, "the program that has this server must close it")
        asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._drain_server)
        return "the server answers what is under way, and stops"


def _named(name: str, version: int | None) -> str:
    return name if version is None else f"{name}, version {version},"


def _accounts(receipts: Sequence[Receipt]) -> str:
    return "".join(f"; {receipt}" for receipt in receipts)
