"""The models of a server: which exist, which version a request gets, and their life cycle.

Everything here runs on the server's event loop only; slow work is done by the pool's workers and by
threads. Models that are registered in the pool itself are served as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping

from sojourn.errors import ModelError, SojournError
from sojourn.pool.decisions.terms import key_of
from sojourn.service.backend import Backend
from sojourn.service.failures import Refused, Status
from sojourn.service.inference import ModelRef
from sojourn.service.lives import Lives
from sojourn.service.models import Model, not_found
from sojourn.service.rules import ModelRules, as_rules, keep_seconds
from sojourn.service.served import ModelMetadata, Served, Use, VersionState, VersionStatus, clock
from sojourn.service.signatures import (
    DEFAULT,
    CallSignature,
    plain,
    platform_of,
    read_signatures,
)
from sojourn.service.watching import News, Watcher
from sojourn.values import Place, Receipt, caller

_LOADED = ("resident", "leased")  # states of a copy in the pool


class Catalogue(Lives):
    """The models of one server, for the lifetime of its loop: call `start` first, `close` at the
    end.

    `entries` are models by name. With `find`, models and versions are looked up again every
    `watch_seconds`: a new one is taken into service once its files have not changed for a moment.
    """

    def __init__(
        self,
        pool: Backend,
        entries: Mapping[str, ModelRules | str] | None = None,
        *,
        find: Callable[[], Mapping[str, ModelRules]] | None = None,
        watch_seconds: float = 0.0,
        place: Place | None = None,
    ) -> None:
        super().__init__(pool, place or caller())
        self._models: dict[str, Model] = {}
        self._find_entries = find
        self._watch_seconds = watch_seconds
        self.is_started = False
        self._watcher: Watcher | None = None
        self._watching: asyncio.Task[None] | None = None
        for name, rules in (entries or {}).items():
            self._models[name] = Model(name, as_rules(rules))

    async def start(self) -> None:
        """Bring every model into service; return when the eager ones are loaded."""
        self._driver.require_open()
        self._listen()
        if self._watch_seconds:
            await self._make_watcher(self._watch_seconds)  # so it knows what is brought up below
        await asyncio.gather(*(self._bring_up(model) for model in list(self._models.values())))
        if self._watcher is not None:
            self._watching = asyncio.create_task(self._watcher.run())
        self.is_started = True

    async def watch(self, seconds: float) -> None:
        """Look for models and versions this often from now on; 0 disables watching."""
        if self._watcher is not None:
            async with self._watcher.lock:  # let it finish what it has begun
                await self._stop_watching()
        if seconds:
            watcher = await self._make_watcher(seconds)
            self._watching = asyncio.create_task(watcher.run())

    async def _make_watcher(self, seconds: float) -> Watcher:
        self._watcher = Watcher(self._entries, self._follow, seconds)
        await self._watcher.begin()
        return self._watcher

    async def close(self) -> None:
        """Stop watching. The pool stays open: its owner closes it and its sessions."""
        await self._stop_watching()
        for task in self._changing:
            task.cancel()
        if self._changing:
            await asyncio.wait(self._changing)
        self._stop_listening()

    async def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._watcher = self._watching = None

    # -- requests -------------------------------------------------------------------------------

    def resolve(self, ref: ModelRef) -> Served:
        """Return the version that a request gets. Raises Refused if none exists or it is backing
        off."""
        served = self.find(ref)
        if served.trouble.count:
            wait = served.retry_seconds()
            if wait:
                raise Refused(Status.UNAVAILABLE, f"{served}: {served.troubles()}", wait)
        return served

    def find(self, ref: ModelRef) -> Served:
        """Return the version in service, even while it backs off. Raises Refused if none exists."""
        model = self._models.get(ref.name)
        if model is None or model.is_pools:
            model = self._of_pool(ref.name, is_by_name=ref.version is None and ref.label is None)
        served = None if model is None else model.find(ref)
        if served is None:
            raise not_found(ref, model, self.is_started)
        return served

    def session(self, served: Served, deadline: float | None = None) -> Use:
        """Return a session of this version: `async with catalogue.session(served) as session`.

        The session is opened if necessary, by the `deadline` on the monotonic clock.
        """
        if served.state is not VersionState.AVAILABLE and not served.uses:
            raise Refused(Status.UNAVAILABLE, f"{served} is out of service", 1.0)
        timeout = None if deadline is None else deadline - clock()
        return Use(served, self._lease(served, timeout))

    def keep(self, served: Served, keep_alive: float | str | None) -> None:
        """Set how long the version is kept when idle: seconds, a duration such as "5m", or forever
        if that is negative. The value applies once the version is idle, until another value is
        set."""
        seconds = keep_seconds(keep_alive)
        if seconds == served.keep_seconds:
            return
        served.keep_seconds = seconds
        if served.uses:
            served.on_unused = self._apply_keep
        else:
            self._apply_keep(served)

    def _apply_keep(self, served: Served) -> None:
        with contextlib.suppress(ModelError):  # the version has just been removed
            self.pool.keep(served.pool_name, served.keep_seconds, version=served.version)

    # -- lookups --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the pool can be used: its owner may have closed it."""
        try:
            self._driver.require_open()
        except SojournError:
            return False
        return True

    def names(self) -> tuple[str, ...]:
        """Return the name of every known model, in service or not."""
        ours = (model.name for model in self._models.values() if not model.is_pools)
        of_pool = (name for name in self._driver.names() if name not in self.second_names)
        return tuple(dict.fromkeys((*ours, *of_pool)))

    def is_known(self, name: str, version: int) -> bool:
        """Whether this version is in service or was until recently."""
        model = self._models.get(name)
        return model is not None and version in model.known

    def copies(self, served: Served) -> int:
        """Return how many sessions of the version may exist at once."""
        return self._driver.copies(served.pool_name, served.version)

    def statuses(self, name: str | None = None) -> tuple[VersionStatus, ...]:
        """Return the status of every version that is or was in service, latest last. Raises Refused
        if the name is unknown."""
        chosen = [m for m in map(self._find, self.names() if name is None else [name]) if m]
        if name is not None and not chosen:
            raise not_found(ModelRef(name), None, self.is_started)
        sizes: dict[tuple[str, int], list[int]] = {}
        for copy in self.pool.stats().copies:
            if copy.state in _LOADED:
                sizes.setdefault((copy.model, copy.version), []).append(copy.bytes)
        return tuple(
            served.status(model.labels, sizes.get((served.pool_name, version), []))
            for model in chosen
            for version, served in sorted(model.known.items())
        )

    def metadata(self, served: Served) -> ModelMetadata:
        """Return the metadata that clients receive for a version whose signatures are known."""
        model = self._models[served.name]
        held = [
            copy.bytes
            for copy in self.pool.stats().copies
            if (copy.model, copy.version) == (served.pool_name, served.version)
        ]
        platform = platform_of(served.path) if served.path else "sojourn"
        return ModelMetadata(
            served.name,
            served.version,
            tuple(sorted(model.available())),
            platform,
            served.engine or served.options.engine or platform.partition("_")[0],
            dict(served.signatures),
            sum(held),
        )

    async def signature(
        self, served: Served, name: str | None = None, deadline: float | None = None
    ) -> CallSignature:
        """Return one signature of a version: the named one, or the model's default.

        Raises Refused if no such signature exists. Reads the model's files, and opens the model, by
        the `deadline`, only if the files do not contain the signatures.
        """
        if not served.signatures:
            await self._learn_signatures(served, deadline)
        found = served.signatures
        if name is None or (name == DEFAULT and len(found) == 1):
            return next(iter(found.values()))
        if name not in found:
            raise Refused(Status.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        return found[name]

    # -- operations -----------------------------------------------------------------------------

    async def load(self, name: str, *, version: int | None = None) -> None:
        """Bring a model, or one version of it, into service and load it. Waits until it is ready.

        This also works for one that was unloaded or has failed: its files are read again.
        """
        model = self._find(name)
        if model is None:
            raise not_found(ModelRef(name, version), None, self.is_started)
        await self._bring_up(model, version, is_asked=True)

    async def unload(
        self, name: str, *, version: int | None = None, generation: int | None = None
    ) -> tuple[Receipt, ...]:
        """Take a model out of service, or one version of it, until it is loaded again.

        Requests under way are answered first. Returns the receipts of its copies; none if it was
        already out of service or, where a `generation` is given, has been loaded again since.
        """
        model = self._find(name)
        if model is None or (version is not None and version not in model.known):
            raise not_found(ModelRef(name, version), None, self.is_started)
        receipts: list[Receipt] = []
        async with model.lock:
            for number, served in sorted(model.known.items()):
                if version in (None, number) and generation in (None, served.generation):
                    served.is_out = True
                    receipts += await self._retire(model, served, "it was unloaded by request")
            model.is_out = all(served.is_out for served in model.known.values())
        return tuple(receipts)

    async def reload(self, entries: Mapping[str, ModelRules | str]) -> None:
        """Replace the served models and their rules; models registered in the pool itself stay.

        Returns when each change is complete, or has failed and is reported in the model's status.
        """
        wanted = {name: as_rules(rules) for name, rules in entries.items()}
        ours = {model.name for model in self._models.values() if not model.is_pools}
        async with self._watcher.lock if self._watcher is not None else contextlib.nullcontext():
            if self._watcher is not None:
                await self._watcher.begin()
            changing = self._change(wanted, ours - wanted.keys())
        await asyncio.gather(*changing)

    def _follow(self, news: News) -> None:
        """Apply changes in the folders. A slow model does not hold up the others."""
        rules = {n: found.rules for n, found in news.changed.items() if n not in news.same_rules}
        there = {name: found.versions for name, found in news.changed.items()}
        self._change(rules, news.gone, there, news.again)

    def rules(self) -> Mapping[str, ModelRules]:
        """Return the rules of each model, except of those registered in the pool itself."""
        return {m.name: m.rules for m in list(self._models.values()) if not m.is_pools}

    async def adjust(self, changes: Mapping[str, ModelRules]) -> None:
        """Change the rules of some models. Refused where a configuration defines the models: it
        would overwrite the change."""
        changed = [name for name, rules in changes.items() if self.rules().get(name) != rules]
        if changed and self._find_entries is not None:
            listed = ", ".join(map(repr, changed))
            raise Refused(
                Status.FAILED_PRECONDITION, f"{listed}: change it where the server is configured"
            )
        if changed:
            await self.reload({**self.rules(), **changes})

    def _change(
        self,
        rules: Mapping[str, ModelRules],
        gone: Collection[str] = (),
        there: Mapping[str, Mapping[int, str]] | None = None,
        again: Collection[tuple[str, int]] = (),
    ) -> list[asyncio.Task[None]]:
        """Apply changed rules or versions to models, and remove some models.

        Each change is a task of its own, all of which are returned; two of one model run in order.
        """
        for name, new in rules.items():
            model = self._models.setdefault(name, Model(name, new))
            if model.rules.keep_seconds != new.keep_seconds:
                for served in model.available().values():
                    self.keep(served, new.keep_alive)
            model.follow(new)
        dropped = [self._models[name] for name in gone if name in self._models]
        for model in dropped:
            model.is_wanted = False
        return [
            *(self._begin(self._drop(model)) for model in dropped),
            *(
                self._begin(
                    self._bring_up(
                        self._models[name],
                        there=None if there is None else there[name],
                        again=[version for known, version in again if known == name],
                    )
                )
                for name in (rules if there is None else there)
                if name in self._models
            ),
        ]

    def _entries(self) -> Mapping[str, ModelRules]:
        """Return the models that should be served now."""
        if self._find_entries is not None:
            return self._find_entries()
        return self.rules()

    async def _drop(self, model: Model) -> None:
        """Retire and forget a model that is no longer served."""
        async with model.lock:
            for served in model.known.values():
                await self._retire(model, served, "it is not served any more")
            if not model.is_wanted:  # it may have been added again meanwhile
                self._models.pop(model.name, None)

    async def _learn_signatures(self, served: Served, deadline: float | None) -> None:
        found: dict[str, CallSignature] = {}
        rules = served.options
        if served.path and not rules.names_tensors:
            with contextlib.suppress(SojournError, OSError):
                found = await asyncio.to_thread(
                    read_signatures, served.path, rules.signature, rules.tags
                )
        if not found:
            async with self.session(served, deadline) as session:
                signature, served.engine = session.signature, session.engine
            found = {DEFAULT: plain(DEFAULT, signature)}
        served.signatures = found

    def _find(self, name: str) -> Model | None:
        model = self._models.get(name)
        return self._of_pool(name) if model is None or model.is_pools else model

    def _of_pool(self, name: str, *, is_by_name: bool = False) -> Model | None:
        """Return a model that is registered in the pool itself, in its current state there."""
        model = self._models.get(name)
        latest = None if name in self.second_names else self._driver.registration(name)
        if latest is None:
            if model is not None:  # it was unregistered
                model.known, model.latest = {}, None
            return None
        if model is None:
            model = self._models[name] = Model(name, ModelRules())
        elif is_by_name and model.is_available(latest):
            return model  # the usual case: nothing relevant has changed
        known, model.known, model.latest = model.known, {}, None
        for version in self._driver.versions(name):
            number = self._driver.registration(name, version)
            served = known.get(version)
            if served is None or served.registration != number:
                served = Served(
                    name,
                    version,
                    model.rules,
                    registration=number,
                    state=VersionState.AVAILABLE,
                    generation=1,
                )
                self._by_key[key_of(name, version)] = served
            model.known[version] = served
            if number == latest and served.state is VersionState.AVAILABLE:
                model.latest = served
        return model
