"""The life cycle of models: brought into service, replaced by other versions, taken out again.

Operations on a model run one at a time. Requests never wait for them: they use what is in service
at the moment. A new version takes over once it has been opened and run, and the previous version is
removed once no request uses it. If the new version fails, the previous one stays in service; if the
failure may be temporary, the new version is retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from sojourn import events
from sojourn.errors import ModelError
from sojourn.pool.decisions.terms import key_of
from sojourn.process.aside import aside
from sojourn.service import folders, versions
from sojourn.service.backend import Backend, Leasing
from sojourn.service.failures import Status, refusal
from sojourn.service.inference import ModelRef
from sojourn.service.models import Model, not_found
from sojourn.service.rules import ModelRules
from sojourn.service.served import Served, VersionState, clock
from sojourn.service.signatures import DEFAULT, is_quickly_read, plain, read_signatures
from sojourn.service.warming import warm_up
from sojourn.session.session import Usable
from sojourn.values import Place, Receipt, format_seconds

_log = logging.getLogger("sojourn.service")
DRAIN_SECONDS = 30.0  # for requests that still use a version being retired
KEPT_VERSIONS = 8  # retired versions whose status is kept
RETRY_SECONDS = 1.0  # after the first temporary failure; doubled each time ...
LONGEST_RETRY_SECONDS = 60.0  # ... up to this
_MAY_PASS = (Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.DEADLINE_EXCEEDED)


class Lives:
    """The life cycle of the models of one pool."""

    def __init__(self, pool: Backend, place: Place) -> None:
        self.pool = pool
        self._driver = pool._driver
        self._place = place
        self._by_key: dict[str, Served] = {}  # by the key that the pool uses
        self.second_names: set[str] = set()  # pool names that differ from the model's name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changing: set[asyncio.Task[None]] = set()  # models being added, changed or removed

    def own_name(self, pool_name: str) -> str:
        """Return the name that clients know for this name in the pool."""
        return pool_name.rpartition("#")[0] if pool_name in self.second_names else pool_name

    def _listen(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._driver.on_receipt.append(self._has_receipt)

    def _stop_listening(self) -> None:
        if self._loop is not None:
            self._driver.on_receipt.remove(self._has_receipt)
        self._loop = None

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._changing.add(task)
        task.add_done_callback(self._has_changed)
        return task

    def _has_changed(self, task: asyncio.Task[None]) -> None:
        self._changing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a model could not be changed", exc_info=error)

    # -- versions -------------------------------------------------------------------------------

    async def _bring_up(
        self,
        model: Model,
        version: int | None = None,
        *,
        is_asked: bool = False,
        there: Mapping[int, str] | None = None,
        again: Collection[int] = (),
        retried: Served | None = None,
    ) -> None:
        """Bring the versions that the rules choose into service, then retire the others.

        `there` are the available versions; by default, all on the disk. The versions in `again`
        have new files: they are opened again, also if they have failed before. A request by an
        operator (`is_asked`) opens all failed versions again; `retried` opens that one version
        again, unless its state has changed meanwhile.
        """
        async with model.lock:
            if model.is_out and not is_asked:
                return
            if retried is not None:
                if model.known.get(retried.version) is not retried or not retried.error:
                    return
                there, again = model.there or None, (retried.version,)
            if model.is_pools:
                there = dict.fromkeys(self.pool.versions(model.name), "")
            elif there is None:
                there = await self._look_for_versions(model)
                if there is None:
                    model.there = {}
                    self._try_again(model, 1)
                    return
            model.there = there
            if version is not None and version not in there:  # never there, or not any more
                raise not_found(ModelRef(model.name, version), None, True)
            model.is_out = False
            chosen = tuple(there) if model.is_pools else model.rules.chosen(there)
            wanted = [n for n in chosen if is_asked or not model.was_unloaded(n)]
            serving = model.available()
            failures: list[Exception] = []
            for number in wanted if version is None else (version,):
                if model.has_failed(number) and not is_asked and number not in again:
                    continue
                takes_over = bool(serving) and number not in serving
                try:
                    must_load = is_asked or takes_over
                    await self._ensure(model, number, there[number], must_load, number in again)
                except Exception as error:
                    failures.append(error)
                    if number in wanted and _may_pass(error):
                        self._try_again(model, number)
                else:
                    del model.failures[number]
            if version is None:
                for number in versions.to_retire(model.known, wanted, model.available()):
                    why = "another version replaces it" if number in there else "its files are gone"
                    await self._retire(model, model.known[number], why)
                self._forget_old(model, there)
        if is_asked and failures:
            raise failures[0]

    def _try_again(self, model: Model, version: int) -> None:
        """Schedule another attempt after a temporary failure: other models may have freed memory by
        then."""
        served = model.known.get(version)
        if served is None or model.is_pools:
            return
        seconds = min(RETRY_SECONDS * 2.0 ** model.failures[version], LONGEST_RETRY_SECONDS)
        model.failures[version] = min(model.failures[version] + 1, 60)
        served.retry_at = clock() + seconds
        _log.info("%s is tried again in %s", served, format_seconds(seconds))
        self._begin(self._retry(model, served, served.retry_at))

    async def _retry(self, model: Model, served: Served, at: float) -> None:
        await asyncio.sleep(at - clock())
        if model.is_wanted and served.retry_at == at:
            await self._bring_up(model, retried=served)

    async def _look_for_versions(self, model: Model) -> Mapping[int, str] | None:
        """Return every version on the disk, or None if the disk cannot be read; the status then
        says so."""
        try:
            return await asyncio.to_thread(folders.versions_at, model.rules.path)
        except OSError as error:
            served = model.known.setdefault(
                1, Served(model.name, 1, model.rules, state=VersionState.END)
            )
            served.error = f"{model.rules.path}: {error.strerror or error}"
            events.emit("model.failed", model.name, version=1, error=served.error)
            return None

    def _forget_old(self, model: Model, there: Collection[int]) -> None:
        """Forget versions that are no longer on the disk and never served or were retired long
        ago."""
        ended = [s for _, s in sorted(model.known.items()) if s.state is VersionState.END]
        gone = [s for s in ended if s.version not in there]
        left = [s.version for s in gone if s.generation]
        for version in (*left[:-KEPT_VERSIONS], *(s.version for s in gone if not s.generation)):
            served = model.known.pop(version)
            self._by_key.pop(key_of(served.pool_name, version), None)

    async def _ensure(
        self, model: Model, version: int, path: str, must_load: bool, is_changed: bool
    ) -> None:
        """Bring one version into service, with the current rules and files."""
        rules = model.rules
        before = model.known.get(version)
        if before is not None and before.state is VersionState.AVAILABLE:
            is_same = before.path == path and before.options.is_like(rules) and not is_changed
            if model.is_pools or is_same:
                before.options, before.error = rules, ""
                if must_load:
                    await self._open(model, before, must_load)
                return
            must_load = True
        served = Served(model.name, version, rules, path, keep_seconds=rules.keep_seconds)
        if model.is_pools:
            served.registration = self._driver.registration(model.name, version)
        if before is not None:
            served.generation, served.receipt = before.generation, before.receipt
        if before is None or before.state is not VersionState.AVAILABLE:
            model.known[version] = served
            await self._open(model, served, must_load or rules.load == "eager")
            return
        try:
            await self._open(model, served, must_load)
        except Exception as error:
            what = "files" if is_changed else "settings"
            before.error = f"its new {what} cannot be used: {error}"
            raise
        await self._retire(model, before, "it was opened again")

    async def _open(self, model: Model, served: Served, must_load: bool) -> None:
        """Bring one version into service; if it must be loaded first, requests that arrive
        meanwhile get the other versions."""
        is_new = served.state is VersionState.START
        began = clock()
        try:
            if is_new:
                served.state = VersionState.LOADING
                if not model.is_pools:
                    await asyncio.to_thread(self._register, served)
                self._by_key[key_of(served.pool_name, served.version)] = served
            if must_load:
                await self._load(served)
        except Exception as error:
            if is_new:
                served.state, served.error = VersionState.END, str(error) or type(error).__name__
                if not model.is_pools:
                    await asyncio.to_thread(self._unregister, served)
            events.emit("model.failed", served.name, version=served.version, error=str(error))
            raise
        if must_load:
            seconds = clock() - began
            events.emit("model.loaded", served.name, version=served.version, seconds=seconds)
        if is_new:
            served.state = VersionState.AVAILABLE
            served.generation += 1
            model.known[served.version] = served
            model.settle()

    def _register(self, served: Served) -> None:
        """Register a version with the pool. Reads files, so it must not run on the loop's
        thread."""
        rules = served.options
        options = self._options(rules)
        if not rules.names_tensors and is_quickly_read(served.path):
            served.signatures = read_signatures(served.path, rules.signature, rules.tags)
            if served.signatures:
                options["signature"] = next(iter(served.signatures))
        served.pool_name = self._free_name(served)
        self.pool.register(served.pool_name, served.path, version=served.version, **options)

    def _options(self, rules: ModelRules) -> dict[str, Any]:
        return rules.for_pool()

    def _free_name(self, served: Served) -> str:
        """Return the model's own name, unless the previous registration still serves or finishes
        its last request: then a second name. Second names are reused."""
        if key_of(served.name, served.version) not in self._by_key:
            return served.name
        models = {(model.name, model.version) for model in self.pool.stats().models}
        others = {name for name, _ in models} - self.second_names - {served.name}
        seconds = (f"{served.name}#{number}" for number in itertools.count(2))
        for name in itertools.chain([served.name], seconds):
            if name not in others and (name, served.version) not in models:
                break
        if name != served.name:
            self.second_names.add(name)
        return name

    def _unregister(self, served: Served) -> None:
        with contextlib.suppress(ModelError):  # the version was never registered
            self.pool.unregister(served.pool_name, version=served.version)

    async def _load(self, served: Served) -> None:
        """Open a version and run it once."""
        if served.options.pinned:  # a pinned model should have all its copies
            await aside(lambda: self.pool.preload(served.pool_name, version=served.version))
        async with self._lease(served) as session:
            served.engine = session.engine
            if not served.signatures:
                served.signatures = {DEFAULT: plain(DEFAULT, session.signature)}
            if served.options.warm_up and served.state is VersionState.LOADING and served.path:
                await self._warm_up(session, served)
        served.has_served()

    async def _warm_up(self, session: Usable, served: Served) -> None:
        await warm_up(session, served.path, served.signatures)

    def _lease(self, served: Served, timeout: float | None = None) -> Leasing:
        return self.pool._leasing(served.pool_name, served.version, timeout, self._place)

    async def _retire(self, model: Model, served: Served, why: str) -> tuple[Receipt, ...]:
        """Take a version out of service: new requests by name get another version, requests that
        use it are answered, and its copies are closed."""
        if served.state is not VersionState.AVAILABLE:
            return ()
        served.state, served.left_because = VersionState.UNLOADING, why
        model.settle()
        served.receipts.clear()
        let_go = self.pool.evict if model.is_pools else self.pool.unregister
        try:
            await served.wait_unused(DRAIN_SECONDS)
            await asyncio.to_thread(let_go, served.pool_name, version=served.version)
        finally:
            served.state = VersionState.END
        events.emit("model.retired", served.name, version=served.version, why=why)
        return tuple(served.receipts)

    # -- receipts from the pool -----------------------------------------------------------------

    def _has_receipt(self, key: str, receipt: Receipt) -> None:
        """A copy was closed, for any reason. Called on a thread of the pool."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._note_receipt, key, receipt)

    def _note_receipt(self, key: str, receipt: Receipt) -> None:
        served = self._by_key.get(key)
        if served is not None:
            served.receipt = receipt
            served.receipts.append(receipt)
            told = receipt.to_dict()
            events.emit("model.unloaded", served.name, version=served.version, receipt=told)


def _may_pass(error: Exception) -> bool:
    """Whether a retry may succeed after this error: it does not indicate that the version itself is
    at fault."""
    return isinstance(error, OSError) or refusal(error).status in _MAY_PASS
