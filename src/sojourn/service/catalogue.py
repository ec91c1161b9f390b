"""The models that a server has: which there are, which version a request gets, and their lives.

All of it is used on the server's event loop only. What takes time (opening, closing, reading
files) is done by the pool's workers and by threads, one operation on a model at a time; requests
never wait for these operations, they go by what is in service at the moment.

A version is in service (AVAILABLE) before its predecessor leaves, and leaves only when no request
has it any more. Models that are registered in the pool itself are served as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from types import TracebackType

from sojourn import events
from sojourn.errors import ModelError, SojournError
from sojourn.pool.aio import AsyncLease
from sojourn.pool.decisions.terms import key_of
from sojourn.pool.driver import keeps_no_receipts
from sojourn.pool.leasing import PoolLease
from sojourn.pool.pool import Pool
from sojourn.service import folders, versions
from sojourn.service.failures import Refused, Status
from sojourn.service.inference import ModelRef
from sojourn.service.rules import ModelRules, keep_seconds
from sojourn.service.served import ModelMetadata, Served, State, VersionStatus, clock
from sojourn.service.signatures import (
    DEFAULT,
    CallSignature,
    is_quickly_read,
    plain,
    platform_of,
    read_signatures,
)
from sojourn.values import Place, Receipt, caller

_log = logging.getLogger("sojourn.service")
DRAIN_SECONDS = 30.0  # for requests that still have a version which leaves


class _Model:
    """One name: its rules, and every version of it that is or was in service."""

    def __init__(self, name: str, rules: ModelRules) -> None:
        self.name = name
        self.rules = rules
        self.known: dict[int, Served] = {}
        self.lock = asyncio.Lock()  # one operation at a time
        self.latest: Served | None = None
        self.is_pools = not rules.path  # registered in the pool by somebody else

    def available(self) -> dict[int, Served]:
        return {v: s for v, s in self.known.items() if s.state is State.AVAILABLE}

    def find(self, ref: ModelRef) -> Served | None:
        if ref.version is None and ref.label is None:
            return self.latest
        version = versions.pick(self.available(), self.rules.labels, ref.version, ref.label)
        return None if version is None else self.known[version]

    def settle(self) -> None:
        """Something has changed: note which version requests by name get."""
        self.latest = max(self.available().values(), key=lambda s: s.version, default=None)


class Use:
    """`async with catalogue.session(served) as session`: a lease, for one request or batch."""

    __slots__ = ("_began", "_lease", "_leasing", "_served")

    def __init__(self, served: Served, leasing: AsyncLease) -> None:
        self._served = served
        self._leasing = leasing
        self._began = 0.0

    async def __aenter__(self) -> PoolLease:
        served = self._served
        served.enter()
        self._began = clock()
        try:
            return await self._leasing.__aenter__()
        except BaseException as error:
            served.leave()
            served.has_failed(error, self._began)
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


class Catalogue:
    """The models of one server. Lives as long as its loop; `start` first, `close` at the end."""

    def __init__(
        self,
        pool: Pool,
        entries: Mapping[str, ModelRules | str] | None = None,
        *,
        place: Place | None = None,
    ) -> None:
        self.pool = pool
        self._driver = pool._driver
        self._place = place or caller()
        self._models: dict[str, _Model] = {}
        self._by_key: dict[str, Served] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        for name, rules in (entries or {}).items():
            self._models[name] = _Model(name, _rules(rules))

    async def start(self) -> None:
        """Bring every model into service; returns when those that are eager are loaded."""
        self._loop = asyncio.get_running_loop()
        self._driver.on_receipt = self._has_receipt
        await asyncio.gather(*(self._bring_up(model) for model in list(self._models.values())))

    async def close(self) -> None:
        """Stop listening to the pool. Its owner closes it, and the sessions with it."""
        self._driver.on_receipt = keeps_no_receipts
        self._loop = None

    # -- requests -------------------------------------------------------------------------------

    def resolve(self, ref: ModelRef) -> Served:
        """The version that a request gets. Raises Refused if there is none, or it backs off."""
        model = self._models.get(ref.name)
        if model is None or model.is_pools:
            model = self._of_pool(ref.name)
        served = None if model is None else model.find(ref)
        if served is None:
            raise self._not_found(ref, model)
        if served.trouble.count:
            wait = served.retry_seconds()
            if wait:
                raise Refused(Status.UNAVAILABLE, f"{served}: {served.troubles()}", wait)
        return served

    @contextlib.contextmanager
    def using(self, served: Served) -> Iterator[None]:
        """Keep a version in service for the block, from `resolve` to the answer: what waits in a
        queue has no session yet, and the version shall not leave before it was served."""
        served.enter()
        try:
            yield
        finally:
            served.leave()

    def session(
        self,
        served: Served,
        deadline: float | None = None,
        keep_alive: float | None = None,
    ) -> Use:
        """A session of this version: `async with catalogue.session(served) as session`.

        Opens it if need be, by the `deadline` of the monotonic clock. A `keep_alive` in seconds
        (negative: for ever) holds from now on.
        """
        if served.state is not State.AVAILABLE and not served.uses:
            raise Refused(Status.UNAVAILABLE, f"{served} is out of service", 1.0)
        if keep_alive is not None:
            self.keep(served, keep_alive)
        timeout = None if deadline is None else deadline - clock()
        return Use(served, AsyncLease(self.pool, served.name, served.version, timeout, self._place))

    def keep(self, served: Served, keep_alive: float | str) -> None:
        """Keep it for so long when it is idle: a number of seconds or a duration such as "5m"."""
        seconds = keep_seconds(keep_alive)
        if seconds != served.keep_seconds:
            self.pool.keep(served.name, seconds, version=served.version)
            served.keep_seconds = seconds

    # -- questions ------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Every model that is known here, in service or not."""
        return tuple(dict.fromkeys((*self._models, *self._driver.names())))

    def statuses(self, name: str | None = None) -> tuple[VersionStatus, ...]:
        """Every version that is or was in service, the latest last. Refused if the name is not
        known."""
        chosen = [m for m in map(self._find, self.names() if name is None else [name]) if m]
        if name is not None and not chosen:
            raise self._not_found(ModelRef(name), None)
        sizes: dict[tuple[str, int], list[int]] = {}
        for copy in self.pool.stats().copies:
            if copy.state in ("ready", "leased"):
                sizes.setdefault((copy.model, copy.version), []).append(copy.bytes)
        return tuple(
            _status(model, served, sizes.get((model.name, version), []))
            for model in chosen
            for version, served in sorted(model.known.items())
        )

    async def metadata(self, ref: ModelRef) -> ModelMetadata:
        """What clients are told. Reads the model's files; opens it only if they do not tell."""
        served = self.resolve(ref)
        await self.signature(served)
        model = self._models[served.name]
        held = [
            copy.bytes
            for copy in self.pool.stats().copies
            if (copy.model, copy.version) == (served.name, served.version)
        ]
        platform = platform_of(served.path) if served.path else "sojourn"
        return ModelMetadata(
            served.name,
            served.version,
            tuple(sorted(model.available())),
            platform,
            served.engine or served.options.engine or platform.partition("_")[0],
            {name: found.spec for name, found in served.signatures.items()},
            sum(held),
        )

    async def signature(self, served: Served, name: str | None = None) -> CallSignature:
        """One signature of a version: the one that is named, or the model's own choice.

        Raises Refused if it has no such one.
        """
        if not served.signatures:
            await self._learn_signatures(served)
        found = served.signatures
        if name is None or (name == DEFAULT and len(found) == 1):
            return next(iter(found.values()))
        if name not in found:
            raise Refused(Status.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        return found[name]

    # -- operations -----------------------------------------------------------------------------

    async def load(self, name: str, *, version: int | None = None) -> None:
        """Have a model in service and loaded, or one version of it. Waits until it is ready.

        Also if it was unloaded, or has failed before: its files are read anew.
        """
        model = self._find(name)
        if model is None:
            raise self._not_found(ModelRef(name, version), None)
        await self._bring_up(model, version, is_asked=True)

    async def unload(
        self, name: str, *, version: int | None = None, generation: int | None = None
    ) -> tuple[Receipt, ...]:
        """Take a model out of service, or one version of it, until it is loaded again.

        Requests that have it are answered first. Returns the receipts of its copies; nothing if
        it was out of service already or, where a `generation` is given, has come back since.
        """
        model = self._find(name)
        if model is None or (version is not None and version not in model.known):
            raise self._not_found(ModelRef(name, version), None)
        receipts: list[Receipt] = []
        async with model.lock:
            for number, served in sorted(model.known.items()):
                if version in (None, number) and generation in (None, served.generation):
                    receipts += await self._retire(model, served, "it was unloaded by request")
        return tuple(receipts)

    # -- the life of a version ------------------------------------------------------------------

    async def _bring_up(
        self, model: _Model, version: int | None = None, *, is_asked: bool = False
    ) -> None:
        """Have the versions in service that the rules choose, then let the others go."""
        async with model.lock:
            if model.is_pools:
                there = dict.fromkeys(self.pool.versions(model.name), "")
                wanted = tuple(there)
            else:
                there = await asyncio.to_thread(folders.versions_at, model.rules.path)
                wanted = model.rules.choice.among(there)
            if version is not None and version not in there:
                raise self._not_found(ModelRef(model.name, version), None)
            before = max(model.available(), default=None)
            failures: list[Exception] = []
            for number in wanted if version is None else (version,):
                served = model.known.get(number)
                if served is None or served.state is State.END:
                    served = self._new(model, number, there[number], served)
                takes_over = before is not None and number > before
                try:
                    must_load = is_asked or takes_over or model.rules.load == "eager"
                    await self._open(model, served, must_load)
                except Exception as error:
                    failures.append(error)
            if version is None:
                for number in versions.to_retire(model.known, wanted, model.available()):
                    await self._retire(model, model.known[number], "another version replaces it")
        if is_asked and failures:
            raise failures[0]

    def _new(self, model: _Model, version: int, path: str, before: Served | None = None) -> Served:
        served = Served(model.name, version, model.rules, path)
        if before is not None:
            served.generation, served.receipt = before.generation, before.receipt
        model.known[version] = self._by_key[key_of(model.name, version)] = served
        return served

    async def _open(self, model: _Model, served: Served, must_load: bool) -> None:
        """Bring one version into service; where it must be loaded first, requests that come
        meanwhile get the others."""
        is_new = served.state is State.START
        began = clock()
        try:
            if is_new:
                served.state = State.LOADING
                served.keep_seconds = keep_seconds(model.rules.keep_alive)
                if not model.is_pools:
                    await asyncio.to_thread(self._register, served)
            if must_load:
                await self._load(served)
        except Exception as error:
            _log.warning("%s cannot be loaded: %s", served, error)
            events.emit("model.failed", served.name, version=served.version, error=str(error))
            if is_new:
                await self._give_up(model, served, error)
            raise
        if must_load:
            seconds = clock() - began
            events.emit("model.loaded", served.name, version=served.version, seconds=seconds)
        if is_new:
            served.state = State.AVAILABLE
            served.generation += 1
            model.settle()

    def _register(self, served: Served) -> None:
        """Make a version known to the pool. Reads files, so not on the loop's thread."""
        rules = served.options
        options = rules.for_pool()
        if rules.inputs is None and rules.outputs is None and is_quickly_read(served.path):
            served.signatures = read_signatures(served.path, rules.signature, rules.tags)
            if served.signatures:
                options["signature"] = next(iter(served.signatures))
        self.pool.register(served.name, served.path, version=served.version, **options)

    async def _load(self, served: Served) -> None:
        if served.options.pinned:  # it is meant to be there whole
            await asyncio.to_thread(self.pool.preload, served.name, version=served.version)
        leasing = AsyncLease(self.pool, served.name, served.version, None, self._place)
        async with leasing as session:
            served.engine = session.engine
        served.has_served()

    async def _give_up(self, model: _Model, served: Served, why: Exception) -> None:
        """A new version has failed: what is left of it goes."""
        if not model.is_pools:
            with contextlib.suppress(ModelError):  # it was not registered yet
                await asyncio.to_thread(self.pool.unregister, served.name, version=served.version)
        served.state, served.error = State.END, str(why)

    async def _retire(self, model: _Model, served: Served, why: str) -> tuple[Receipt, ...]:
        """Take a version out of service: requests by name get another from now on, those that
        have it are answered, and its copies are closed."""
        if served.state is not State.AVAILABLE:
            return ()
        served.state, served.left_because = State.UNLOADING, why
        model.settle()
        served.receipts.clear()
        await served.wait_unused(DRAIN_SECONDS)
        let_go = self.pool.evict if model.is_pools else self.pool.unregister
        try:
            await asyncio.to_thread(let_go, served.name, version=served.version)
        finally:
            served.state = State.END
        return tuple(served.receipts)

    async def _learn_signatures(self, served: Served) -> None:
        found: dict[str, CallSignature] = {}
        if served.path and served.options.inputs is None and served.options.outputs is None:
            rules = served.options
            with contextlib.suppress(SojournError, OSError):
                found = await asyncio.to_thread(
                    read_signatures, served.path, rules.signature, rules.tags
                )
        if not found:
            async with self.session(served) as session:
                signature, served.engine = session.signature, session.engine
            found = {DEFAULT: plain(DEFAULT, signature)}
        served.signatures = found

    # -- what the pool tells --------------------------------------------------------------------

    def _has_receipt(self, key: str, receipt: Receipt) -> None:
        """A copy has left, for whatever reason. On a thread of the pool."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._note_receipt, key, receipt)

    def _note_receipt(self, key: str, receipt: Receipt) -> None:
        served = self._by_key.get(key)
        if served is not None:
            served.receipt = receipt
            served.receipts.append(receipt)
            _log.info("%s: %s", served, receipt)
            events.emit(
                "model.unloaded", served.name, version=served.version, receipt=receipt.to_dict()
            )

    def _find(self, name: str) -> _Model | None:
        model = self._models.get(name)
        return self._of_pool(name) if model is None or model.is_pools else model

    def _of_pool(self, name: str) -> _Model | None:
        """A model that is registered in the pool itself, as it is there now."""
        model = self._models.get(name)
        latest = self._driver.latest(name)
        if latest is None:
            return model
        if model is None:
            model = self._models[name] = _Model(name, ModelRules())
        there = self._driver.versions(name)
        for version in there:
            if version not in model.known:
                served = self._new(model, version, "")
                served.state, served.generation = State.AVAILABLE, 1
        for version in model.known.keys() - set(there):
            del model.known[version]
        last = model.known[latest]
        model.latest = last if last.state is State.AVAILABLE else None
        return model

    def _not_found(self, ref: ModelRef, model: _Model | None) -> Refused:
        """Why a request gets nothing."""
        missing = f"Servable not found for request: {ref}"
        if model is None or not model.known:
            return Refused(Status.NOT_FOUND, missing)
        version = ref.version if ref.label is None else model.rules.labels.get(ref.label, 0)
        served = model.known.get(max(model.known) if version is None else version)
        if served is None:
            return Refused(Status.NOT_FOUND, missing)
        if served.state in (State.START, State.LOADING):
            return Refused(Status.UNAVAILABLE, f"{served} is being loaded", 1.0)
        if served.state is State.UNLOADING:
            return Refused(Status.UNAVAILABLE, f"{served} is being unloaded", 1.0)
        if served.error:
            return Refused(Status.UNAVAILABLE, f"{served} cannot be loaded: {served.error}")
        return Refused(Status.NOT_FOUND, f"{missing}; {served.left_because}")


def _status(model: _Model, served: Served, held: list[int]) -> VersionStatus:
    return VersionStatus(
        served.name,
        served.version,
        served.state,
        served.troubles(),
        labels=tuple(name for name, v in model.rules.labels.items() if v == served.version),
        receipt=served.receipt,
        is_loaded=bool(held),
        memory=sum(held),
        copies=len(held),
        uses=served.uses,
        generation=served.generation,
        failures=served.trouble.count,
        retry_seconds=served.retry_seconds(),
        keep_seconds=served.keep_seconds,
    )


def _rules(given: ModelRules | str) -> ModelRules:
    return ModelRules(path=given) if isinstance(given, str) else given
