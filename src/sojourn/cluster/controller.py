"""Has the plan carried out: watches the nodes, asks the planner, gives orders to the agents.

One event loop owns the planner. Every order carries the controller's epoch; an agent that has seen
a later one refuses, and then this controller ends. What it needs to start anew it finds on the
agents, so that nothing is stored anywhere else. `nodes` is how it sees Ray.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sojourn.cluster.planner import (
    Lost,
    Model,
    Move,
    Node,
    Open,
    Order,
    Planner,
    Rules,
)
from sojourn.cluster.planner.books import Copy
from sojourn.cluster.terms import (
    AgentFacts,
    AgentReport,
    Epoch,
    ModelSource,
    StaleEpoch,
)
from sojourn.errors import ModelError, PoolTimeout, SojournError
from sojourn.pool.decisions.terms import CopyId

_TICK_SECONDS = 0.2
_REPORT_SECONDS = 10.0  # an agent that died is known at once; this is for one that is silent
_END_SECONDS = 20.0
_PARK_AGAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the first `connect()` decides for all."""

    memory_bytes: int | None = None  # of each node; None: what Ray says that it has
    storage: str | None = None
    client_seconds: float = 10.0  # after which a caller that is not heard of is gone


class Nodes(Protocol):
    def alive(self) -> dict[str, Mapping[str, Any]]: ...

    def agent(self, node: Mapping[str, Any]) -> Any: ...

    def forget(self, agent: Any) -> None: ...

    def end(self) -> None: ...


@dataclass(slots=True, eq=False)
class Member:
    """A node that takes part, and its agent."""

    agent: Any
    facts: AgentFacts
    report: AgentReport
    closing: set[asyncio.Task[Any]] = field(default_factory=set)
    look: asyncio.Task[None] | None = None
    missing: set[CopyId] = field(default_factory=set)  # in its last report


@dataclass(frozen=True, slots=True)
class Table:
    """What callers keep: where every model is open, and how to reach the agents."""

    plan: tuple[int, int]
    routes: dict[str, list[str]]
    agents: dict[str, AgentFacts]


