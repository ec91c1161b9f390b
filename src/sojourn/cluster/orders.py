"""Carries out the plan through the agents: opens, closes, and tables for callers.

Every order carries the controller's epoch. An agent that has seen a later epoch refuses the order;
then this controller ends, because another one has taken over.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sojourn.cluster.planner import Lost, Model, Node, Open, Order, Planner, Rules
from sojourn.cluster.terms import AgentFacts, AgentReport, Epoch, ModelSource, StaleEpoch
from sojourn.errors import SessionBusy, SojournError
from sojourn.pool.decisions.terms import CopyId

_PARK_AGAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that the first `connect()` fixes for all programs."""

    memory_bytes: int | None = None  # of each node; None: what Ray reports
    storage: str | None = None
    gpus: int | None = None  # of each node; None: all
    client_seconds: float = 10.0  # after which a silent caller counts as disconnected


class Nodes(Protocol):
    """The controller's interface to Ray."""

    def alive(self) -> dict[str, Mapping[str, Any]]: ...

    def agent(self, node: Mapping[str, Any]) -> Any: ...

    def forget(self, agent: Any) -> None: ...

    def end(self) -> None:
        """End the controller's actor permanently."""

    def step_down(self) -> None:
        """End only this process: a later controller has taken over."""


@dataclass(slots=True, eq=False)
class Member:
    """A node of the cluster, and its agent."""

    agent: Any
    facts: AgentFacts
    report: AgentReport
    closing: set[asyncio.Task[Any]] = field(default_factory=set)
    look: asyncio.Task[None] | None = None
    missing: set[CopyId] = field(default_factory=set)  # open copies missing in its last report


@dataclass(frozen=True, slots=True)
class Table:
    """The table that callers keep: where each model is open, and how to reach the agents."""

    plan: tuple[int, int]
    routes: dict[str, list[str]]
    agents: dict[str, AgentFacts]


