"""The interface that a server needs from its models' owner: a pool in this process, or a
cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from sojourn.pool.decisions.status import PoolStatus
from sojourn.session.session import Usable
from sojourn.values import Place, Receipt

if TYPE_CHECKING:
    from typing import Unpack

    from sojourn.pool.options import ModelOptions


class Leasing(Protocol):
    """A session for an `async with` block."""

    async def __aenter__(self) -> Usable: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Directory(Protocol):
    """Which models exist, and the callbacks that are called with the receipt of each removed
    copy."""

    on_receipt: list[Callable[[str, Receipt], None]]

    def require_open(self) -> None: ...

    def names(self) -> tuple[str, ...]: ...

    def copies(self, name: str, version: int | None = None) -> int: ...

    def versions(self, name: str) -> tuple[int, ...]: ...

    def registration(self, name: str, version: int | None = None) -> Hashable | None: ...


class Backend(Protocol):
    """All other operations, named as in `sojourn.Pool`."""

    @property
    def _driver(self) -> Directory: ...

    def _leasing(
        self, name: str, version: int | None, timeout: float | None, place: Place
    ) -> Leasing: ...

    def register(
        self,
        name: str,
        model: Any,
        *,
        version: int | None = None,
        **options: Unpack[ModelOptions],
    ) -> None: ...

    def unregister(
        self, name: str, *, version: int | None = None, timeout: float | None = None
    ) -> bool: ...

    def preload(
        self, *names: str, version: int | None = None, timeout: float | None = None
    ) -> None: ...

    def evict(
        self, name: str, *, timeout: float | None = None, version: int | None = None
    ) -> bool: ...

    def pin(self, name: str, pinned: bool = True, *, version: int | None = None) -> None: ...

    def keep(self, name: str, seconds: float | None, *, version: int | None = None) -> None: ...

    def versions(self, name: str) -> tuple[int, ...]: ...

    def stats(self) -> PoolStatus: ...
