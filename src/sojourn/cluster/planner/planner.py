"""Decide what is opened where, and which copies are evicted for it. Events in, orders out.

1. A copy is placed on the emptiest node that has room and no other copy of its model, unless that
   would fill the last gap that fits the largest pinned model: then on the fullest suitable node.
2. If no node has room, the copies that the pool's own rule would evict first, over the whole
   cluster, select a few nodes; the one whose victims are worth least makes room.
3. No copy is closed for a model without requests: the copies of a lost node return where they fit,
   pinned models and those with waiting callers also where others can make room.
4. Nothing moves because a node is new. Copies move only when their node is drained.
5. A newly opened copy is not evicted for a model that is not pinned (no thrashing): that one waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from sojourn.cluster.planner.books import Books, Copy, Entry, Place
from sojourn.cluster.planner.placing import Placing
from sojourn.cluster.planner.terms import Close, Lost, Model, Node, Open, Order, Park, Rules
from sojourn.errors import SojournError
from sojourn.pool.decisions.eviction import choose_victims
from sojourn.pool.decisions.terms import CopyId, Room

_MOST_COMEBACKS = 7.0


class Planner:
    """The plan of one cluster. Each event returns the resulting orders.

    Orders for one node must be carried out in sequence. Room that an order needs is promised at
    once; the node's result is reported through `on_opened`, `on_closed` and `on_failed`.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.books = Books()
        self._placing = Placing(self.books, self.rules)
        # Models with fewer copies than they should have, and whether a caller waits.
        self._due: dict[str, bool] = {}
        # The same for models that found no room or could not be opened, with the time of the next
        # attempt.
        self._later: dict[str, tuple[float, bool]] = {}

    def recover(
        self,
        nodes: Iterable[Node],
        models: Iterable[Model],
        copies: Iterable[tuple[CopyId, str, int]],
        parked: Iterable[tuple[str, int, str]],
        now: float,
    ) -> tuple[Order, ...]:
        """Take over from an earlier planner: nodes, models, open copies with their nodes, and
        parked states with their nodes."""
        for node in nodes:
            self.books.add_node(node)
        for model in models:
            self.books.add_model(model)
        for copy_id, node_name, size in copies:
            entry = self.books.entries[copy_id.model]
            entry.is_wanted = True
            place = self.books.places[node_name]
            copy = self.books.add(entry, place, copy_id.slot, now, copy_id)
            copy.is_open = True
            self.books.measure(copy, size)
            self.books.list_idle(copy)
        for name, slot, node_name in parked:
            self.on_parked(name, slot, node_name)
        for name in self.books.entries:
            self._check(name)
        return self.plan(now)

    # -- nodes ---------------------------------------------------------------------------------

    def on_node(self, node: Node, now: float) -> tuple[Order, ...]:
        """Add a node that has joined, with nothing open on it."""
        if node.name in self.books.places:
            raise ValueError(f"node {node.name!r} is known already")
        self.books.add_node(node)
        self._retry(now + self.rules.retry_seconds)
        return self.plan(now)

    def on_node_lost(self, name: str, now: float) -> tuple[Order, ...]:
        """Remove a lost node with all its copies. State that only it had is lost."""
        orders: list[Order] = []
        for model, slot in self.books.places[name].parked.copy():
            entry = self.books.entries[model]
            self.books.unpark(entry, slot)
            copy_here = entry.copies.get(slot)
            if copy_here is None or copy_here.node != name:
                orders.append(Lost(CopyId(model, slot, 0), name))
        for copy in self.books.remove_node(name):
            if copy.has_changed:
                orders.append(Lost(copy.id, name))
            self._forget_if_last(copy.model.name)
            self._check(copy.model.name)
        self._due = dict(sorted(self._due.items(), key=lambda item: self._urgency(item[0])))
        return (*orders, *self.plan(now))

    # -- models --------------------------------------------------------------------------------

    def on_model(self, model: Model, now: float) -> tuple[Order, ...]:
        """Register a model. A pinned model is opened at once, others on demand."""
        if model.name in self.books.entries:
            raise ValueError(f"a model {model.name!r} is registered, or has copies that leave")
        self.books.add_model(model)
        self._check(model.name)
        return self.plan(now)

    def on_model_gone(self, name: str, now: float) -> tuple[Order, ...]:
        """Unregister a model: close its copies and forget its parked states."""
        entry = self.books.entries[name]
        orders: list[Order] = []
        for copy in entry.copies.values():
            if not copy.is_leaving:
                self.books.leave(copy)
                orders.append(Close(copy.id, copy.node))
        self.books.retire_model(entry)
        self._forget_due(name)
        self._forget_if_last(name)
        return (*orders, *self.plan(now))

    def on_demand(self, name: str, now: float) -> tuple[Order, ...]:
        """Open a model that a caller requests, if it is not open, and mark it as used."""
        entry = self.books.entries[name]
        entry.is_wanted = True
        is_open = False
        for copy in entry.copies.values():
            if not copy.is_leaving:
                is_open = is_open or copy.is_open
                copy.last_used = now
                self.books.list_idle(copy)
        if entry.is_short:
            self._due[name] = self._forget_due(name) or not is_open
            return self.plan(now, first=name)
        return ()

    def on_evict(self, name: str, now: float) -> tuple[Order, ...]:
        """Free the memory of a model: close its copies without leases."""
        entry = self.books.entries[name]
        entry.is_wanted = False  # until a caller requests it
        self._forget_due(name)
        idle = [
            copy.id
            for copy in entry.copies.values()
            if copy.is_open and not (copy.is_leaving or copy.holders) and now >= copy.stays_until
        ]
        orders = self._evict(idle, now)
        self._check(name)  # a pinned model is reopened
        return (*orders, *self.plan(now))

    def on_rules(
        self, name: str, now: float, *, pinned: bool, keep_seconds: float | None
    ) -> tuple[Order, ...]:
        """Change whether a model is pinned, and how long its copies may stay idle."""
        entry = self.books.entries[name]
        model = replace(entry.model, pinned=pinned, keep_seconds=keep_seconds)
        self.books.change_model(entry, model)
        nodes = [copy.node for copy in entry.copies.values()]
        orders = [order for node in nodes for order in self._relieve(node, now)]
        self._check(name)
        return (*orders, *self.plan(now))

    def expire(self, now: float) -> tuple[Order, ...]:
        """Close copies that have been idle for their `keep_seconds`, and evict others on nodes
        where copies that should have made room have stayed."""
        orders = self._evict(self.books.expired(now), now)
        for place in self.books.overfull():
            orders += self._relieve(place.node.name, now)
        return tuple(orders)

    def on_holders(self, copy_id: CopyId, holders: int, now: float) -> None:
        """Set the number of leases of this copy. A leased copy is not evicted."""
        copy = self.books.copies.get(copy_id)
        if copy is not None and not copy.is_leaving:
            if holders or copy.holders:
                copy.last_used = now
            copy.holders = holders
            self.books.list_idle(copy)

    # -- copies --------------------------------------------------------------------------------

    def on_opened(self, copy_id: CopyId, bytes: int, now: float) -> tuple[Order, ...]:
        """Record that a copy is open, with its measured size."""
        copy = self.books.copies.get(copy_id)
        if copy is None or copy.is_leaving:
            return ()
        copy.is_open, copy.opened_at, copy.last_used = True, now, now
        entry = self.books.entries[copy_id.model]
        self.books.resize(entry, bytes)
        self.books.list_idle(copy)
        return self.on_measured(copy_id, bytes, now)

    def on_measured(self, copy_id: CopyId, bytes: int, now: float) -> tuple[Order, ...]:
        """Update the size of a copy. If its node is over budget, other copies are evicted."""
        copy = self.books.copies.get(copy_id)
        if copy is None:
            return ()
        self.books.measure(copy, bytes)
        return (*self._relieve(copy.node, now), *self.plan(now))

    def _relieve(self, node: str, now: float) -> tuple[Order, ...]:
        """If a node is over its budget, evict as many copies as necessary, or all that may be
        evicted."""
        place = self.books.places[node]
        if place.free_bytes >= 0:
            return ()
        candidates = self.books.candidates_on(place, now)
        chosen = choose_victims(candidates, Room(-place.free_bytes, 0), now)
        all_of_them = tuple(candidate.copy for candidate in candidates)
        return tuple(self._evict(all_of_them if chosen is None else chosen, now))

    def on_changed(self, copy_id: CopyId) -> None:
        """Record that the variables of this copy have changed since they were loaded or saved."""
        copy = self.books.copies.get(copy_id)
        if copy is not None:
            copy.has_changed = True

    def on_closed(self, copy_id: CopyId, now: float, *, parked: bool = False) -> tuple[Order, ...]:
        """Record that a copy was closed, as ordered or by itself; `parked`: its state was saved
        before."""
        copy = self.books.copies.get(copy_id)
        if copy is None:
            return ()
        entry = self.books.entries[copy_id.model]
        if parked and not entry.is_gone:
            home = None if self.rules.has_shared_storage else copy.node
            self.books.park(entry, copy_id.slot, home)
        self.books.remove(copy)
        self._forget_if_last(copy_id.model)
        self._check(copy_id.model)
        return self.plan(now)

    def on_stayed(self, copy_id: CopyId, now: float, *, is_leased: bool) -> bool:
        """Handle a copy that could not be closed, because it is leased or its state cannot be
        parked. Return whether it may stay.

        It may not stay if its model is unregistered.
        """
        copy = self.books.copies.get(copy_id)
        if copy is None or not copy.is_leaving:
            return True
        entry = self.books.entries[copy_id.model]
        if entry.is_gone:
            return False
        entry.is_wanted, entry.evicted_at = True, None
        copy.last_used = now
        if is_leased:
            copy.holders = max(1, copy.holders)
        else:
            copy.stays_until = now + self.rules.stay_seconds
        self.books.stay(copy)
        return True

    def has_room(self, copy_id: CopyId) -> bool:
        """Whether a copy can be opened where it was planned: the copies evicted for it are
        closed."""
        copy = self.books.copies.get(copy_id)
        return copy is not None and self.books.places[copy.node].free_bytes >= 0

    def on_parked(self, name: str, slot: int, node: str) -> bool:
        """Record that the state of a slot is parked on this node, or in shared storage. Return
        whether that was not known before."""
        entry = self.books.entries.get(name)
        is_seen = self.rules.has_shared_storage or node in self.books.places
        if entry is None or entry.is_gone or slot in entry.parked or not is_seen:
            return False
        self.books.park(entry, slot, None if self.rules.has_shared_storage else node)
        return True

    def on_failed(self, copy_id: CopyId, now: float) -> tuple[Order, ...]:
        """Record that a copy could not be opened. It is retried later, possibly on another node."""
        copy = self.books.copies.get(copy_id)
        if copy is None:
            return ()
        self.books.remove(copy)
        self._forget_if_last(copy_id.model)
        entry = self.books.entries.get(copy_id.model)
        if entry is not None and entry.is_short:
            is_waited_for = self._forget_due(copy_id.model)
            self._later[copy_id.model] = now + self.rules.retry_seconds, is_waited_for
        return self.plan(now)

    def lack(self, name: str) -> SojournError | None:
        """Return why a requested model is not open on any node: a PoolTimeout if that may resolve
        by itself, None if the model is about to be opened."""
        entry = self.books.entries[name]
        return None if entry.copies or name in self._due else self._placing.lack(entry)

    # -- planning ------------------------------------------------------------------------------

    @property
    def has_due(self) -> bool:
        """Whether more models are due to be planned now."""
        return bool(self._due)

    def plan(self, now: float, first: str | None = None) -> tuple[Order, ...]:
        """Place a few of the missing copies: of `first`, then of the models that have been due
        longest."""
        self._retry(now)
        orders: list[Order] = []
        names = [] if first is None else [first]
        names += [n for n in islice(self._due, self.rules.most_at_once) if n != first]
        for name in names:
            is_waited_for = self._due.pop(name, False)
            entry = self.books.entries[name]
            orders += self._fill(entry, is_waited_for, now)
            if entry.is_short:
                self._later[name] = now + self.rules.retry_seconds, is_waited_for
        return tuple(orders)

    def _retry(self, by: float) -> None:
        """Move the models whose retry time has come by then back to due. They are ordered by that
        time."""
        while self._later:
            name, (at, is_waited_for) = next(iter(self._later.items()))
            if at > by:
                break
            del self._later[name]
            self._due[name] = is_waited_for

    def _forget_due(self, name: str) -> bool:
        """Remove a model from the due ones, now and later; return whether a caller waits for it."""
        _, waited_later = self._later.pop(name, (0.0, False))
        return self._due.pop(name, False) or waited_later

    def _fill(self, entry: Entry, is_waited_for: bool, now: float) -> list[Order]:
        """Open the missing copies of a model, as far as room permits."""
        orders: list[Order] = []
        for slot in range(entry.model.copies):
            if slot in entry.copies:
                continue
            has_one = any(copy.is_open for copy in entry.copies.values())
            may_evict = entry.model.pinned or (is_waited_for and not has_one and not orders)
            home = entry.parked.get(slot, "")
            if home:  # its state is on this node only
                places: Sequence[Place] = [self.books.places[home]]
                found = next((p for p in places if p.free_bytes >= entry.bytes), None)
            else:
                places = ()
                found = self._placing.place_with_room(entry)
            if found is None and may_evict:
                found, leaving = self._placing.place_by_eviction(entry, places, now)
                orders += self._evict(leaving, now)
            if found is None:
                break
            orders.append(self._open(entry, found, slot, now))
        return orders

    def _open(self, entry: Entry, place: Place, slot: int, now: float) -> Order:
        if entry.evicted_at is not None:
            is_comeback = now - entry.evicted_at < self.rules.comeback_seconds
            entry.comebacks = min(entry.comebacks + 1.0, _MOST_COMEBACKS) if is_comeback else 0.0
            entry.evicted_at = None
        copy = self.books.add(entry, place, slot, now)
        return Open(copy.id, copy.node, restores=slot in entry.parked)

    def _evict(self, copies: Sequence[CopyId], now: float) -> list[Order]:
        orders: list[Order] = []
        for copy_id in copies:
            copy = self.books.copies[copy_id]
            self.books.leave(copy)
            entry = self.books.entries[copy_id.model]
            if not any(not other.is_leaving for other in entry.copies.values()):
                entry.is_wanted = False  # until a caller requests it
                entry.evicted_at = now
                self._forget_due(copy_id.model)
            orders.append(_leaving(copy))
        return orders

    def _check(self, name: str) -> None:
        """Mark a model as due if it is short of copies."""
        entry = self.books.entries.get(name)
        if entry is not None and entry.is_short and name not in self._later:
            self._due.setdefault(name, False)

    def _forget_if_last(self, name: str) -> None:
        entry = self.books.entries.get(name)
        if entry is not None and entry.is_gone and not entry.copies:
            self.books.remove_model(name)

    def _urgency(self, name: str) -> tuple[bool, bool]:
        return not self.books.entries[name].model.pinned, not self._due[name]


def _leaving(copy: Copy) -> Order:
    return (Park if copy.has_changed else Close)(copy.id, copy.node)
