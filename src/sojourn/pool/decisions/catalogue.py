"""The registered models, by name and version: one record per version, with what was measured."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from sojourn.pool.decisions.health import Crashes, Oversize
from sojourn.pool.decisions.terms import Model, Policy, key_of

# Upper ends, in seconds, of the buckets that count waits for leases; the last bucket has no end.
WAIT_SECONDS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Waits:
    """How long requests for one model waited until their leases were granted."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(WAIT_SECONDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(WAIT_SECONDS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class Entry:
    """The record of one version of a model. It outlives the version's copies."""

    model: Model
    source: object = None  # what its copies are opened from; opaque here
    is_coming: bool = False  # being opened by an update; leases by name get it when it is ready
    is_going: bool = False  # unregistered; the record is removed with the last copy
    fresh_bytes: int | None = None  # size of a copy right after it was opened
    older_bytes: int | None = None  # the same of the version before
    crashes: Crashes = field(default_factory=Crashes)
    oversize: Oversize = field(default_factory=Oversize)
    waits: Waits = field(default_factory=Waits)
    evicted_as: int | None = None  # the pool's count of evictions at its last one
    comebacks: float = 0.0  # how often, recently, it was requested again soon after an eviction
    number: int = 0  # of the registration; differs when the name and version are used again
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.model.key

    @property
    def is_guess(self) -> bool:
        """Whether its size was neither declared nor ever measured."""
        return self.model.memory_bytes is None and self.fresh_bytes is None

    def expected_bytes(self, policy: Policy) -> int:
        """The probable size of a new copy. Only a declared size is reliable."""
        if self.model.memory_bytes is not None:
            return self.model.memory_bytes
        if self.fresh_bytes is not None:
            return self.fresh_bytes
        if self.model.estimate_bytes is not None:
            return self.model.estimate_bytes
        return policy.unknown_bytes if self.older_bytes is None else self.older_bytes


class Catalogue:
    """All versions of all models, and which version leases by name get."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._latest: dict[str, str] = {}  # cache, by name: the key of the latest version
        self._added = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __getitem__(self, key: str) -> Entry:
        return self._entries[key]

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that can be leased, in the order of registration."""
        ready = (entry for entry in self if not entry.is_coming and not entry.is_going)
        return tuple(dict.fromkeys(entry.model.name for entry in ready))

    def find(self, name: str, version: int | None = None) -> Entry | None:
        """Return the requested version, or the latest; None if it does not exist."""
        key = self._latest_key(name) if version is None else key_of(name, version)
        entry = None if key is None else self._entries.get(key)
        return None if entry is None or entry.is_going else entry

    def versions(self, name: str) -> list[Entry]:
        """Return the versions of a model that can be leased, the oldest first."""
        found = [e for e in self if e.model.name == name and not e.is_going]
        return sorted(found, key=lambda entry: entry.model.version)

    def free_version(self, name: str) -> int:
        """Return a number above those of all versions, including unregistered ones."""
        return 1 + max((e.model.version for e in self if e.model.name == name), default=0)

    def is_latest(self, entry: Entry) -> bool:
        return self._latest_key(entry.model.name) == entry.key

    def add(self, model: Model, source: object = None, *, is_coming: bool = False) -> Entry:
        """Add a model by one assignment: an interrupt finds it either added or not."""
        before = self._entries.get(model.key)
        if before is not None:
            what = "is still being closed" if before.is_going else "is registered already"
            raise ValueError(f"a model named {model.name!r}, version {model.version}, {what}")
        older = self.versions(model.name)
        self._added += 1  # first: an interrupt must not lead to duplicates
        entry = Entry(
            model,
            source,
            is_coming,
            older_bytes=older[-1].fresh_bytes if older else None,
            number=self._added,
        )
        self._latest.pop(model.name, None)
        self._entries[model.key] = entry
        return entry

    def arrive(self, entry: Entry) -> None:
        """Mark a version as ready: leases by name get it now, if it is the latest."""
        entry.is_coming = False
        self._latest.pop(entry.model.name, None)

    def retire(self, entry: Entry) -> None:
        """Mark a version as unregistered: it cannot be leased any more."""
        entry.is_going = True
        self._latest.pop(entry.model.name, None)

    def forget(self, entry: Entry) -> None:
        del self._entries[entry.key]

    def _latest_key(self, name: str) -> str | None:
        key = self._latest.get(name)
        if key is None:
            ready = [entry for entry in self.versions(name) if not entry.is_coming]
            if ready:
                key = self._latest[name] = ready[-1].key
        return key
