"""Operations on a session at an agent's node, besides steps: variables and warm-up."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from sojourn.cluster.leases import Held
from sojourn.cluster.storage import Storage
from sojourn.cluster.terms import ModelSource
from sojourn.session.session import Usable


class Folder:
    """A path in a private folder. It does not exist yet, and is removed at the end of the block."""

    def __init__(self, parent: str | None) -> None:
        self._made = tempfile.mkdtemp(prefix="state-", dir=parent)

    def __enter__(self) -> str:
        return os.path.join(self._made, "state")

    def __exit__(self, *raised: object) -> None:
        shutil.rmtree(self._made, ignore_errors=True)


def _save(held: Held, url: str) -> None:
    with Folder(None) as folder:
        held.lease.save(folder)
        Storage(url).put(folder, "saved", 0)


def _restore(held: Held, url: str) -> None:
    with Folder(None) as folder:
        if not Storage(url).get(folder, "saved", 0):
            raise FileNotFoundError(f"nothing was saved at {url}")
        held.has_changed = True
        held.lease.restore(folder)


def _reset(held: Held, _: str) -> None:
    held.has_changed = True
    held.lease.reset()


OPERATIONS: dict[str, Callable[[Held, str], Any]] = {
    "reset": _reset,
    "save": _save,
    "restore": _restore,
    "footprint": lambda held, _: held.lease.footprint(),
}


def warm_up_once(session: Usable, path: str, source: ModelSource) -> None:
    """Warm up a session before callers get it, as a server does with its own models."""
    from sojourn.service.signatures import DEFAULT, plain, read_signatures
    from sojourn.service.warming import warm_up

    names_tensors = "inputs" in source.options or "outputs" in source.options
    wanted, tags = source.options.get("signature"), source.options.get("tags")
    found = {} if names_tensors else read_signatures(path, wanted, tags)
    asyncio.run(warm_up(session, path, found or {DEFAULT: plain(DEFAULT, session.signature)}))
