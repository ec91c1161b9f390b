"""Choose the node for a copy: one with room, or the one where making room costs least.
Read-only."""

from __future__ import annotations

from collections.abc import Sequence

from sojourn.cluster.planner.books import Books, Entry, Place
from sojourn.cluster.planner.terms import Rules
from sojourn.errors import BudgetExceeded, DeviceError, PoolTimeout, SojournError
from sojourn.pool.decisions.eviction import Candidate, choose_victims, weight
from sojourn.pool.decisions.terms import CopyId, Room
from sojourn.values import format_bytes


class Placing:
    """Chooses nodes from the books of one planner."""

    def __init__(self, books: Books, rules: Rules) -> None:
        self._books = books
        self._rules = rules

    def suits(self, entry: Entry, place: Place) -> bool:
        return entry.model.name not in place.models and entry.model.device in place.node.devices

    def place_with_room(self, entry: Entry) -> Place | None:
        need, books = entry.bytes, self._books
        first = None
        for place in books.emptiest():
            if place.free_bytes < need:
                return None
            if self.suits(entry, place):
                first = place
                break
        hole = books.largest_pinned()
        if first is None or entry.model.pinned or first.free_bytes - need >= hole:
            return first
        if books.count_with_room(hole) != 1 or first.free_bytes < hole:
            return first
        return next((p for p in books.with_room(need) if self.suits(entry, p)), first)

    def place_by_eviction(
        self, entry: Entry, places: Sequence[Place], now: float
    ) -> tuple[Place | None, tuple[CopyId, ...]]:
        """Return the node where making room costs least, and the copies to evict there. Considers
        only `places`, if any are given."""
        need, residency = entry.bytes, self._rules.min_residency_seconds
        best: tuple[float, int] | None = None
        found, leaving = None, tuple[CopyId, ...]()
        for place in places or self._promising(entry, now):
            if place.node.budget_bytes - place.pinned_bytes < need:
                continue
            candidates = self._books.candidates_on(place, now)
            if not entry.model.pinned:
                candidates = [c for c in candidates if now - c.opened_at >= residency]
            short = Room(need - place.free_bytes, 0)
            victims = choose_victims(candidates, short, now, residency)
            if victims is None:
                continue
            loss = _loss([c for c in candidates if c.copy in victims], now)
            if best is None or loss < best:
                best, found, leaving = loss, place, victims
        return found, leaving

    def lack(self, entry: Entry) -> SojournError:
        """Return why no node has room for a model: a PoolTimeout if the room may become free when
        leases end."""
        model, home = entry.model, entry.parked.get(0)
        places = [
            place
            for place in self._books.places.values()
            if model.device in place.node.devices and (not home or place.node.name == home)
        ]
        if not places:
            return DeviceError(f"{model.name!r} needs a {model.device}, and no node has one for it")
        need = f"{model.name!r} needs {format_bytes(entry.bytes)}"
        roomiest = max(places, key=lambda place: place.node.budget_bytes - place.pinned_bytes)
        budget, pinned = roomiest.node.budget_bytes, roomiest.pinned_bytes
        if budget - pinned < entry.bytes:
            taken = f", of which {format_bytes(pinned)} are pinned" if pinned else ""
            return BudgetExceeded(f"{need}; the roomiest node has {format_bytes(budget)}{taken}")
        free = format_bytes(max(0, *(place.free_bytes for place in places)))
        return PoolTimeout(
            f"{need}; at most {free} are free on a node, and what is open there is leased or new"
        )

    def _promising(self, entry: Entry, now: float) -> list[Place]:
        """Return a few nodes with the copies that the whole cluster can best spare."""
        most = self._rules.looks_at
        found: dict[str, Place] = {}
        for copy in self._books.first_to_leave(now, most * 4):
            place = self._books.places[copy.node]
            if place.node.name not in found and self.suits(entry, place):
                found[place.node.name] = place
                if len(found) == most:
                    break
        if entry.model.pinned or not found:  # a place must be found if one exists: try all
            rest = (p for p in self._books.emptiest() if self.suits(entry, p))
            found.update((p.node.name, p) for p in rest if p.node.name not in found)
        return list(found.values())


def _loss(victims: Sequence[Candidate], now: float) -> tuple[float, int]:
    """Return the loss of evicting these: the most valuable victim counts first, then the total
    bytes."""
    dearest = max((weight(c) / max(now - c.last_used, 1e-3) for c in victims), default=0.0)
    return dearest, sum(c.bytes for c in victims)
