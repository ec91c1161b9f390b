"""The controller of all nodes: it watches them, consults the planner, and answers callers.

One event loop owns the planner. The controller recovers its state from the agents, so nothing is
stored elsewhere. `orders.py` carries out its decisions.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sojourn.cluster.callers import Callers
from sojourn.cluster.orders import (
    Member,
    Nodes,
    Orders,
    Settings,
    Table,
    as_model,
    as_node,
    is_same,
)
from sojourn.cluster.reporting import nodes_of
from sojourn.cluster.terms import AgentReport, Epoch, ModelSource
from sojourn.errors import ModelError, PoolTimeout, SessionBusy

_TICK_SECONDS = 0.2
_REPORT_SECONDS = 10.0  # for a silent agent; the death of an agent is noticed at once
MEET_SECONDS = 30.0  # for the other agents to start once one has; later ones join then
_END_SECONDS = 20.0
_HOPELESS_SECONDS = 10.0  # without a node that could ever have room for a model
_GO_SECONDS = 30.0  # to close the copies of an unregistered model


class Controller(Orders):
    """The controller of a cluster, one for each. It lives while it has callers."""

    def __init__(self, nodes: Nodes, settings: Settings) -> None:
        super().__init__(nodes, settings)
        self._joining: dict[str, asyncio.Task[None]] = {}
        self._agents: dict[str, Any] = {}  # of all nodes, including those that have yet to answer
        self._callers = Callers(settings.client_seconds)
        self._going: dict[str, asyncio.Task[None]] = {}  # models that are being unregistered
        self._started_at = 0.0
        self._ending: asyncio.Task[None] | None = None
        self._started: asyncio.Task[None] | None = None

    # -- callers ---------------------------------------------------------------------------------

    async def attach(self, client: str, holds: Iterable[str] = ()) -> Table:
        """Register a caller, which counts as long as it repeats this periodically.

        The models that it holds stay registered as long as it does.
        """
        if self._ending is not None:
            raise ConnectionError("the controller is about to end")
        self._callers.hear(client, time.monotonic())
        await self._ready()
        # Again, because the start may have taken longer than the limit.
        self._callers.hear(client, time.monotonic(), holds)
        return self._table()

    async def _ready(self) -> None:
        is_tried = self._started is not None and self._started.done()
        if self._started is None or (is_tried and self._started.exception()):
            self._started = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(self._started)

    async def detach(self, client: str) -> bool:
        """Remove a caller; return whether it was the last, so that everything has ended."""
        self._callers.leave(client)
        if self._callers:
            return False
        await self._end()
        return True

    async def register(self, source: ModelSource, client: str) -> None:
        """Register a model on all nodes. Idempotent.

        An unregistered model of the same name is removed completely first, with its parked state.
        """
        await self._ready()
        name = source.name
        while going := self._going.get(name):
            _, still = await asyncio.wait({going}, timeout=_GO_SECONDS)
            if still:
                raise SessionBusy(f"copies of the model that was {name!r} are still being closed")
        known = self._sources.get(name)
        if known is not None and not is_same(known, source):
            raise ModelError(f"another model is registered as {name!r} with the cluster")
        if source.is_held:
            self._callers.hold(name, client, time.monotonic())
        if known is not None:
            return
        source = replace(source, mark=secrets.token_hex(8))
        orders = self._planner.on_model(as_model(source), time.monotonic())
        self._sources[name] = source
        await self._order_all("remember", {name: source}, False)
        self._perform(orders)

    async def unregister(self, name: str, client: str) -> None:
        """Unregister a model: close its copies and refuse new callers. A model that other callers
        hold stays."""
        await self._ready()
        source = self._sources.get(name)
        if source is None:
            raise ModelError(f"no model {name!r} is registered with the cluster")
        if not (source.is_held and self._callers.release(name, client)):
            await asyncio.wait({self._let_go(source)}, timeout=_GO_SECONDS)

    def _let_go(self, source: ModelSource) -> asyncio.Task[None]:
        """Unregister the model now. The returned task ends when no node has anything of it left."""
        name = source.name
        del self._sources[name]
        self._failures.pop(name, None)
        self._trouble.pop(name, None)
        self._perform(self._planner.on_model_gone(name, time.monotonic()))
        going = self._going[name] = self._spawn(self._see_off(source))
        return going

    async def _see_off(self, source: ModelSource) -> None:
        name = source.name
        try:
            await self._order_all("remember", {name: None}, False)
            while name in self._planner.books.entries:
                await self._wait_for_change(_TICK_SECONDS)
            await self._order_all("drop", name, source.copies)
        finally:
            del self._going[name]

    async def evict(self, name: str, timeout: float) -> bool:
        """Close the copies of a model once their leases have ended; return whether all are
        closed."""
        await self._ready()
        deadline = time.monotonic() + timeout
        while name in self._sources and self._planner.books.entries[name].copies:
            self._perform(self._planner.on_evict(name, time.monotonic()))
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await self._wait_for_change(min(left, _TICK_SECONDS))
        return True

    async def pin(self, name: str, pinned: bool) -> None:
        """Set whether a model is pinned: open all the time."""
        await self._change(name, pinned=pinned)

    async def keep(self, name: str, seconds: float | None) -> None:
        """Set how long copies of a model may stay idle; None: until their room is needed."""
        await self._change(name, keep_seconds=seconds)

    async def _change(self, name: str, **rules: Any) -> None:
        await self._ready()
        source = self._sources.get(name)
        if source is None:
            raise ModelError(f"no model {name!r} is registered with the cluster")
        self._sources[name] = source = replace(source, **rules)
        await self._order_all("remember", {name: source}, False)
        now, keep = time.monotonic(), source.keep_seconds
        self._perform(self._planner.on_rules(name, now, pinned=source.pinned, keep_seconds=keep))

    async def locate(self, name: str, timeout: float | None) -> Table:
        """Open a model if it is not open; return the table once it is open on some node."""
        deadline = None if timeout is None else time.monotonic() + timeout
        await self._ready()
        self._failures.pop(name, None)
        hopeless_at: float | None = None
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
            now, lack = time.monotonic(), self._planner.lack(name)
            if lack is None or isinstance(lack, PoolTimeout):
                hopeless_at = None
            elif hopeless_at is None:
                hopeless_at = now + _HOPELESS_SECONDS  # a node may be about to join
            elif now >= hopeless_at:
                raise lack
            left = 1.0 if deadline is None else min(1.0, deadline - now)
            if left <= 0:
                troubles = [*([] if lack is None else [str(lack)]), *self._trouble.values()]
                trouble = "".join(f"; {text}" for text in troubles)
                raise PoolTimeout(
                    f"{name!r} was not open on any node within {timeout:.3g} s{trouble}"
                )
            await self._wait_for_change(left)

    async def status(self) -> dict[str, Any]:
        """Return nodes, budgets and copies, as plain values."""
        await self._ready()
        return {
            "epoch": self._epoch.number,
            "callers": len(self._callers),
            "models": sorted(self._sources),
            "marks": {name: source.mark for name, source in self._sources.items()},
            "nodes": nodes_of(self._members, self._planner.books),
            "lost": [*self._lost, *self._trouble.values()],
        }

    # -- nodes -----------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Take over from the previous controller: adopt the models and copies that the agents
        report."""
        alive = await asyncio.to_thread(self._nodes.alive)
        meetings = [self._spawn(self._meet(node, takes_over=True)) for node in alive.values()]
        if meetings:  # once one agent has answered, wait only a limited time for the others
            await asyncio.wait(meetings, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(meetings, timeout=MEET_SECONDS)
        members = [m.result() for m in meetings if m.done() and m.exception() is None]
        for meeting in meetings:
            meeting.cancel()  # an agent that has yet to answer joins later
        for member in members:
            for name, source in (await member.agent.recall.remote()).items():
                slots = {*source.parked, *self._sources.get(name, source).parked}
                self._sources[name] = replace(source, parked=tuple(slots))
        self._members = {member.facts.node_id: member for member in members}
        copies = [
            (report.copy, node_id, report.bytes)
            for node_id, member in self._members.items()
            for report in member.report.copies
            if report.copy.model in self._sources and report.is_open
        ]
        parked = [(s.name, slot, "") for s in self._sources.values() for slot in s.parked]
        for node_id, member in self._members.items():
            parked += [(*kept, node_id) for kept in member.report.parked]
        nodes = [as_node(member.facts) for member in members]
        models = [as_model(source) for source in self._sources.values()]
        self._perform(self._planner.recover(nodes, models, copies, parked, time.monotonic()))
        self._started_at = time.monotonic()
        self._spawn(self._watch())
        self._spawn(self._watch_nodes())

    async def _meet(self, node: Mapping[str, Any], *, takes_over: bool = False) -> Member:
        """Return the agent of a node, which from now on refuses orders of earlier controllers."""
        agent = self._agents[node["NodeID"]] = await asyncio.to_thread(self._nodes.agent, node)
        facts = await agent.start.remote()
        while (seen := await agent.adopt.remote(self._epoch)) != self._epoch:
            if not takes_over:
                raise self._step_down(f"{seen} has taken over")
            self._epoch = Epoch(seen.number + 1, self._owner)
        return Member(agent, facts, await agent.report.remote())

    async def _join(self, node: Mapping[str, Any]) -> None:
        """Add a node that is new or was considered lost: close what it still has open."""
        member = await self._meet(node)
        await self._order(member, "remember", self._sources, True)
        for copy in member.report.copies:
            await self._order(member, "close", copy.copy, False, False)
            if copy.changed:
                self._lost.append(f"{copy.copy.model}: what it had learnt on {member.facts.node}")
        kept = member.report.parked
        if self._settings.storage is not None:
            self._take_parked(node["NodeID"], kept)
        else:
            self._lost += [
                f"{name}: what was kept of it on {member.facts.node}" for name, _ in kept
            ]
        self._members[node["NodeID"]] = member
        self._perform(self._planner.on_node(as_node(member.facts), time.monotonic()))

    async def _watch(self) -> None:
        """Watch agents and callers, even while Ray's head does not answer."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            for node_id, member in self._members.items():
                if member.look is None or member.look.done():  # a slow agent delays no other
                    member.look = self._spawn(self._look_at(node_id, member))
            self._perform((*self._planner.expire(now), *self._planner.plan(now)))
            self._look_at_callers(now)

    async def _watch_nodes(self) -> None:
        """Poll Ray for its nodes. Its head may be unavailable for a while."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                alive = await asyncio.to_thread(self._nodes.alive)
            except Exception:
                continue
            for node_id in [n for n in self._agents if n not in alive]:
                self._leave(node_id)
            for node_id, node in alive.items():
                is_known = node_id in self._members or node_id in self._joining
                if not is_known and self._ending is None:
                    self._joining[node_id] = self._spawn(self._join_later(node_id, node))

    def _look_at_callers(self, now: float) -> None:
        """Forget silent callers, and unregister the models that only they held."""
        self._callers.expire(now)
        if now - self._started_at <= self._settings.client_seconds:
            return  # after a restart, callers have yet to report to this controller
        for source in [s for s in self._sources.values() if s.is_held]:
            if not self._callers.holds(source.name):
                self._let_go(source)
        if not self._callers:
            self._end()

    async def _join_later(self, node_id: str, node: Mapping[str, Any]) -> None:
        try:
            await self._join(node)
        except Exception:
            await asyncio.sleep(1.0)  # failed while joining; retried while Ray reports it alive
        finally:
            del self._joining[node_id]

    def _leave(self, node_id: str) -> None:
        """Remove a node that Ray reports dead: its agent must not be restarted anywhere."""
        self._forget(self._agents.pop(node_id))
        if node_id in self._joining:
            self._joining[node_id].cancel()
        if node_id in self._members:
            self._lose(node_id)

    def _forget(self, agent: Any) -> None:
        try:
            self._nodes.forget(agent)
        except Exception:
            pass  # the agent died with its node

    async def _look_at(self, node_id: str, member: Member) -> None:
        """Request an agent's report and update the books."""
        try:
            report = await asyncio.wait_for(member.agent.report.remote(), _REPORT_SECONDS)
        except Exception:
            # Its process died, or its node does not answer. If Ray restarts it, or it answers after
            # all, it joins as a new agent.
            if self._members.get(node_id) is member:
                self._lose(node_id)
            return
        if self._members.get(node_id) is not member:
            return
        if report.incarnation != member.facts.incarnation:  # Ray has restarted it
            self._lose(node_id)
        else:
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
        for copy_id in missing & member.missing:  # missing twice: a single report may be stale
            self._perform(planner.on_closed(copy_id, now))  # its worker died
        member.missing = missing
        self._take_parked(node_id, report.parked)  # maybe by order of the previous controller
        for copy in report.copies:
            there = planner.books.copies.get(copy.copy)
            if there is None and copy.is_open:  # no caller knows of it
                self._begin_close(copy.copy, node_id, parks=copy.copy.model in self._sources)
            if there is None or not there.is_open or not copy.is_open:
                continue
            if copy.changed:
                planner.on_changed(copy.copy)
            if copy.holders or there.holders:
                planner.on_holders(copy.copy, copy.holders, now)
            if copy.bytes and copy.bytes != there.bytes:
                self._perform(planner.on_measured(copy.copy, copy.bytes, now))

    # -- the end ---------------------------------------------------------------------------------

    def _end(self) -> asyncio.Future[None]:
        """End the cluster because no caller is left. Done once, even if several notice."""
        if self._ending is None:
            self._ending = self._spawn(self._end_all())
        return asyncio.shield(self._ending)

    async def _end_all(self) -> None:
        """End the agents and then this controller."""
        for task in self._joining.values():
            task.cancel()
        members, self._members = list(self._members.values()), {}
        ends = [asyncio.wait_for(self._order(m, "end"), _END_SECONDS) for m in members]
        await asyncio.gather(*ends, return_exceptions=True)
        if self._is_deposed:
            return
        for agent in self._agents.values():
            self._forget(agent)
        asyncio.get_running_loop().call_later(0.05, self._nodes.end)
