"""`sojourn.aopen`: open a session without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from sojourn.session.opening import Blueprint
from sojourn.session.session import Session
from sojourn.values import Place, caller


class Opening:
    """A session that is not open yet: use `async with`, or `await` it and close the session."""

    def __init__(self, blueprint: Blueprint, place: Place, name: str | None, device: str) -> None:
        self._blueprint = blueprint
        self._place = place
        self._name = name
        self._device = device
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self._open().__await__()

    async def _open(self) -> Session:
        from sojourn.process.aside import aside

        under_way: list[Callable[[], None]] = []
        try:
            # If this task is cancelled, nobody receives the session: the second function closes it.
            return await aside(
                lambda: self._blueprint.open(
                    self._place, self._name, self._device, under_way.append
                ),
                lambda session: session.close(timeout=0),
            )
        except asyncio.CancelledError:
            for call_off in under_way:
                call_off()
            raise

    async def __aenter__(self) -> Session:
        self._session = await self._open()
        return self._session

    async def __aexit__(self, *raised: object) -> None:
        assert self._session is not None
        await self._session.__aexit__(*raised)


def aopen(model: Any, *, name: str | None = None, device: str = "auto", **options: Any) -> Opening:
    """Open a session as `sojourn.open` does, awaited. The session lives until it is closed.

    Prefer `async with sojourn.aopen(...) as session`, which closes it as well.
    """
    return Opening(Blueprint(model, **options), caller(), name, device)
