"""The user's handle: all nodes that Ray knows, used like one pool."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from sojourn.cluster import files
from sojourn.cluster.control import ANSWER_SECONDS, Control
from sojourn.cluster.lease import RemoteLease
from sojourn.cluster.links import Link, NodeLost
from sojourn.cluster.sources import source_of
from sojourn.cluster.sweeps import RemoteCall
from sojourn.cluster.terms import AgentFacts, ModelSource, needs_gpu
from sojourn.cluster.wire import words
from sojourn.errors import PoolTimeout, SessionBroken, SessionClosed
from sojourn.functions.options import Options
from sojourn.process.aside import aside
from sojourn.values import Place, Receipt, arguments, caller

KEEP_SECONDS = 10.0
_ANSWER_SECONDS = ANSWER_SECONDS  # after which an agent that has our leases counts as lost
_BEAT_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_COMEBACK_SECONDS = 30.0  # for Ray to restart an agent that has died


class Cluster:
    """Leases and sweeps on every node that Ray knows, until `close()`; best used with `with`.

    When the last connected program closes its handle, or is silent for ten seconds, all agents and
    their workers end.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._lock = threading.RLock()  # leases may be garbage-collected while it is held
        self._links: dict[str, Link] = {}
        self._routes: dict[str, list[str]] = {}
        self._plan = (0, 0)
        self._leases: weakref.WeakSet[RemoteLease] = weakref.WeakSet()
        self._holds: dict[str, ModelSource] = {}  # models that this program holds
        self._counts = dict.fromkeys(("answered", "failed", "repeated", "lost", "late"), 0)
        self.repeatable: dict[tuple[Any, ...], bool] = {}  # whether a kind of step can be repeated
        self._is_over = threading.Event()
        self._take(control.attach())
        # Two threads: leases must not expire because the controller is unavailable.
        self._threads = [
            threading.Thread(target=self._renew, name="sojourn-cluster-leases", daemon=True),
            threading.Thread(target=self._beat, name="sojourn-cluster-controller", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # -- models ----------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        model: Any,
        *,
        copies: int = 1,
        pinned: bool = False,
        memory: int | str | None = None,
        keep_seconds: float | None = None,
        send: bool = False,
        **options: Any,
    ) -> None:
        """Register a model on every node. It is opened by its first lease.

        `model` is a path that all nodes can read, a URL that fsspec supports, or a function that
        builds a model. With `send` the path is on this machine: its files are sent once. The model
        is open on up to `copies` nodes while it is used; a `pinned` model is open all the time. A
        copy that was idle for `keep_seconds` is closed; by default it is closed when its room is
        needed. `memory` is reserved for each copy before it is opened. Other options are those of
        `Pool.register`.
        """
        self._require_open()
        parcel, digest = files.pack(arguments.path("model", model)) if send else ("", "")
        try:
            rules = {"copies": copies, "pinned": pinned, "memory": memory, **options}
            source = source_of(name, model, keep_seconds=keep_seconds, parcel=digest, **rules)
            if send:
                with self._lock:
                    links = [self._links[node] for node in sorted(self._links)]
                files.send(parcel, digest, links)
        finally:
            if parcel:
                os.unlink(parcel)
        self._control.register(source)

    def hold(self, name: str, path: str, **options: Any) -> None:
        """Register a model for as long as this program, or another that holds it, is connected."""
        self._require_open()
        source = source_of(name, path, is_held=True, **options)
        self._control.register(source)
        with self._lock:
            self._holds[name] = source

    def unregister(self, name: str) -> None:
        """Unregister a model on every node."""
        self._require_open()
        with self._lock:
            self._holds.pop(name, None)
        self._control.unregister(name)
        with self._lock:
            self._routes.pop(name, None)

    def lease(self, name: str, *, timeout: float | None = None) -> RemoteLease:
        """Lease a session of this model, on any node where it is or can be opened, for a `with`
        block."""
        return self._lease(name, timeout, caller())

    @asynccontextmanager
    async def alease(
        self, name: str, *, timeout: float | None = None
    ) -> AsyncIterator[RemoteLease]:
        """Lease a session in asyncio: `async with everywhere.alease(name) as session`."""
        lease = await aside(partial(self._lease, name, timeout, caller()), RemoteLease.close)
        try:
            yield lease
        finally:
            await aside(lease.close)

    def _lease(
        self, name: str, timeout: float | None, holder: Place, repeats: bool = True
    ) -> RemoteLease:
        self._require_open()
        arguments.text("a model's name", name)
        link, granted = self.take(name, timeout=arguments.timeout(timeout))
        lease = RemoteLease(self, name, link, granted, holder, repeats)
        self.note(lease)
        return lease

    def take(
        self, name: str, *, timeout: float | None, avoid: Link | None = None
    ) -> tuple[Link, words.Leased]:
        """Take a lease from an agent. If our table is stale, agents redirect to the right node."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise PoolTimeout(f"{name!r} could not be leased on any node within {timeout:g} s")
            link = self._choose(name, avoid)
            if link is None:
                self._take(self._control.locate(name, left))
                found = self._choose(name, avoid)
                if found is None or found.is_suspect or found is avoid:
                    self._is_over.wait(_LOOK_SECONDS)  # the agent's state will be known soon
                self._require_open()
                continue
            place = str(caller())
            ask = words.LeaseModel(name, left, KEEP_SECONDS, place)
            limit = None if deadline is None else deadline + _LOOK_SECONDS
            try:
                reply, _ = link.ask(ask, (), limit)
            except NodeLost:
                self._forget_route(name, link)
                avoid = link
                continue
            except TimeoutError:
                continue
            if isinstance(reply, words.Leased):
                link.leases += 1
                return link, reply
            assert isinstance(reply, words.Moved)
            self._correct(name, link, reply)

    def _choose(self, name: str, avoid: Link | None) -> Link | None:
        """Return the agent that has this model and the fewest of our leases."""
        with self._lock:
            links = [self._links.get(node) for node in self._routes.get(name, ())]
        usable = [link for link in links if link and not link.is_cut]
        return min(usable, key=lambda link: _reluctance(link, avoid), default=None)

    def _correct(self, name: str, link: Link, moved: words.Moved) -> None:
        with self._lock:
            if tuple(moved.plan) > self._plan and moved.nodes:
                self._routes[name] = list(moved.nodes)
                return
        self._forget_route(name, link)

    def _forget_route(self, name: str, link: Link) -> None:
        with self._lock:
            nodes = self._routes.get(name, [])
            self._routes[name] = [node for node in nodes if self._links.get(node) is not link]

    def _take(self, table: Any) -> None:
        """Use a new table from the controller, and cut the links to removed agents."""
        gone: list[Link] = []
        with self._lock:
            if tuple(table.plan) < self._plan:
                return
            self._plan = tuple(table.plan)
            self._routes = dict(table.routes)
            for node, link in list(self._links.items()):
                facts: AgentFacts | None = table.agents.get(node)
                if facts is None or facts.incarnation != link.facts.incarnation:
                    gone.append(self._links.pop(node))
            for node, facts in table.agents.items():
                if node not in self._links:
                    self._links[node] = Link(facts)
        for link in gone:
            link.cut()

    # -- leases ----------------------------------------------------------------------------------

    def note(self, lease: RemoteLease) -> None:
        with self._lock:
            self._leases.add(lease)

    def forget(self, lease: RemoteLease) -> None:
        with self._lock:
            self._leases.discard(lease)
            lease.link.leases -= 1

    def give_back(self, lease: RemoteLease) -> None:
        self.forget(lease)
        try:
            lease.link.ask(words.GiveBack(lease.number), (), time.monotonic() + _ANSWER_SECONDS)
        except Exception:
            pass  # its node is lost, or lets the lease expire

    def _renew(self) -> None:
        """Renew our leases at the agents periodically."""
        while not self._is_over.wait(KEEP_SECONDS / 4):
            self._renew_all()

    def _renew_all(self) -> None:
        """Renew at all nodes in parallel: leases on the others must not expire while one node is
        silent."""
        with self._lock:
            links, leases = list(self._links.values()), list(self._leases)
        of_links = [(link, [lease for lease in leases if lease.link is link]) for link in links]
        rounds = [
            threading.Thread(target=self._renew_at, args=(link, held), daemon=True)
            for link, held in of_links
            if held or link.is_waited_for
        ]
        for each in rounds:
            each.start()
        for each in rounds:
            each.join()

    def _beat(self) -> None:
        """Report to the controller periodically and take its table."""
        while not self._is_over.wait(_BEAT_SECONDS):
            with self._lock:
                holds = tuple(self._holds)
            table = self._control.beat(holds)
            if table is not None:
                self._take(table)
                self._hold_again(table)

    def _hold_again(self, table: Any) -> None:
        """Register held models again that the controller released because it got no heartbeat from
        us."""
        with self._lock:
            gone = [source for name, source in self._holds.items() if name not in table.routes]
        for source in gone:
            with suppress(Exception):  # retried with the next heartbeat
                self._control.register(source)

    def _renew_at(self, link: Link, leases: list[RemoteLease]) -> None:
        ask = words.KeepLeases([lease.number for lease in leases], KEEP_SECONDS)
        try:
            reply, _ = link.ask(ask, (), time.monotonic() + _ANSWER_SECONDS)
        except Exception:
            link.cut()  # waiting callers get an error and ask again
            with self._lock:
                for node, known in list(self._links.items()):
                    if known is link:
                        self._links[node] = Link(link.facts)
            return
        assert isinstance(reply, words.Kept)
        for lease in leases:
            if lease.number in reply.ended:
                lease.end(reply.ended[lease.number])

    # -- functions -------------------------------------------------------------------------------

    def workers(self, device: str) -> int:
        """Return how many functions can run at a time: one for each processor that Ray counts, or
        for each GPU if they need one."""
        with self._lock:
            facts = [link.facts for link in self._links.values()]
        found = sum(one.gpus if needs_gpu(device) else one.processors for one in facts)
        return found or 1

    def new_call(
        self,
        options: Options,
        name: str,
        place: Place,
        keep_receipt: Callable[[Receipt], None],
        label: str,
        repeatable: bool,
    ) -> RemoteCall:
        """Create a call of an isolated function on some node."""
        self._require_open()
        return RemoteCall(self, options, name, place, keep_receipt, label, repeatable)

    @contextmanager
    def calling(self, lost: Container[Link], device: str = "auto") -> Iterator[Link]:
        """Yield the agent with the fewest calls per processor, and count one more call for it
        meanwhile.

        If no usable node is left, wait for one to return.
        """
        deadline = time.monotonic() + _COMEBACK_SECONDS
        while (link := self._least_called(lost, device)) is None:
            if self._is_over.wait(_LOOK_SECONDS) or time.monotonic() > deadline:
                what = "with a GPU " if needs_gpu(device) else ""
                raise SessionBroken(f"no node {what}is left that could be called")
        try:
            yield link
        finally:
            with self._lock:
                link.calls -= 1

    def _least_called(self, lost: Container[Link], device: str) -> Link | None:
        with self._lock:
            usable = [
                link
                for link in self._links.values()
                if link not in lost and not link.is_cut and link.facts.can_call(device)
            ]
            if not usable:
                return None
            link = min(usable, key=lambda link: link.calls / link.facts.processors)
            link.calls += 1
            return link

    # -- status and closing ----------------------------------------------------------------------

    def count(self, how: str) -> None:
        with self._lock:
            self._counts[how] += 1

    @property
    def counts(self) -> dict[str, int]:
        """How the steps of this program ended. Each step was `answered`, `failed` (it raised),
        `lost` or `late`; the outcome of lost and late steps is unknown. `repeated` steps were run
        again."""
        with self._lock:
            return dict(self._counts)

    def status(self) -> Mapping[str, Any]:
        """Return nodes, budgets, copies and callers, as plain values."""
        self._require_open()
        found: Mapping[str, Any] = self._control.status()
        return found

    def close(self) -> None:
        """Return all leases and disconnect. May be called twice."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        with self._lock:
            leases, links = list(self._leases), list(self._links.values())
        for lease in leases:
            lease.close()
        for link in links:
            link.cut()
        self._control.detach()

    def _require_open(self) -> None:
        if self._is_over.is_set():
            raise SessionClosed("the connection to the cluster was closed")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        with self._lock:
            nodes, models, leases = len(self._links), len(self._routes), len(self._leases)
        return f"<Cluster {nodes} nodes | {models} models | {leases} leased>"


def _reluctance(link: Link, avoid: Link | None) -> tuple[bool, bool, int]:
    """Sort key: of the agents that have a model, the one with the smallest key is used."""
    return link is avoid, link.is_suspect, link.leases
