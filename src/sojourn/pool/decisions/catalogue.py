"""The registered models, by name and version, with what was learnt of each. One record a model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from sojourn.pool.decisions.health import Crashes, Oversize
from sojourn.pool.decisions.terms import Model, Policy, key_of

# Upper ends of the buckets in which the waits for leases are counted; the last one has none.
WAIT_SECONDS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Waits:
    """How long the granted leases of one model had to be waited for."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(WAIT_SECONDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(WAIT_SECONDS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class Entry:
    """One version of a model. It outlives its copies."""

    model: Model
    source: object = None  # what its copies are opened from, as the driver knows it
    is_coming: bool = False  # an update opens it; leases by name get it when it is ready
    is_going: bool = False  # unregistered: it is forgotten when its last copy has gone
    fresh_bytes: int | None = None  # what a copy held right after it was opened
    older_bytes: int | None = None  # what one of the version before it held
    crashes: Crashes = field(default_factory=Crashes)
    oversize: Oversize = field(default_factory=Oversize)
    waits: Waits = field(default_factory=Waits)
    evicted_as: int | None = None  # when it was last evicted it was this many-th of the pool
    comebacks: float = 0.0  # how often, of late, it was evicted only to be wanted again
    number: int = 0  # it was the so many-th to be registered: another, if its name was used again
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.model.key

    @property
    def is_guess(self) -> bool:
        """Whether its size was neither declared nor ever measured."""
        return self.model.memory_bytes is None and self.fresh_bytes is None

    def expected_bytes(self, policy: Policy) -> int:
        """What a new copy will probably hold. Only what was declared is more than a guess."""
        if self.model.memory_bytes is not None:
            return self.model.memory_bytes
        if self.fresh_bytes is not None:
            return self.fresh_bytes
        if self.model.estimate_bytes is not None:
            return self.model.estimate_bytes
        return policy.unknown_bytes if self.older_bytes is None else self.older_bytes


class Catalogue:
    """Every version of every model, and which of them leases by name get."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._latest: dict[str, str] = {}  # by name: the key, as far as it was asked for
        self._added = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __getitem__(self, key: str) -> Entry:
        return self._entries[key]

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that can be leased, in the order they were registered."""
        ready = (entry for entry in self if not entry.is_coming and not entry.is_going)
        return tuple(dict.fromkeys(entry.model.name for entry in ready))

    def find(self, name: str, version: int | None = None) -> Entry | None:
        """The version that was asked for, or the latest; None if there is no such one."""
        key = self._latest_key(name) if version is None else key_of(name, version)
        entry = None if key is None else self._entries.get(key)
        return None if entry is None or entry.is_going else entry

    def versions(self, name: str) -> list[Entry]:
        """Those that can be leased, the oldest first."""
        found = [e for e in self if e.model.name == name and not e.is_going]
        return sorted(found, key=lambda entry: entry.model.version)

    def free_version(self, name: str) -> int:
        """A number above those of all versions, the ones included that are on their way out."""
        return 1 + max((e.model.version for e in self if e.model.name == name), default=0)

    def is_latest(self, entry: Entry) -> bool:
        return self._latest_key(entry.model.name) == entry.key

    def add(self, model: Model, source: object = None, *, is_coming: bool = False) -> Entry:
        """Enter a model, by one assignment: an interrupt finds it entered or not."""
        before = self._entries.get(model.key)
        if before is not None:
            what = "is still being closed" if before.is_going else "is registered already"
            raise ValueError(f"a model named {model.name!r}, version {model.version}, {what}")
        older = self.versions(model.name)
        self._added += 1  # before, so that no two have the same number after an interrupt
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
        """It is ready: from now on leases by name get it, if it is the latest."""
        entry.is_coming = False
        self._latest.pop(entry.model.name, None)

    def retire(self, entry: Entry) -> None:
        """Nobody gets it any more."""
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
