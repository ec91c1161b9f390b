"""One node's pool and its data plane. Does not use Ray: `actors.py` makes it an actor.

Everything runs on one event loop, which owns the tables; blocking work (opening, saving, closing)
runs in threads. Orders carry the epoch of their controller, and an order with an older epoch than
the latest one seen is refused. A lease is identified by a random number that is never reused, so a
late call cannot reach the lease that replaced it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sojourn import warm_up
from sojourn.cluster.calls import Calls
from sojourn.cluster.files import Files
from sojourn.cluster.leases import Leases
from sojourn.cluster.operations import OPERATIONS, Folder, warm_up_once
from sojourn.cluster.storage import Storage
from sojourn.cluster.terms import (
    AgentFacts,
    AgentReport,
    CopyReport,
    Epoch,
    ModelSource,
    StaleEpoch,
)
from sojourn.cluster.wire import words
from sojourn.cluster.wire.awaited import AgentEnd, stop_listening
from sojourn.cluster.wire.sharing import this_machine
from sojourn.errors import ModelError, SessionBusy, SojournError
from sojourn.pool import Pool
from sojourn.pool.decisions.terms import CopyId
from sojourn.process import crossing, owned_folders
from sojourn.session.states import State
from sojourn.session.stay import Stay

_PREFIX = "sojourn-agent-"
_OPEN_SECONDS = 300.0
_PARK_SECONDS = 60.0


class Agent:
    """The agent of one node. It lives until `end()`; its workers end with its process."""

    def __init__(
        self,
        node_id: str,
        node: str,
        budget_bytes: int,
        processors: int,
        gpus: int,
        storage_url: str | None,
    ) -> None:
        self._node_id, self._node = node_id, node
        self._budget_bytes, self._processors = budget_bytes, processors
        self._gpus = gpus
        self._token = secrets.token_bytes(32)
        self._incarnation = secrets.token_hex(8)
        temporary = tempfile.gettempdir()
        owned_folders.sweep(temporary, _PREFIX, shutil.rmtree)
        self._folder, self._folder_fd = owned_folders.create(temporary, _PREFIX)
        self._storage = Storage(storage_url or f"file://{self._folder}/parked")
        os.mkdir(f"{self._folder}/models")
        self._files = Files(f"{self._folder}/models")
        self._pool = Pool(budget_bytes, idle_seconds=None)
        self._epoch = Epoch(0, "")
        self._copies: dict[str, CopyId] = {}  # by model: open here, or being opened
        self._opening: dict[CopyId, asyncio.Future[None]] = {}
        self._open: dict[CopyId, tuple[Stay, str]] = {}  # copies that can be leased, with marks
        self._routes: dict[str, list[str]] = {}
        self._plan = 0, 0  # epoch of the controller, and number of its plan
        self._sources: dict[str, ModelSource] = {}  # for recovery by a new controller
        self._parked: set[tuple[str, int]] = set()  # models and slots, for the same purpose
        self._leases = Leases(self._pool)
        self._calls = Calls(node)
        self._ends: set[AgentEnd] = set()
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._local_server: asyncio.Server | None = None

    async def start(self, host: str) -> AgentFacts:
        """Listen on this address of the node; return the agent's facts, with the address and
        port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._new_end, host, 0)
        address = self._server.sockets[0].getsockname()[:2]
        local = f"sojourn-agent-{secrets.token_hex(8)}"  # abstract: it vanishes with this process
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(f"\0{local}")
        self._local_server = await loop.create_unix_server(self._new_end, sock=listening)
        self._spawn(self._leases.expire_for_ever())
        await asyncio.to_thread(warm_up)  # the first model or call is expected soon
        return AgentFacts(
            self._node_id,
            self._node,
            address,
            self._token,
            self._incarnation,
            self._budget_bytes,
            self._processors,
            ("cpu", "gpu") if self._gpus else ("cpu",),
            this_machine(),
            local,
            self._gpus,
        )

    async def end(self, epoch: Epoch | None = None) -> None:
        """Close everything. Return when no worker is left."""
        if epoch is not None:
            self.require(epoch)
        self._is_over = True
        for server in (self._server, self._local_server):
            if server is not None:
                await stop_listening(server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in list(self._ends):
            end.abort()
        self._calls.cut_off_all()
        self._leases.end_all("its node was released")
        await asyncio.to_thread(self._pool.close, timeout=0)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    # -- orders ----------------------------------------------------------------------------------

    def adopt(self, epoch: Epoch) -> Epoch:
        """Accept orders from this controller unless a later one was seen; return the latest
        epoch."""
        if epoch.number > self._epoch.number:
            self._epoch = epoch
        return self._epoch

    async def open(
        self,
        epoch: Epoch,
        copy: CopyId,
        source: ModelSource,
        restores: bool,
        others: Sequence[AgentFacts] = (),
    ) -> int:
        """Open a copy; return the bytes it holds. If this raises, no copy exists."""
        self.require(epoch)
        name = copy.model
        if name in self._copies:
            raise SessionBusy(f"{self._copies[name]} is open here already")
        self._copies[name] = copy
        opening = self._opening[copy] = asyncio.get_running_loop().create_future()
        try:
            stay = await asyncio.to_thread(self._open_now, copy, source, restores, others)
            self._open[copy] = stay, source.mark
        except BaseException:
            del self._copies[name]
            raise
        finally:
            del self._opening[copy]
            opening.set_result(None)
        return next(r.bytes for r in self.report().copies if r.copy == copy)

    def _open_now(
        self, copy: CopyId, source: ModelSource, restores: bool, others: Sequence[AgentFacts]
    ) -> Stay:
        name, path = copy.model, ""
        if not source.pickled:
            path = self._files.path_of(source, others)
        model = path or pickle.loads(source.pickled)
        self._pool.register(name, model, pinned=True, **source.options)
        try:
            with self._pool.lease(name, timeout=_OPEN_SECONDS) as session:
                if source.warms_up:
                    warm_up_once(session, path, source)
                if restores:
                    with Folder(self._folder) as folder:
                        if self._storage.get(folder, name, copy.slot):
                            session.restore(folder)
                            session._stay.changed = False  # the next open restores the same state
                return session._stay
        except BaseException:
            self._unregister(name, _PARK_SECONDS)
            raise

    async def close(self, epoch: Epoch, copy: CopyId, parks: bool, evicts: bool = False) -> bool:
        """Close a copy; return whether its state was parked. `parks` requests that if the state has
        changed. With `evicts`, refuse to close a copy that was leased since the last report."""
        self.require(epoch)
        if evicts and copy in self._open and self._leases.count(copy.model):
            raise SessionBusy(f"{copy} is leased")
        if (opening := self._opening.get(copy)) is not None:
            # Abort the open and wait for its end before the slot is free: a new copy must not
            # collide with it.
            await asyncio.to_thread(self._unregister, copy.model, 0)
            await opening
        opened = self._open.pop(copy, None)  # no new leases
        if self._copies.get(copy.model) != copy:
            return False
        parked = False
        if parks and opened is not None and self._leases.has_changed(copy.model):
            try:
                parked = await asyncio.to_thread(self._park_now, copy, opened[0])
            except BaseException:
                self._open[copy] = opened
                raise
            if parked and copy.model in self._sources:
                self._parked.add((copy.model, copy.slot))
        await self._let_go(copy, "its model was closed on this node")
        return parked

    async def drop(self, epoch: Epoch, name: str, slots: int) -> None:
        """Delete the parked state of an unregistered model."""
        self.require(epoch)
        for slot in range(slots):
            self._parked.discard((name, slot))
            await asyncio.to_thread(self._storage.drop, name, slot)
        self._spawn(asyncio.to_thread(self._files.keep_only, self.recall))

    async def _let_go(self, copy: CopyId, why: str) -> None:
        self._leases.end_of(copy.model, why)
        await asyncio.to_thread(self._unregister, copy.model, _PARK_SECONDS)
        if self._copies.get(copy.model) == copy:
            del self._copies[copy.model]

    def _unregister(self, name: str, timeout: float) -> None:
        with contextlib.suppress(ModelError):  # already unregistered
            self._pool.unregister(name, timeout=timeout)

    def _park_now(self, copy: CopyId, stay: Stay) -> bool:
        """Park the state of a copy; False if it was lost with its worker, because the pool has
        reopened it."""
        with Folder(self._folder) as folder:
            with self._pool.lease(copy.model, timeout=_PARK_SECONDS) as session:
                if session._stay is not stay:
                    return False
                session.save(folder)
            self._storage.put(folder, copy.model, copy.slot)
        return True

    def set_routes(self, epoch: Epoch, plan: int, routes: dict[str, list[str]]) -> None:
        """Store which nodes have which model in this plan, to redirect callers that ask the wrong
        node."""
        self.require(epoch)
        if (epoch.number, plan) > self._plan:
            self._plan, self._routes = (epoch.number, plan), routes

    def remember(
        self, epoch: Epoch, sources: Mapping[str, ModelSource | None], are_all: bool
    ) -> None:
        """Record models that were registered, or unregistered (None). With `are_all`, these are all
        models: this agent is new, or was considered lost together with its parked states."""
        self.require(epoch)
        known = {} if are_all else self._sources
        found = {**known, **sources}
        self._sources = {name: source for name, source in found.items() if source is not None}
        kept = () if are_all else self._parked
        self._parked = {(name, slot) for name, slot in kept if name in self._sources}

    def recall(self) -> dict[str, ModelSource]:
        return self._sources

    def report(self) -> AgentReport:
        """Report this node's copies. A copy whose worker died is closed: the pool would reopen it
        without its parked state."""
        for copy, (stay, _) in list(self._open.items()):
            if stay.lifecycle.state in (State.BROKEN, State.CLOSED):
                del self._open[copy]
                self._spawn(self._let_go(copy, "its worker died"))
        found = {status.name.partition("[")[0]: status for status in self._pool.stats().copies}
        copies = []
        for name, copy in self._copies.items():
            status = found.get(name)
            is_open = copy in self._open and status is not None
            size, runs = (0, 0) if status is None else (status.bytes, status.runs)
            holders = self._leases.count(name)
            changed = self._leases.has_changed(name)
            copies.append(CopyReport(copy, is_open, size, holders, changed, runs))
        charged = self._pool.stats().charged_bytes
        parked = tuple(self._parked)
        return AgentReport(self._incarnation, tuple(copies), charged, len(self._calls), parked)

    def require(self, epoch: Epoch) -> None:
        if self.adopt(epoch) != epoch:
            raise StaleEpoch(
                f"the controller of epoch {epoch.number} was replaced by {self._epoch.number}"
            )

    # -- the data plane --------------------------------------------------------------------------

    def _new_end(self) -> AgentEnd:
        end = AgentEnd(self._token, self._serve, self._lost)
        self._ends.add(end)
        if self._is_over:
            end.abort()
        return end

    def _lost(self, end: AgentEnd) -> None:
        self._ends.discard(end)
        self._calls.cut_off_those_of(end)

    def _serve(self, end: AgentEnd, number: int, body: Any, arrays: list[np.ndarray]) -> None:
        self._spawn(self._answer(end, number, body, arrays))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, end: AgentEnd, number: int, body: Any, arrays: list[np.ndarray]
    ) -> None:
        reply: Any
        results: Sequence[np.ndarray] = ()
        try:
            if type(body) is words.RunStep:
                reply, results = await self._leases.run(body, arrays)
            elif type(body) is words.CallFunction:
                reply, results = await self._calls.call(end, body, arrays)
            elif type(body) is words.SendParcel:
                reply = await self._files.take(body, arrays)
            elif type(body) is words.FetchParcel:
                reply, results = await self._files.give(body)
            else:
                reply = await self._answers[type(body)](self, end, body)
        except Exception as error:
            reply = words.Failed(crossing.record(error))
        if type(reply) is words.Leased and not end.is_open:
            self._leases.end(reply.lease, "its caller is gone")
        end.answer(number, reply, results)

    async def _lease(self, end: AgentEnd, ask: words.LeaseModel) -> Any:
        copy = self._copies.get(ask.model)
        if copy is None or copy not in self._open:
            return words.Moved(self._plan, self._routes.get(ask.model, []))
        try:
            held = await self._leases.take(ask)
        except SojournError:
            if copy in self._open:
                raise
            return words.Moved(self._plan, [])  # the model was unregistered meanwhile
        stay = held.lease._terms.stay
        opened, mark = self._open.get(copy, (None, ""))
        if stay is not opened:  # the pool has reopened the copy
            self._leases.end(held.number, "its worker died")
            return words.Moved(self._plan, [])
        return words.Leased(
            held.number,
            stay.name,
            stay.pid,
            stay.engine,
            self._node,
            dict(stay.signature.inputs),
            dict(stay.signature.outputs),
            mark,
        )

    async def _ask_step(self, end: AgentEnd, ask: words.AskStep) -> Any:
        stay = self._leases.get(ask.lease).lease._stay
        return words.StepFacts(await stay.acan_repeat(ask.fetches, ask.feeds))

    async def _keep(self, end: AgentEnd, ask: words.KeepLeases) -> Any:
        return words.Kept(self._leases.keep(ask.leases, ask.keep_seconds))

    async def _give_back(self, end: AgentEnd, ask: words.GiveBack) -> Any:
        self._leases.end(ask.lease, "it was returned")
        return words.Done()

    async def _operate(self, end: AgentEnd, ask: words.Operate) -> Any:
        held = self._leases.get(ask.lease)
        work = OPERATIONS[ask.what]
        return words.Done(await asyncio.to_thread(work, held, ask.path))

    async def _cut_off(self, end: AgentEnd, ask: words.CutOff) -> Any:
        self._calls.cut_off(ask.call)
        return words.Done()

    _answers: ClassVar[dict[type, Callable[..., Any]]] = {
        words.LeaseModel: _lease,
        words.AskStep: _ask_step,
        words.KeepLeases: _keep,
        words.GiveBack: _give_back,
        words.Operate: _operate,
        words.CutOff: _cut_off,
    }
