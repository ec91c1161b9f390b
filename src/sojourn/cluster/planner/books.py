"""What is open where, with indexes to find a node or a victim without a search."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from sojourn.cluster.planner.terms import Model, Node
from sojourn.pool.decisions.eviction import Candidate, weight
from sojourn.pool.decisions.terms import CopyId


@dataclass(slots=True, eq=False)
class Copy:
    """One copy on one node. Its bytes are charged while it stays; once it is leaving, its room can
    be promised to others."""

    id: CopyId
    model: Model
    node: str
    bytes: int
    opened_at: float
    last_used: float
    is_open: bool = False
    is_leaving: bool = False
    has_changed: bool = False
    holders: int = 0
    stays_until: float = 0.0  # it could not be closed; not retried before this
    weight: float = 1.0  # the key of the idle row that it is in


@dataclass(slots=True, eq=False)
class Entry:
    """A registered model: its copies by slot, its parked states and its history."""

    model: Model
    copies: dict[int, Copy] = field(default_factory=dict)
    bytes: int = 0
    parked: dict[int, str | None] = field(default_factory=dict)  # by slot: the node, None: shared
    is_wanted: bool = False  # open, or should be
    is_gone: bool = False  # unregistered; kept until its last copy is closed
    comebacks: float = 0.0
    evicted_at: float | None = None

    @property
    def is_short(self) -> bool:
        """Whether the model has fewer copies than it should have."""
        staying = sum(not copy.is_leaving for copy in self.copies.values())
        is_due = (self.is_wanted or self.model.pinned) and not self.is_gone
        return is_due and staying < self.model.copies


@dataclass(slots=True, eq=False)
class Place:
    """A node, its copies, and how much of its budget is promised."""

    node: Node
    copies: dict[CopyId, Copy] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    staying_bytes: int = 0  # of copies that are open or opening
    pinned_bytes: int = 0
    parked: set[tuple[str, int]] = field(default_factory=set)  # models and slots

    @property
    def free_bytes(self) -> int:
        return self.node.budget_bytes - self.staying_bytes


class Books:
    """Every node, model and copy. The only owner of the planner's state."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.entries: dict[str, Entry] = {}
        self.copies: dict[CopyId, Copy] = {}
        self._generation = 0
        self._by_room: list[tuple[int, str]] = []  # free bytes and name of each node
        # Copies that may be evicted, least recently used first; one row for each weight.
        self._idle: dict[float, OrderedDict[CopyId, Copy]] = {}
        self._timed: dict[CopyId, Copy] = {}  # idle copies that are closed after `keep_seconds`
        self._pinned: dict[int, int] = {}  # number of pinned models of each size

    # -- nodes ---------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        self.places[node.name] = Place(node)
        insort(self._by_room, (node.budget_bytes, node.name))

    def remove_node(self, name: str) -> list[Copy]:
        """Remove a node; return the copies that were on it."""
        place = self.places[name]
        copies = list(place.copies.values())
        for copy in copies:
            self.remove(copy)
        self._unlist(place)
        del self.places[name]
        return copies

    def with_room(self, need: int) -> Iterator[Place]:
        """Yield the nodes with at least `need` bytes free, fullest first."""
        for _, name in self._by_room[bisect_left(self._by_room, (need, "")) :]:
            yield self.places[name]

    def emptiest(self) -> Iterator[Place]:
        """Yield all nodes, emptiest first."""
        for _, name in reversed(self._by_room):
            yield self.places[name]

    def overfull(self) -> list[Place]:
        """Return the nodes that have promised more than their budget."""
        count = bisect_left(self._by_room, (0, ""))
        return [self.places[name] for _, name in self._by_room[:count]]

    def count_with_room(self, need: int) -> int:
        return len(self._by_room) - bisect_left(self._by_room, (need, ""))

    def charge(self, place: Place, bytes: int) -> None:
        """Promise `bytes` more of a node's budget, or less if negative."""
        self._unlist(place)
        place.staying_bytes += bytes
        insort(self._by_room, (place.free_bytes, place.node.name))

    def _unlist(self, place: Place) -> None:
        del self._by_room[bisect_left(self._by_room, (place.free_bytes, place.node.name))]

    # -- models --------------------------------------------------------------------------------

    def add_model(self, model: Model) -> None:
        entry = self.entries[model.name] = Entry(model, bytes=model.bytes)
        if model.pinned:
            self._count_pinned(entry.bytes, 1)

    def retire_model(self, entry: Entry) -> None:
        """Mark a model as unregistered; its copies are leaving."""
        entry.is_gone, entry.is_wanted = True, False
        for slot in list(entry.parked):
            self.unpark(entry, slot)
        if entry.model.pinned:
            self._count_pinned(entry.bytes, -1)

    def remove_model(self, name: str) -> None:
        del self.entries[name]

    def resize(self, entry: Entry, bytes: int) -> None:
        """Set how many bytes the next copy of this model is charged."""
        if entry.model.pinned:
            self._count_pinned(entry.bytes, -1)
            self._count_pinned(bytes, 1)
        entry.bytes = bytes

    def change_model(self, entry: Entry, model: Model) -> None:
        """Change the rules of a model and of its copies."""
        was, entry.model = entry.model.pinned, model
        if model.pinned != was:
            self._count_pinned(entry.bytes, 1 if model.pinned else -1)
        for copy in entry.copies.values():
            copy.model = model
            if model.pinned != was and not copy.is_leaving:
                sign = 1 if model.pinned else -1
                self.places[copy.node].pinned_bytes += sign * copy.bytes
            self.list_idle(copy)

    def largest_pinned(self) -> int:
        return max(self._pinned, default=0)

    def _count_pinned(self, bytes: int, change: int) -> None:
        count = self._pinned.get(bytes, 0) + change
        if count:
            self._pinned[bytes] = count
        else:
            self._pinned.pop(bytes, None)

    # -- copies --------------------------------------------------------------------------------

    def add(
        self, entry: Entry, place: Place, slot: int, now: float, known: CopyId | None = None
    ) -> Copy:
        """Promise room for a copy: a new one, or one that an earlier planner has opened."""
        if known is None:
            self._generation += 1
            copy_id = CopyId(entry.model.name, slot, self._generation)
        else:
            copy_id = known
            self._generation = max(self._generation, known.generation)
        copy = Copy(copy_id, entry.model, place.node.name, entry.bytes, now, now)
        entry.copies[slot] = self.copies[copy_id] = place.copies[copy_id] = copy
        place.models.add(entry.model.name)
        if entry.model.pinned:
            place.pinned_bytes += copy.bytes
        self.charge(place, copy.bytes)
        return copy

    def leave(self, copy: Copy) -> None:
        """Mark a copy as leaving: its room can be promised to others."""
        self.unlist_idle(copy)
        copy.is_leaving = True
        place = self.places[copy.node]
        if copy.model.pinned:
            place.pinned_bytes -= copy.bytes
        self.charge(place, -copy.bytes)

    def stay(self, copy: Copy) -> None:
        """Keep a copy that was leaving: its room is no longer available to others."""
        copy.is_leaving = False
        place = self.places[copy.node]
        if copy.model.pinned:
            place.pinned_bytes += copy.bytes
        self.charge(place, copy.bytes)
        self.list_idle(copy)

    def remove(self, copy: Copy) -> None:
        """Remove a copy that has been closed."""
        if not copy.is_leaving:
            self.leave(copy)
        place = self.places[copy.node]
        del place.copies[copy.id], self.copies[copy.id]
        place.models.discard(copy.model.name)
        entry = self.entries.get(copy.model.name)
        if entry is not None and entry.copies.get(copy.id.slot) is copy:
            del entry.copies[copy.id.slot]

    def park(self, entry: Entry, slot: int, node: str | None) -> None:
        """Record that the state of this slot is parked on a node, or in shared storage (None)."""
        self.unpark(entry, slot)
        entry.parked[slot] = node
        if node is not None:
            self.places[node].parked.add((entry.model.name, slot))

    def unpark(self, entry: Entry, slot: int) -> None:
        node = entry.parked.pop(slot, None)
        if node is not None:
            self.places[node].parked.discard((entry.model.name, slot))

    def measure(self, copy: Copy, bytes: int) -> None:
        grown, copy.bytes = bytes - copy.bytes, bytes
        if copy.is_leaving:
            return
        place = self.places[copy.node]
        if copy.model.pinned:
            place.pinned_bytes += grown
        self.charge(place, grown)

    # -- eviction candidates -------------------------------------------------------------------

    def list_idle(self, copy: Copy) -> None:
        """List a copy as idle, behind all others of its weight, if it may be evicted."""
        self.unlist_idle(copy)
        if copy.model.pinned or copy.holders or copy.is_leaving or not copy.is_open:
            return
        copy.weight = weight(self.candidate(copy))
        self._idle.setdefault(copy.weight, OrderedDict())[copy.id] = copy
        if copy.model.keep_seconds is not None:
            self._timed[copy.id] = copy

    def unlist_idle(self, copy: Copy) -> None:
        self._timed.pop(copy.id, None)
        row = self._idle.get(copy.weight)
        if row is not None:
            row.pop(copy.id, None)

    def expired(self, now: float) -> list[CopyId]:
        """Return the copies that have been idle for their `keep_seconds`."""
        return [
            copy.id
            for copy in self._timed.values()
            if now - copy.last_used >= (copy.model.keep_seconds or 0.0) and now >= copy.stays_until
        ]

    def candidate(self, copy: Copy) -> Candidate:
        """Return the copy in the form that the pool's eviction rule takes."""
        entry = self.entries[copy.model.name]
        cost, comebacks = copy.model.cost_seconds, float(round(entry.comebacks))
        return Candidate(copy.id, copy.bytes, copy.last_used, copy.opened_at, cost, comebacks)

    def candidates_on(self, place: Place, now: float) -> list[Candidate]:
        """Return the copies on this node that may be evicted."""
        return [
            self.candidate(copy)
            for copy in place.copies.values()
            if copy.is_open and not (copy.model.pinned or copy.holders or copy.is_leaving)
            if now >= copy.stays_until
        ]

    def first_to_leave(self, now: float, most: int) -> list[Copy]:
        """Return the least valuable copies of the whole cluster, in the order of the pool's
        eviction rule."""
        there = [(c for c in row.values() if now >= c.stays_until) for row in self._idle.values()]
        begun = [(next(row, None), row) for row in there]
        heads = [head for head, _ in begun if head is not None]
        rows = [row for head, row in begun if head is not None]
        found: list[Copy] = []
        while heads and len(found) < most:
            at = max(range(len(heads)), key=lambda i: _idleness(heads[i], now))
            found.append(heads[at])
            following = next(rows[at], None)
            if following is None:
                del heads[at], rows[at]
            else:
                heads[at] = following
        return found


def _idleness(copy: Copy, now: float) -> float:
    return (now - copy.last_used) / copy.weight