class Orders:
    """The planner's driver. Used on one event loop only."""

    def __init__(self, nodes: Nodes, settings: Settings) -> None:
        self._nodes = nodes
        self._settings = settings
        self._planner = Planner(Rules(has_shared_storage=settings.storage is not None))
        self._owner = secrets.token_hex(8)
        self._epoch = Epoch(0, self._owner)
        self._members: dict[str, Member] = {}
        self._sources: dict[str, ModelSource] = {}
        self._failures: dict[str, Exception] = {}
        self._lost: list[str] = []
        self._trouble: dict[str, str] = {}
        self._plan = 0
        self._published: tuple[dict[str, list[str]], dict[str, AgentFacts]] = {}, {}
        self._has_changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_deposed = False

    async def _order(self, member: Member, what: str, *given: Any) -> Any:
        """Give an order to an agent. Raises the agent's error, or Ray's if the agent is gone."""
        try:
            return await getattr(member.agent, what).remote(self._epoch, *given)
        except Exception as error:
            cause = cause_of(error)
            if isinstance(cause, StaleEpoch):
                self._step_down(str(cause))
            raise

    def _step_down(self, why: str) -> StaleEpoch:
        """Step down for a later controller. The agents are left running: they belong to it now."""
        self._is_deposed = True
        self._nodes.step_down()
        return StaleEpoch(why)

    async def _order_all(self, what: str, *given: Any) -> None:
        """Give an order to all agents. Errors are ignored: the next report shows that an agent is
        gone."""
        orders = [self._order(member, what, *given) for member in self._members.values()]
        await asyncio.gather(*orders, return_exceptions=True)

    def _perform(self, orders: Iterable[Order]) -> None:
        """Carry out orders. On each node, closes are completed before opens."""
        for order in orders:
            if isinstance(order, Lost):
                node = order.node
                self._lost.append(f"{order.copy.model}: what it had learnt was on {node[:6]} only")
            elif isinstance(order, Open):
                self._spawn(self._open(order.copy, order.node, order.restores))
            else:
                # State changed since the last report is parked as well, unless the model was
                # unregistered.
                is_known = order.copy.model in self._sources
                self._begin_close(order.copy, order.node, parks=is_known, evicts=is_known)
        self._publish()

    def _begin_close(
        self, copy: CopyId, node_id: str, *, parks: bool, evicts: bool = False
    ) -> None:
        task = self._spawn(self._close(copy, node_id, parks, evicts))
        member = self._members.get(node_id)
        if member is not None:
            member.closing.add(task)
            task.add_done_callback(member.closing.discard)

    async def _open(self, copy: CopyId, node_id: str, restores: bool) -> None:
        member = self._members.get(node_id)
        source = self._sources.get(copy.model)
        if member is None or source is None:
            return  # removed meanwhile, which the planner knows
        if member.closing:
            await asyncio.wait(set(member.closing))
            if not self._planner.has_room(copy):  # copies that were to be closed have stayed
                self._perform(self._planner.on_failed(copy, time.monotonic()))
                return
        others = [other.facts for other in self._members.values() if other is not member]
        try:
            held = await self._order(
                member, "open", copy, source, restores, others if source.parcel else []
            )
        except Exception as error:
            if not is_gone(error):
                self._failures[copy.model] = cause_of(error)
            self._perform(self._planner.on_failed(copy, time.monotonic()))
        else:
            self._failures.pop(copy.model, None)
            self._perform(self._planner.on_opened(copy, held, time.monotonic()))
        await self._announce()

    async def _close(self, copy: CopyId, node_id: str, parks: bool, evicts: bool) -> None:
        """Close a copy. A leased copy, or one whose state cannot be parked, stays open if the plan
        allows."""
        parked = False
        while (member := self._members.get(node_id)) is not None:
            try:
                parked = bool(await self._order(member, "close", copy, parks, evicts))
                break
            except Exception as error:
                if is_gone(error):
                    return  # the next report shows it
                trouble = cause_of(error)
            is_leased = isinstance(trouble, SessionBusy)
            if not is_leased:
                self._trouble[copy.model] = f"{copy.model}: it cannot be parked: {trouble}"
            if self._planner.on_stayed(copy, time.monotonic(), is_leased=is_leased):
                self._publish()
                await self._announce()
                return
            if copy.model in self._sources:
                await asyncio.sleep(_PARK_AGAIN_SECONDS)
            else:
                parks = evicts = False  # it was unregistered meanwhile
        else:
            return
        self._trouble.pop(copy.model, None)
        if parked:
            self._take_parked(node_id, [(copy.model, copy.slot)])
        self._perform(self._planner.on_closed(copy, time.monotonic(), parked=parked))
        await self._announce()

    def _take_parked(self, node_id: str, parked: Iterable[tuple[str, int]]) -> None:
        """Record that a node has parked the state of these slots. In shared storage, any agent may
        have to report it to the next controller."""
        for name, slot in parked:
            if self._planner.on_parked(name, slot, node_id) and self._settings.storage is not None:
                source = self._sources[name]
                self._sources[name] = replace(source, parked=(*source.parked, slot))
                self._spawn(self._tell_of(name))

    async def _tell_of(self, name: str) -> None:
        await self._order_all("remember", {name: self._sources.get(name)}, False)

    # -- messages to others ------------------------------------------------------------------------

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
        """Send the routes to the agents, which redirect callers with a stale table."""
        table = self._table()
        routes = table.routes
        if (routes, table.agents) == self._published:
            return
        self._plan += 1  # a plan's tables are identical, so a late one is harmless
        self._published = routes, table.agents
        self._spawn(self._order_all("set_routes", self._plan, routes))

    async def _announce(self) -> None:
        async with self._has_changed:
            self._has_changed.notify_all()

    async def _wait_for_change(self, seconds: float) -> None:
        async with self._has_changed:
            try:
                await asyncio.wait_for(self._has_changed.wait(), seconds)
            except (asyncio.TimeoutError, TimeoutError):
                pass

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def as_node(facts: AgentFacts) -> Node:
    return Node(facts.node_id, facts.budget_bytes, frozenset(facts.devices))


def as_model(source: ModelSource) -> Model:
    return Model(
        source.name,
        source.bytes,
        source.copies,
        source.pinned,
        source.device,
        keep_seconds=source.keep_seconds,
    )


def is_same(one: ModelSource, other: ModelSource) -> bool:
    """Whether two sources are the same model, even if its rules have changed since."""
    return replace(one, pinned=other.pinned, keep_seconds=other.keep_seconds) == other


def cause_of(error: Exception) -> Exception:
    """Return the agent's own error, unwrapped from Ray's."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def is_gone(error: Exception) -> bool:
    """Whether this error comes from Ray, not from the agent."""
    return cause_of(error) is error and not isinstance(error, SojournError)
