"""One version of one model: its state, its use, and its health."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from sojourn.errors import (
    BudgetExceeded,
    DeviceError,
    InputError,
    ModelError,
    PoolTimeout,
    SandboxError,
    SessionBroken,
    SojournError,
)
from sojourn.pool.decisions.health import Crashes, last_words
from sojourn.service.backend import Leasing
from sojourn.service.failures import Refused, Status
from sojourn.service.rules import ModelRules
from sojourn.service.signatures import CallSignature
from sojourn.session.session import Usable
from sojourn.values import Receipt, Signature, format_seconds

# Errors of the request or of the available capacity, which say nothing about the model.
_NOT_ITS_FAULT = (PoolTimeout, BudgetExceeded, InputError)
_CANNOT_BE_OPENED = (ModelError, SandboxError, DeviceError)
clock = time.monotonic


class VersionState(enum.Enum):
    """The state of a version, with TensorFlow Serving's number for it."""

    START = 10
    LOADING = 20
    AVAILABLE = 30  # in service; a lazy version is opened by the first request
    UNLOADING = 40
    END = 50


@dataclass(slots=True, eq=False)
class Served:
    """One version of a model, as long as it is remembered. Only the catalogue changes it."""

    name: str
    version: int
    options: ModelRules
    path: str = ""
    pool_name: str = ""  # its name in the pool: its own or a second name
    registration: Hashable | None = None  # the pool's, if the server has not registered it
    state: VersionState = VersionState.START
    error: str = ""  # why it could not be brought into service
    retry_at: float = 0.0  # when loading is retried automatically
    left_because: str = ""
    is_out: bool = False  # unloaded by request
    generation: int = 0  # how often it was brought into service
    uses: int = 0  # requests that use it
    keep_seconds: float | None = None
    on_unused: Callable[[Served], None] | None = None  # work deferred until no request uses it
    receipts: list[Receipt] = field(default_factory=list)  # of the copies of this generation
    receipt: Receipt | None = None  # the latest receipt of any generation
    trouble: Crashes = field(default_factory=Crashes)
    failed_at: float = 0.0
    signatures: dict[str, CallSignature] = field(default_factory=dict)
    engine: str = ""
    _idle: asyncio.Event | None = None

    def __post_init__(self) -> None:
        self.pool_name = self.pool_name or self.name

    def __str__(self) -> str:
        return f"{self.name}, version {self.version}"

    # -- use ------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Count a request that uses the version: it is not retired before `leave`."""
        self.uses += 1

    def leave(self) -> None:
        """Release the version: the request is answered."""
        self.uses -= 1
        if not self.uses:
            if self.on_unused is not None:
                todo, self.on_unused = self.on_unused, None
                todo(self)
            if self._idle is not None:
                self._idle.set()

    async def wait_unused(self, seconds: float) -> bool:
        """Wait until no request uses the version; False on timeout."""
        deadline = clock() + seconds
        while self.uses:
            self._idle = asyncio.Event()
            try:
                await asyncio.wait_for(self._idle.wait(), max(0.0, deadline - clock()))
            except (TimeoutError, asyncio.TimeoutError):
                return not self.uses
            finally:
                self._idle = None
        return True

    # -- health ---------------------------------------------------------------------------------

    def has_failed(self, error: BaseException, began: float, *, is_open: bool = False) -> None:
        """Record that a request, begun at that time, could not open the version or lost its worker.

        Requests that were under way at the same time fail together and count once.
        """
        counts = SessionBroken if is_open else SojournError
        if not isinstance(error, counts) or isinstance(error, _NOT_ITS_FAULT):
            return
        if began < self.failed_at:
            return
        self.failed_at = clock()
        self.trouble.record(last_words(error), self.failed_at)

    def has_served(self) -> None:
        """Record a success, which resets the failures before it."""
        if self.trouble.count:
            self.trouble.forgive()

    def retry_seconds(self) -> float:
        """Return the remaining backoff in seconds after repeated failures; 0 if there is no
        backoff."""
        now = clock()
        return self.trouble.retry_at - now if self.trouble.is_hopeless(now) else 0.0

    def seconds_to_retry(self) -> float:
        """Return the seconds until a failed load is retried automatically; 0: no retry is
        scheduled."""
        return max(0.0, self.retry_at - clock()) if self.error else 0.0

    def troubles(self) -> str:
        """Return what a client is told during the backoff or after a failed load."""
        if self.error:
            wait = self.seconds_to_retry()
            return self.error + (f"; it is tried again in {format_seconds(wait)}" if wait else "")
        if not self.trouble.count:
            return ""
        wait = self.retry_seconds()
        again = f"; it is tried again in {format_seconds(wait)}" if wait else ""
        times = "once" if self.trouble.count == 1 else f"{self.trouble.count} times in a row"
        return f"it failed {times}{again}: {self.trouble.last_words}"

    def status(self, labels: Mapping[str, int], held: Sequence[int]) -> VersionStatus:
        """Return the status; `held` are the bytes of each open copy."""
        return VersionStatus(
            self.name,
            self.version,
            self.state,
            self.troubles(),
            labels=tuple(label for label, version in labels.items() if version == self.version),
            receipt=self.receipt,
            is_loaded=bool(held),
            memory=sum(held),
            copies=len(held),
            uses=self.uses,
            generation=self.generation,
            failures=self.trouble.count,
            retry_seconds=self.retry_seconds() or self.seconds_to_retry(),
            keep_seconds=self.keep_seconds,
        )


class Use:
    """`async with catalogue.session(served) as session`: a lease, for one request or batch."""

    __slots__ = ("_began", "_lease", "_leasing", "_served")

    def __init__(self, served: Served, leasing: Leasing) -> None:
        self._served = served
        self._leasing = leasing
        self._began = 0.0

    async def __aenter__(self) -> Usable:
        served = self._served
        served.enter()
        self._began = clock()
        try:
            return await self._leasing.__aenter__()
        except BaseException as error:
            served.leave()
            served.has_failed(error, self._began)
            if isinstance(error, _CANNOT_BE_OPENED):  # not the request's fault
                words = f"{served} cannot be loaded: {error}"
                raise Refused(Status.UNAVAILABLE, words) from error
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        served = self._served
        try:
            await self._leasing.__aexit__(kind, error, traceback)
        finally:
            served.leave()
            if error is None:
                served.has_served()
            else:
                served.has_failed(error, self._began, is_open=True)


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """The status of one version at one moment."""

    name: str
    version: int
    state: VersionState
    error: str = ""
    labels: tuple[str, ...] = ()
    receipt: Receipt | None = None  # of the copy that was closed last
    is_loaded: bool = False
    memory: int = 0  # bytes that its copies hold
    copies: int = 0
    uses: int = 0
    generation: int = 0
    failures: int = 0  # in a row
    retry_seconds: float = 0.0
    keep_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """The metadata of a model that clients receive."""

    name: str
    version: int
    versions: tuple[int, ...]
    platform: str
    engine: str
    signatures: dict[str, CallSignature]  # the default first
    memory: int = 0  # bytes that its copies hold

    @property
    def usual(self) -> Signature:
        """The default signature: for requests that name none."""
        return next((call.spec for call in self.signatures.values()), Signature())
