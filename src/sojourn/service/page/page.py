"""The page of one server: it samples the server's parts, keeps history, and updates viewers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from sojourn._version import __version__
from sojourn.audit.event_report.story import Story, tell
from sojourn.pool.decisions.status import PoolStatus
from sojourn.service.handler import Handler
from sojourn.service.http.router import Router
from sojourn.service.page import snapshot, stays
from sojourn.service.page.guard import Guard
from sojourn.service.page.history import History
from sojourn.service.page.numbers import added, by_model, counts_of, versions_of
from sojourn.service.page.points import EVERYTHING, Counts, Point, columns, difference, sparse
from sojourn.service.page.snapshot import Clock, Snapshot
from sojourn.service.page.stream import Stream
from sojourn.service.page.watching import Watching
from sojourn.values import format_bytes

LOOK_SECONDS = 1.0  # between updates while the page is open somewhere
SOON_SECONDS = 0.1  # after an event, before the update that shows it
POINT_SECONDS = 10.0  # between points of the history
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Page:
    """The content of a server's page, from `start` to `stop`, on the server's loop.

    `history` is a file that keeps the history across restarts, `events` the file that
    SOJOURN_EVENTS names; `hosts` are host names, besides the server's own, that browsers may use.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        history: str | os.PathLike[str] | None = None,
        events: str | os.PathLike[str] | None = None,
        hosts: Iterable[str] = (),
        wants_token: Callable[[], bool] = bool,
        addresses: Mapping[str, str] | None = None,
        drain: Callable[[], None] | None = None,
        reload: Callable[[], Awaitable[list[str]]] | None = None,
        cluster: Callable[[], Mapping[str, Any]] | None = None,
        point_seconds: float = POINT_SECONDS,
    ) -> None:
        self.handler = handler
        self.pool = handler.catalogue.pool
        self.guard = Guard(hosts, wants_token)
        self.history = History(history)
        self.stream = Stream()
        self.watching = Watching(self._changed, self._closed)
        self.drain = drain
        self.reload = reload
        recorded = os.fspath(events) if events else os.environ.get("SOJOURN_EVENTS", "")
        self._events = recorded and os.path.abspath(recorded)
        self._wants_token = wants_token
        self._addresses = {} if addresses is None else addresses
        self._cluster = cluster
        self._asking: asyncio.Task[None] | None = None  # for the cluster's status
        self._point_seconds = point_seconds
        self._started = time.time()
        self._clock = Clock(self._started - time.monotonic())
        self._before: dict[tuple[str, int], Counts] = {}
        self._sampled_at = time.monotonic()
        self._shown_at = -1.0  # the `_sampled_at` of the sample that was last sent
        self._receipts = 0
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None

    def add_to(self, router: Router, *, can_act: bool = True) -> None:
        """Register the routes; those of actions only if it `can_act`."""
        from sojourn.service.page.routes import Routes

        Routes(self, can_act).add_to(router)

    async def start(self) -> None:
        """Begin sampling, and subscribe to events."""
        self._loop = asyncio.get_running_loop()
        await self.history.open()
        self._before = counts_of(self.handler.statistics())
        self._sampled_at = time.monotonic()
        self.watching.start()
        self._looking = asyncio.create_task(self._look_on())

    async def stop(self) -> None:
        """Disconnect the viewers, and write the rest of the history. May be called twice."""
        self.watching.stop()
        self.stream.end()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
            self._looking = None
            self._sample()
        if self._asking is not None:
            await self._asking
        await self.history.close()
        self._loop = None

    # -- questions ----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state to show now."""
        return snapshot.take(
            self.status(),
            versions_of(self.handler.statuses()),
            counts_of(self.handler.statistics()),
            self.watching.held(),
            self.watching.broken(),
            self.watching.is_over_at,
            self.watching.incidents(),
            self._clock,
            time.monotonic(),
            self.history.problem,
            self.handler.catalogue.own_name,
        )

    def status(self) -> PoolStatus:
        """The pool's status, with each model under the name that clients know."""
        status, own = self.pool.stats(), self.handler.catalogue.own_name
        if not self.handler.catalogue.second_names:
            return status
        return replace(
            status,
            copies=tuple(replace(copy, model=own(copy.model)) for copy in status.copies),
            models=tuple(replace(model, name=own(model.name)) for model in status.models),
            waits=tuple(replace(wait, name=own(wait.name)) for wait in status.waits),
        )

    def server(self) -> dict[str, Any]:
        """Facts about the server that do not change while it serves."""
        return {
            "version": __version__,
            "name": socket.gethostname(),
            "started": round(self._started, 1),
            "secret": self.guard.secret,
            "wants_token": self._wants_token(),
            "addresses": dict(self._addresses),
            "history": "History is kept in a file."
            if self.history.is_kept
            else "History: the last hour, until the server stops.",
            "can_reload": self.reload is not None,
            "can_drain": self.drain is not None,
        }

    def latest(self) -> dict[str, dict[str, Any]]:
        """The newest point of every model, and of all models together."""
        return {
            point.model: {key: values[0] for key, values in columns([point]).items()}
            for point in self.history.newest()
        }

    async def story(self) -> tuple[Story, str]:
        """The stays in the recorded events, and words that name the source of the events."""
        if self._events and os.path.exists(self._events):
            story = await asyncio.to_thread(stays.story_of_file, self._events)
            most = format_bytes(stays.MOST_BYTES)
            return story, f"From the file of events, its last {most}"
        story = await asyncio.to_thread(tell, self.watching.lines())
        return story, "From the events since the server began"

    def show(self) -> None:
        """Send the current state to the viewers."""
        if self._cluster is not None and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask_cluster(self._cluster))
        taken = self.snapshot()
        for part in ("budget", "blocks", "models", "waits", "incidents", "notice"):
            self.stream.put(part, _encode(getattr(taken, part)))
        self.stream.put("server", _encode(self.server()))
        if self._shown_at != self._sampled_at:
            self._shown_at = self._sampled_at
            self.stream.put("latest", _encode(self.latest()))
        self.stream.put("closed", b"%d" % self._receipts)

    # -- sampling -------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        while True:
            due = self._sampled_at + self._point_seconds - time.monotonic()
            if due <= 0:
                self._sample()
                await self.history.write()
                due = self._point_seconds
            if self.stream.has_clients:
                self.show()
                due = min(due, LOOK_SECONDS)
            # Not `wait_for`: before Python 3.12 it swallows a cancellation that arrives at the same
            # moment as the event, and `stop` would wait forever.
            woken = asyncio.ensure_future(self._woken.wait())
            try:
                done, _ = await asyncio.wait({woken}, timeout=due)
            finally:
                woken.cancel()
            if done:
                await asyncio.sleep(SOON_SECONDS)  # events close together share an update
                self._woken.clear()

    async def _ask_cluster(self, status: Callable[[], Mapping[str, Any]]) -> None:
        try:
            shown = dict(await asyncio.to_thread(status))
        except Exception as error:  # of any kind: the page shows it
            shown = {"nodes": [], "lost": [], "problem": str(error)}
        self.stream.put("cluster", _encode(shown))

    def _sample(self) -> None:
        now = time.monotonic()
        seconds = now - self._sampled_at
        if seconds <= 0:
            return
        self._sampled_at = now
        done, status = self._done(), self.status()
        queued: dict[str, int] = {}
        for one in self.handler.statistics():
            queued[one.name] = queued.get(one.name, 0) + one.waiting
        queued[EVERYTHING] = sum(queued.values())
        names = {model.name for model in status.models} | done.keys()
        at = round(time.time(), 1)
        held = self.watching.held()
        self.history.add(
            _point(name, at, seconds, done.get(name, Counts()), status, queued.get(name, 0), held)
            for name in sorted(names)
        )

    def _done(self) -> dict[str, Counts]:
        """The counts since the last call, for each model and for all models together. Differences
        are taken by version, so that a version that has disappeared is not subtracted."""
        before, self._before = self._before, counts_of(self.handler.statistics())
        done = by_model(
            {key: difference(now, before.get(key, Counts())) for key, now in self._before.items()}
        )
        return {**done, EVERYTHING: functools.reduce(added, done.values(), Counts())}

    # -- events, on any thread --------------------------------------------------------------------

    def _changed(self) -> None:
        self._on_loop(self._woken.set)

    def _closed(self, receipt: dict[str, Any]) -> None:
        self._on_loop(lambda: self._take_receipt(receipt))

    def _take_receipt(self, receipt: dict[str, Any]) -> None:
        self._receipts += 1
        self.history.add_receipt(receipt)
        self._woken.set()

    def _on_loop(self, do: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(do)


def _point(
    name: str,
    at: float,
    seconds: float,
    done: Counts,
    status: PoolStatus,
    queued: int,
    measured: Mapping[str, int],
) -> Point:
    """Make a point. Its bytes are those charged for all models, or those measured for one model."""
    models = [model for model in status.models if name in (EVERYTHING, model.name)]
    held = status.charged_bytes
    limit = status.limit_bytes
    if name != EVERYTHING:
        copies = [copy for copy in status.copies if copy.model == name]
        held = sum(
            measured.get(copy.name, 0 if copy.state == "being opened" else copy.bytes)
            for copy in copies
        )
        limits = [m.memory_bytes * max(1, m.copies) for m in models if m.memory_bytes is not None]
        limit = sum(limits) if limits and len(limits) == len(models) else None
    return Point(
        at,
        name,
        seconds,
        done.requests,
        done.failures,
        done.batches,
        done.rows,
        held,
        limit,
        sum(model.waiting for model in models) + queued,
        sparse(done.histogram),
    )
