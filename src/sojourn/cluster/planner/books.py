"""What is open where, and the indexes by which a node or a victim is found without a search."""

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
    """One copy on one node. It is charged until it was closed, and promised room once it leaves."""

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
    stays_until: float = 0.0  # it could not leave, and is not asked again before
    weight: float = 1.0  # as of the bucket that it is in


@dataclass(slots=True, eq=False)
class Entry:
    """A registered model, its copies by slot, and what is remembered of it."""

    model: Model
    copies: dict[int, Copy] = field(default_factory=dict)
    bytes: int = 0
    parked: dict[int, str | None] = field(default_factory=dict)  # by slot: the node, None: shared
    is_wanted: bool = False  # it is open, or shall be
    is_gone: bool = False  # unregistered; here until its last copy is closed
    comebacks: float = 0.0
    evicted_at: float | None = None

    @property
    def is_short(self) -> bool:
        """Whether it has fewer copies than it should have."""
        staying = sum(not copy.is_leaving for copy in self.copies.values())
        is_due = (self.is_wanted or self.model.pinned) and not self.is_gone
        return is_due and staying < self.model.copies


@dataclass(slots=True, eq=False)
class Place:
    """A node, what is on it, and how much of it is promised."""

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
    """Every node, model and copy. The one owner of the planner's state."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.entries: dict[str, Entry] = {}
        self.copies: dict[CopyId, Copy] = {}
        self._generation = 0
        self._by_room: list[tuple[int, str]] = []  # free bytes of the nodes that take copies
        # Copies that may leave, the least recently used first; one row for each weight.
        self._idle: dict[float, OrderedDict[CopyId, Copy]] = {}
        self._timed: dict[CopyId, Copy] = {}  # those of them that leave after a time
        self._pinned: dict[int, int] = {}  # how many pinned models there are of each size

    # -- nodes ---------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        self.places[node.name] = Place(node)
        insort(self._by_room, (node.budget_bytes, node.name))

    def remove_node(self, name: str) -> list[Copy]:
        """Forget a node; the copies that were on it."""
        place = self.places[name]
        copies = list(place.copies.values())
        for copy in copies:
            self.remove(copy)
        self._unlist(place)
        del self.places[name]
        return copies

    def with_room(self, need: int) -> Iterator[Place]:
        """The nodes that have so much free, the fullest first."""
        for _, name in self._by_room[bisect_left(self._by_room, (need, "")) :]:
            yield self.places[name]

    def emptiest(self) -> Iterator[Place]:
        """The nodes that take copies, the emptiest first."""
        for _, name in reversed(self._by_room):
            yield self.places[name]

    def overfull(self) -> list[Place]:
        """The nodes that have promised more than they have."""
        count = bisect_left(self._by_room, (0, ""))
        return [self.places[name] for _, name in self._by_room[:count]]

    def count_with_room(self, need: int) -> int:
        return len(self._by_room) - bisect_left(self._by_room, (need, ""))

    def charge(self, place: Place, bytes: int) -> None:
        """Promise so much more of a node, or less."""
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
        """It is unregistered; its copies are leaving."""
        entry.is_gone, entry.is_wanted = True, False
        for slot in list(entry.parked):
            self.unpark(entry, slot)
        if entry.model.pinned:
            self._count_pinned(entry.bytes, -1)

    def remove_model(self, name: str) -> None:
        del self.entries[name]

    def resize(self, entry: Entry, bytes: int) -> None:
        """What the next copy of this model is charged with."""
        if entry.model.pinned:
            self._count_pinned(entry.bytes, -1)
            self._count_pinned(bytes, 1)
        entry.bytes = bytes

    def change_model(self, entry: Entry, model: Model) -> None:
        """The same model by other rules, for its copies as well."""
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
        """It is on its way out: its room is promised to others."""
        self.unlist_idle(copy)
        copy.is_leaving = True
        place = self.places[copy.node]
        if copy.model.pinned:
            place.pinned_bytes -= copy.bytes
        self.charge(place, -copy.bytes)

    def stay(self, copy: Copy) -> None:
        """It is not closed after all, so its room cannot be given to others."""
        copy.is_leaving = False
        place = self.places[copy.node]
        if copy.model.pinned:
            place.pinned_bytes += copy.bytes
        self.charge(place, copy.bytes)
        self.list_idle(copy)

    def remove(self, copy: Copy) -> None:
        """It is gone."""
        if not copy.is_leaving:
            self.leave(copy)
        place = self.places[copy.node]
        del place.copies[copy.id], self.copies[copy.id]
        place.models.discard(copy.model.name)
        entry = self.entries.get(copy.model.name)
        if entry is not None and entry.copies.get(copy.id.slot) is copy:
            del entry.copies[copy.id.slot]

    def park(self, entry: Entry, slot: int, node: str | None) -> None:
        """The state of this slot is kept on a node, or where all nodes see it."""
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

    # -- who may leave -------------------------------------------------------------------------

    def list_idle(self, copy: Copy) -> None:
        """It may leave, after all others of its weight."""
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
        """Those that have been idle for as long as they may be."""
        return [
            copy.id
            for copy in self._timed.values()
            if now - copy.last_used >= (copy.model.keep_seconds or 0.0) and now >= copy.stays_until
        ]

    def candidate(self, copy: Copy) -> Candidate:
        """It as the pool's own eviction sees it."""
        entry = self.entries[copy.model.name]
        cost, comebacks = copy.model.cost_seconds, float(round(entry.comebacks))
        return Candidate(copy.id, copy.bytes, copy.last_used, copy.opened_at, cost, comebacks)

    def candidates_on(self, place: Place, now: float) -> list[Candidate]:
        """Those that may leave this node."""
        return [
            self.candidate(copy)
            for copy in place.copies.values()
            if copy.is_open and not (copy.model.pinned or copy.holders or copy.is_leaving)
            if now >= copy.stays_until
        ]

    def first_to_leave(self, now: float, most: int) -> list[Copy]:
        """The copies of the whole cluster that are worth least, in the order of the pool's rule."""
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