class Controller:
    """One for a cluster. It lives while there are callers; then nothing is left of it."""

    def __init__(self, nodes: Nodes, settings: Settings) -> None:
        self._nodes = nodes
        self._settings = settings
        self._planner = Planner(Rules(has_shared_storage=settings.storage is not None))
        self._owner = secrets.token_hex(8)
        self._epoch = Epoch(0, self._owner)
        self._members: dict[str, Member] = {}
        self._joining: dict[str, asyncio.Task[None]] = {}
        self._agents: dict[str, Any] = {}  # of all nodes, also of those that have yet to answer
        self._sources: dict[str, ModelSource] = {}
        self._failures: dict[str, Exception] = {}
        self._lost: list[str] = []
        self._trouble: dict[str, str] = {}
        self._clients: dict[str, float] = {}
        self._started_at = 0.0
        self._plan = 0
        self._published: dict[str, list[str]] = {}
        self._ending: asyncio.Task[None] | None = None
        self._has_changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._started: asyncio.Task[None] | None = None

    # -- callers ---------------------------------------------------------------------------------

    async def attach(self, client: str) -> Table:
        """A caller is there, and stays for as long as it says so again now and then."""
        if self._ending is not None:
            raise ConnectionError("the controller is about to end")
        self._clients[client] = time.monotonic()
        await self._ready()
        self._clients[client] = time.monotonic()  # starting may have taken longer than it may
        return self._table()

    async def _ready(self) -> None:
        if self._started is None:
            self._started = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(self._started)

    async def detach(self, client: str) -> bool:
        """A caller is gone; whether it was the last, so that everything has ended."""
        self._clients.pop(client, None)
        if self._clients:
            return False
        await self._end()
        return True

    async def register(self, source: ModelSource) -> None:
        """Make a model known everywhere. Doing so twice is fine."""
        await self._ready()
        if self._sources.get(source.name) == source:
            return
        orders = self._planner.on_model(_as_model(source), time.monotonic())
        self._sources[source.name] = source
        await self._remember()
        self._perform(orders)

    async def unregister(self, name: str) -> None:
        """Let a model go: its copies are closed, and callers are refused."""
        await self._ready()
        source = self._sources.pop(name, None)
        if source is None:
            raise ModelError(f"no model {name!r} is registered with the cluster")
        self._failures.pop(name, None)
        self._perform(self._planner.on_model_gone(name, time.monotonic()))
        await self._remember()
        dropped = [
            m.agent.drop.remote(self._epoch, name, source.copies) for m in self._members.values()
        ]
        await asyncio.gather(*map(_reply, dropped), return_exceptions=True)

    async def locate(self, name: str, timeout: float | None) -> Table:
        """Have a model opened if it is not; the table once it is open somewhere."""
        deadline = None if timeout is None else time.monotonic() + timeout
        await self._ready()
        self._failures.pop(name, None)
        while True:
            if name not in self._sources:
                known = ", ".join(sorted(self._sources)) or "none"
                raise ModelError(
                    f"no model {name!r} is registered with the cluster; there are: {known}"
                )
            if self._routes_of(name):
                return self._table()
            failure = self._failures.get(name)
            if failure is not None:
                raise failure
            self._perform(self._planner.on_demand(name, time.monotonic()))
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                raise PoolTimeout(f"{name!r} was not open on any node within {timeout:g} s")
            await self._wait_for_change(left)

    async def status(self) -> dict[str, Any]:
        """Nodes, budgets and copies, as plain values."""
        await self._ready()
        copies = self._planner.books.copies.values()
        nodes = []
        for node_id, member in self._members.items():
            report = member.report
            here = [copy for copy in copies if copy.node == node_id]
            held = {r.copy: r for r in report.copies}
            nodes.append(
                {
                    "node": member.facts.node,
                    "id": node_id,
                    "address": f"{member.facts.address[0]}:{member.facts.address[1]}",
                    "devices": list(member.facts.devices),
                    "budget_bytes": member.facts.budget_bytes,
                    "held_bytes": report.charged_bytes,
                    "calls": report.calls,
                    "copies": [
                        {
                            "model": copy.id.model,
                            "state": _state(copy),
                            "bytes": copy.bytes,
                            "leases": held[copy.id].holders if copy.id in held else 0,
                            "runs": held[copy.id].runs if copy.id in held else 0,
                        }
                        for copy in here
                    ],
                }
            )
        return {
            "epoch": self._epoch.number,
            "callers": len(self._clients),
            "models": sorted(self._sources),
            "nodes": nodes,
            "lost": [*self._lost, *self._trouble.values()],
        }

    # -- nodes -----------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Take over from whoever was before: models and copies are as the agents have them."""
        alive = await asyncio.to_thread(self._nodes.alive)
        found = await asyncio.gather(*map(self._meet, alive.values()), return_exceptions=True)
        members = [member for member in found if isinstance(member, Member)]
        for member in members:
            self._sources.update(await member.agent.recall.remote())
        self._members = {member.facts.node_id: member for member in members}
        copies = [
            (report.copy, node_id, report.bytes)
            for node_id, member in self._members.items()
            for report in member.report.copies
            if report.copy.model in self._sources and report.is_open
        ]
        nodes = [_as_node(member.facts) for member in members]
        models = [_as_model(source) for source in self._sources.values()]
        self._perform(self._planner.recover(nodes, models, copies, time.monotonic()))
        self._started_at = time.monotonic()
        self._spawn(self._watch())

    async def _meet(self, node: Mapping[str, Any]) -> Member:
        """The agent of a node, which from now on takes orders from nobody before us."""
        agent = self._agents[node["NodeID"]] = await asyncio.to_thread(self._nodes.agent, node)
        facts = await agent.start.remote()
        while (seen := await agent.adopt.remote(self._epoch)) != self._epoch:
            self._epoch = Epoch(seen.number + 1, self._owner)
        return Member(agent, facts, await agent.report.remote())

    async def _join(self, node: Mapping[str, Any]) -> None:
        """A node is new, or was taken for lost: then what it still has open is closed."""
        member = await self._meet(node)
        await member.agent.remember.remote(self._epoch, self._sources)
        for copy in member.report.copies:
            await member.agent.close.remote(self._epoch, copy.copy, False)
        self._members[node["NodeID"]] = member
        self._perform(self._planner.on_node(_as_node(member.facts), time.monotonic()))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            alive = await asyncio.to_thread(self._nodes.alive)
            for node_id in [n for n in self._agents if n not in alive]:
                self._leave(node_id)
            for node_id, node in alive.items():
                is_known = node_id in self._members or node_id in self._joining
                if not is_known and self._ending is None:
                    self._joining[node_id] = self._spawn(self._join_later(node_id, node))
            for node_id, member in self._members.items():
                if member.look is None or member.look.done():  # one that is slow delays no other
                    member.look = self._spawn(self._look_at(node_id, member))
            self._perform(self._planner.plan(now))
            for client, seen in list(self._clients.items()):
                if now - seen > self._settings.client_seconds:
                    del self._clients[client]
            # One that has just started anew is not known to its callers yet.
            if not self._clients and now - self._started_at > self._settings.client_seconds:
                self._end()

    async def _join_later(self, node_id: str, node: Mapping[str, Any]) -> None:
        try:
            await self._join(node)
        except Exception:
            await asyncio.sleep(1.0)  # it died as it came; it is tried again while it is alive
        finally:
            del self._joining[node_id]

    def _leave(self, node_id: str) -> None:
        """Ray says that a node is dead: its agent must not be started anywhere again."""
        self._forget(self._agents.pop(node_id))
        if node_id in self._joining:
            self._joining[node_id].cancel()
        if node_id in self._members:
            self._lose(node_id)

    def _forget(self, agent: Any) -> None:
        try:
            self._nodes.forget(agent)
        except Exception:
            pass  # it is gone with its node

    async def _look_at(self, node_id: str, member: Member) -> None:
        """Take what an agent says for the truth."""
        try:
            report = await asyncio.wait_for(_reply(member.agent.report.remote()), _REPORT_SECONDS)
        except Exception:
            # Its process died, or its node does not answer. If Ray starts it again, or it answers
            # after all, it joins as a new one.
            if self._members.get(node_id) is member:
                self._lose(node_id)
            return
        if self._members.get(node_id) is not member:
            return
        if report.incarnation != member.facts.incarnation:  # Ray has started it again
            self._lose(node_id)
            return
        member.report = report
        self._take(node_id, member, report)

    def _lose(self, node_id: str) -> None:
        del self._members[node_id]
        self._perform(self._planner.on_node_lost(node_id, time.monotonic()))

    def _take(self, node_id: str, member: Member, report: AgentReport) -> None:
        now, planner = time.monotonic(), self._planner
        there_are = {copy.copy for copy in report.copies}
        missing = {
            known.id
            for known in planner.books.places[node_id].copies.values()
            if known.is_open and not known.is_leaving and known.id not in there_are
        }
        for copy_id in missing & member.missing:  # twice: a report may be older than it seems
            self._perform(planner.on_closed(copy_id, now))  # its worker died
        member.missing = missing
        for copy in report.copies:
            there = planner.books.copies.get(copy.copy)
            if there is None and copy.is_open:  # nobody knows of it any more
                self._spawn(_ignoring(member.agent.close.remote(self._epoch, copy.copy, True)))
            if there is None or not there.is_open or not copy.is_open:
                continue
            if copy.changed:
                planner.on_changed(copy.copy)
            if copy.holders or there.holders:
                planner.on_holders(copy.copy, copy.holders, now)
            if copy.bytes and copy.bytes != there.bytes:
                self._perform(planner.on_measured(copy.copy, copy.bytes, now))

    # -- orders ----------------------------------------------------------------------------------

    def _perform(self, orders: Iterable[Order]) -> None:
        """Have orders carried out: per node, what leaves goes before what comes."""
        for order in orders:
            if isinstance(order, Lost):
                node = order.node
                self._lost.append(f"{order.copy.model}: what it had learnt was on {node[:6]} only")
            elif isinstance(order, Open):
                self._spawn(self._open(order.copy, order.node, order.restores))
            elif isinstance(order, Move):
                leaving = self._begin_close(order.leaving, order.source, True)
                self._spawn(self._open(order.copy, order.target, order.restores, leaving))
            else:
                # What has changed since the last report is kept as well, unless the model is gone.
                self._begin_close(order.copy, order.node, order.copy.model in self._sources)
        self._publish()

    def _begin_close(self, copy: CopyId, node_id: str, parks: bool) -> asyncio.Task[Any]:
        task = self._spawn(self._close(copy, node_id, parks))
        member = self._members.get(node_id)
        if member is not None:
            member.closing.add(task)
            task.add_done_callback(member.closing.discard)
        return task

    async def _open(
        self, copy: CopyId, node_id: str, restores: bool, after: asyncio.Task[Any] | None = None
    ) -> None:
        member = self._members.get(node_id)
        source = self._sources.get(copy.model)
        if member is None or source is None:
            return  # gone meanwhile, and the planner was told
        if after is not None or member.closing:
            waits_for = {*member.closing, *([after] if after is not None else [])}
            await asyncio.wait(waits_for)
            restores = restores or (after is not None and after.result())
        try:
            held = await member.agent.open.remote(self._epoch, copy, source, restores)
        except Exception as error:
            cause = _cause(error)
            if isinstance(cause, StaleEpoch):
                self._step_down()
            if cause is not error or isinstance(error, SojournError):  # else the agent is gone
                self._failures[copy.model] = cause
            self._perform(self._planner.on_failed(copy, time.monotonic()))
        else:
            self._failures.pop(copy.model, None)
            self._perform(self._planner.on_opened(copy, held, time.monotonic()))
        await self._announce()

    async def _close(self, copy: CopyId, node_id: str, parks: bool) -> bool:
        """Whether its state was kept. One that cannot be kept stays until it can."""
        parked = False
        while (member := self._members.get(node_id)) is not None:
            try:
                parked = bool(await member.agent.close.remote(self._epoch, copy, parks))
                break
            except Exception as error:
                cause = _cause(error)
                if isinstance(cause, StaleEpoch):
                    self._step_down()
                if not isinstance(cause, SojournError):
                    return False  # the agent is gone, and whoever looks at it says so
                self._trouble[copy.model] = f"{copy.model}: it cannot be parked: {cause}"
                await asyncio.sleep(_PARK_AGAIN_SECONDS)
        else:
            return False
        self._trouble.pop(copy.model, None)
        self._perform(self._planner.on_closed(copy, time.monotonic(), parked=parked))
        await self._announce()
        return parked

    def _step_down(self) -> None:
        """A later controller has taken over. Nothing is ended: it is no longer ours."""
        self._nodes.end()

    async def _remember(self) -> None:
        replies = [
            m.agent.remember.remote(self._epoch, self._sources) for m in self._members.values()
        ]
        await asyncio.gather(*map(_reply, replies), return_exceptions=True)

    def _routes_of(self, name: str) -> list[str]:
        entry = self._planner.books.entries.get(name)
        if entry is None:
            return []
        return [c.node for c in entry.copies.values() if c.is_open and not c.is_leaving]

    def _table(self) -> Table:
        routes = {name: self._routes_of(name) for name in self._sources}
        agents = {node_id: member.facts for node_id, member in self._members.items()}
        return Table((self._epoch.number, self._plan), routes, agents)

    def _publish(self) -> None:
        """Tell the agents where everything is, for callers whose table is old."""
        routes = self._table().routes
        if routes == self._published:
            return
        self._plan += 1
        self._published = routes
        for member in self._members.values():
            self._spawn(_ignoring(member.agent.set_routes.remote(self._epoch, self._plan, routes)))

    async def _announce(self) -> None:
        async with self._has_changed:
            self._has_changed.notify_all()

    async def _wait_for_change(self, seconds: float) -> None:
        async with self._has_changed:
            try:
                await asyncio.wait_for(self._has_changed.wait(), seconds)
            except (asyncio.TimeoutError, TimeoutError):
                pass

    def _end(self) -> asyncio.Future[None]:
        """Nobody is there any more. Whoever notices first, it is done once."""
        if self._ending is None:
            self._ending = self._spawn(self._end_all())
        return asyncio.shield(self._ending)

    async def _end_all(self) -> None:
        """End the agents, and then this."""
        for task in self._joining.values():
            task.cancel()
        members, self._members = list(self._members.values()), {}
        ends = [asyncio.wait_for(_reply(m.agent.end.remote()), _END_SECONDS) for m in members]
        await asyncio.gather(*ends, return_exceptions=True)
        for agent in self._agents.values():
            self._forget(agent)
        asyncio.get_running_loop().call_later(0.05, self._nodes.end)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _reply(reference: Any) -> Any:
    return await reference


async def _ignoring(reference: Any) -> None:
    try:
        await reference
    except Exception:
        pass  # it is gone; whoever looks at it next says so


def _as_node(facts: AgentFacts) -> Node:
    return Node(facts.node_id, facts.budget_bytes, frozenset(facts.devices))


def _as_model(source: ModelSource) -> Model:
    return Model(source.name, source.bytes, source.copies, source.pinned, source.device)


def _state(copy: Copy) -> str:
    if copy.is_leaving:
        return "leaving"
    return "open" if copy.is_open else "opening"


def _cause(error: Exception) -> Exception:
    """What the agent raised, out of what Ray makes of it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error
