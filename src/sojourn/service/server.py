"""A server: one thread, one event loop, and the doors (listeners) through which clients connect."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from sojourn.pool import Pool
from sojourn.service.catalogue import Catalogue
from sojourn.service.handler import Handler
from sojourn.service.http.door import HttpDoor
from sojourn.service.http.kserve import KServe
from sojourn.service.http.limits import Limits
from sojourn.service.http.router import Router
from sojourn.service.http.tfserving import TfServing
from sojourn.service.operating import Operating, Operation
from sojourn.service.tls import Tls

T = TypeVar("T")

GRACE_SECONDS = 30.0
# The interpreter's switch interval: threads that open and close models hold the GIL at most this
# long while requests wait. Python's default of 5 ms would show in their latencies.
_SWITCH_SECONDS = 0.0005
_LAST_SECONDS = 1.0  # to wait for the tasks that are cancelled when the loop stops


class Door(Protocol):
    """A listener for one protocol: it accepts clients from `start` to `stop`."""

    async def start(self, handler: Handler) -> str:
        """Start listening and return the address that clients use."""

    async def stop(self, grace: float) -> None:
        """Accept nothing new, and give requests under way `grace` seconds."""


class Server:
    """The models of a pool, served over HTTP and gRPC until `close()`; best used with `with`.

    In an address such as `"127.0.0.1:8501"`, port 0 picks a free port, which `http_address` and
    `grpc_address` report; None disables the protocol. The pool stays yours: closing the server
    leaves it open.
    """

    def __init__(
        self,
        pool: Pool | Catalogue,
        *,
        http: str | None = None,
        grpc: str | None = None,
        limits: Limits | None = None,
        tls: Tls | None = None,
        operation: Operation | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        catalogue = pool if isinstance(pool, Catalogue) else Catalogue(pool)
        self.handler = Handler(catalogue)
        self.router = Router()
        KServe(self.handler).add_to(self.router)
        TfServing(self.handler).add_to(self.router)
        self._tls = tls
        self._contexts: list[ssl.SSLContext] = []  # one for each door
        self._limits = limits
        operation = operation or Operation()
        if http is None and not isinstance(operation.admin, str):
            operation = replace(operation, page=False)  # no listener would serve the page
        self.operating = Operating(self.handler, operation)
        self.operating.add_to(self.router)
        admin = self.operating.split(self.router)
        self._doors: dict[str, Door] = {}
        if http is not None:
            self._doors["http"] = self._http_door(http, self.router)
        if admin is not None:
            self._doors["admin"] = self._http_door(str(operation.admin), admin)
        if grpc is not None:
            from sojourn.service.grpc.door import GrpcDoor

            self._doors["grpc"] = GrpcDoor(
                grpc,
                self._context("h2"),
                self.operating.gate,
                limits=limits,
                reports=self.operating.reports,
                for_admins=operation.admin is True,
            )
        self.addresses = self.operating.addresses
        self.grace_seconds = grace_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._shutting: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()  # stop the doors; one per close
        self._doors_are_shut = asyncio.Event()
        self._failure: BaseException | None = None  # raised while closing

    @property
    def http_address(self) -> str | None:
        """The address for HTTP; None without HTTP."""
        return self.addresses.get("http")

    @property
    def grpc_address(self) -> str | None:
        """The address for gRPC; None without gRPC."""
        return self.addresses.get("grpc")

    @property
    def where(self) -> str:
        """The addresses, for people."""
        return ", ".join(f"{name} at {address}" for name, address in self.addresses.items())

    @property
    def facts(self) -> dict[str, Any]:
        """The addresses, for programs."""
        return dict(self.addresses)

    def start(self) -> None:
        """Start listening, and return when requests are answered."""
        if self._thread is not None:
            raise RuntimeError("a server is started once; make another")
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sojourn-server", daemon=True)
        self._thread.start()
        try:
            self.call(self._open)
        except BaseException:
            self.close()
            raise

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the server's loop and wait for its result."""
        return self.begin(work).result()

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine on the server's loop, without waiting."""
        assert self._loop is not None, "it has been started"
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def close(self, grace_seconds: float | None = None) -> None:
        """Refuse new requests, finish those under way, and stop. May be called several times, also
        by several threads: the shortest grace period counts."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        grace = self.grace_seconds if grace_seconds is None else grace_seconds
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(self._begin_to_shut, loop, grace)
        thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def reload_certificates(self) -> None:
        """Read the certificate again; new connections use it."""
        for context in self._contexts:
            assert self._tls is not None
            self._tls.reload(context)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # -- on the loop -----------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            with _switching():
                self._loop.run_forever()
        finally:
            for task in self._stopping:  # if shutting has failed
                task.cancel()
            if self._stopping:
                self._loop.run_until_complete(asyncio.wait(self._stopping))
            self._loop.close()

    def _http_door(self, address: str, router: Router) -> HttpDoor:
        door = HttpDoor(
            address,
            router,
            limits=self._limits,
            tls=self._context("http/1.1"),
            gate=self.operating.gate,
        )
        door.observers.append(self.operating.reports.of_http)
        return door

    def _context(self, protocol: str) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        self._contexts.append(self._tls.context(protocol))
        return self._contexts[-1]

    async def _open(self) -> None:
        self.operating.open()
        if self.operating.page is not None:
            await self.operating.page.start()
        # The doors first: an address in use is reported at once, and liveness probes are answered
        # while models are loaded.
        for name, door in self._doors.items():
            self.addresses[name] = await door.start(self.handler)
        await self.handler.catalogue.start()

    def _begin_to_shut(self, loop: asyncio.AbstractEventLoop, grace: float) -> None:
        """Begin the shutdown, once. Closing again can only shorten the grace period of the
        doors."""

        def has_ended(task: asyncio.Task[None]) -> None:
            self._failure = None if task.cancelled() else task.exception()
            loop.stop()

        if self._shutting is None:
            self._shutting = loop.create_task(self._shut())
            self._shutting.add_done_callback(has_ended)
        if not self._doors_are_shut.is_set():
            self._stopping.add(loop.create_task(self._stop_doors(grace)))

    async def _stop_doors(self, grace: float) -> None:
        try:
            await asyncio.gather(*(door.stop(grace) for door in self._doors.values()))
        finally:
            self._doors_are_shut.set()

    async def _shut(self) -> None:
        self.handler.is_stopping = True
        self.operating.drain()
        if self.operating.page is not None:
            await self.operating.page.stop()
        await self._doors_are_shut.wait()
        for task in self._stopping:
            if task.done():
                task.result()
        await self.handler.close()
        await self.handler.catalogue.close()
        self.operating.close()
        loop = asyncio.get_running_loop()
        await loop.shutdown_default_executor()
        await loop.shutdown_asyncgens()  # closes the loop's connections to other nodes
        await _end_others()


_switch_lock = threading.Lock()
_switch_before: list[float] = []  # one entry for each server that runs in this process


@contextlib.contextmanager
def _switching() -> Iterator[None]:
    """Shorten the interpreter's switch interval; the end of the last server restores it."""
    with _switch_lock:
        _switch_before.append(_switch_before[0] if _switch_before else sys.getswitchinterval())
        sys.setswitchinterval(min(_switch_before[0], _SWITCH_SECONDS))
    try:
        yield
    finally:
        with _switch_lock:
            before = _switch_before.pop()
            if not _switch_before:
                sys.setswitchinterval(before)


async def _end_others() -> None:
    """Cancel the remaining tasks: nothing would finish them once the loop has stopped, and callers
    that wait for them, and gRPC objects that they hold, would stay forever."""
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_LAST_SECONDS)
    await asyncio.sleep(0)
