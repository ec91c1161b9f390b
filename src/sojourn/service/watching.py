"""Poll folders of models: new models and versions are served, removed ones are retired.

Polling instead of inotify works on every file system, network ones included, and scanning some
folders is cheap. A version that is still being copied is left alone until nothing in it has changed
for a moment; one that was renamed into place is complete but waits as long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sojourn.service import folders
from sojourn.service.rules import ModelRules

_log = logging.getLogger("sojourn.service")
QUIET_SECONDS = 1.0  # without a change until something new counts as complete

Entries = Mapping[str, ModelRules]
Print = tuple[tuple[str, int, int, int], ...]  # of each file: path, size, mtime and inode


class Key(NamedTuple):
    """One version of a model at a path."""

    name: str
    version: int
    path: str


class Quiet:
    """Distinguishes complete versions from those still being written. Pure: times are passed in."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.taken: dict[Key, Print] = {}  # with their fingerprints
        self._waiting: dict[Key, tuple[Print, float]] = {}  # and since when it is unchanged

    def take(self, prints: Mapping[Key, Print]) -> None:
        """Mark these as complete: they existed when the server started."""
        self.taken.update(prints)

    def update(self, prints: Mapping[Key, Print], now: float) -> set[Key]:
        """Return the versions that have become complete by now, including those that were complete
        before and have been changed since."""
        self.taken = {key: seen for key, seen in self.taken.items() if prints.get(key) == seen}
        self._waiting = {key: since for key, since in self._waiting.items() if key in prints}
        complete = set()
        for key in prints.keys() - self.taken.keys():
            seen = prints[key]
            before, since = self._waiting.setdefault(key, (seen, now))
            if before != seen:
                self._waiting[key] = seen, now
            elif now - since >= self._seconds:
                del self._waiting[key]
                self.taken[key] = seen
                complete.add(key)
        return complete


class Found(NamedTuple):
    """One model as last found: its rules and the paths of its complete versions."""

    rules: ModelRules
    versions: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class News:
    """The differences from the previous scan."""

    changed: Mapping[str, Found] = field(default_factory=dict)  # changed or new models
    same_rules: frozenset[str] = frozenset()  # changed models with unchanged rules
    gone: frozenset[str] = frozenset()
    again: frozenset[tuple[str, int]] = frozenset()  # versions whose files have just settled

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone or self.again)


def compare(
    before: Mapping[str, Found], after: Mapping[str, Found], complete: Collection[Key]
) -> News:
    """Return what has changed from one scan to the next."""
    settled = {key.name for key in complete}
    changed = {n: f for n, f in after.items() if n in settled or before.get(n) != f}
    return News(
        changed,
        frozenset(n for n in changed if n in before and before[n].rules == after[n].rules),
        frozenset(before.keys() - after.keys()),
        frozenset((key.name, key.version) for key in complete),
    )


class Watcher:
    """Scans the folders until it is cancelled."""

    def __init__(
        self,
        find: Callable[[], Entries],
        change: Callable[[News], None],
        seconds: float,
    ) -> None:
        self._find = find
        self._change = change
        self._seconds = seconds
        self._quiet = Quiet(QUIET_SECONDS)
        self._last: dict[str, Found] = {}
        self._said = ""
        self.lock = asyncio.Lock()  # held while something is changed

    async def begin(self) -> None:
        """Take a first scan: what exists now is already served, or should not be."""
        entries, prints = await asyncio.to_thread(self._look_around)
        self._quiet.take(prints)
        self._last = self._found(entries, prints)

    async def run(self) -> None:
        """Scan forever. A failed scan changes nothing and logs its reason once; scanning
        continues."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                async with self.lock:
                    await self._look()
                self._said = ""
            except Exception as error:
                if str(error) != self._said:
                    _log.warning("models cannot be looked for: %s", error)
                self._said = str(error)

    async def _look(self) -> None:
        entries, prints = await asyncio.to_thread(self._look_around)
        complete = self._quiet.update(prints, time.monotonic())
        before, self._last = self._last, self._found(entries, prints)
        news = compare(before, self._last, complete)
        if news:
            self._change(news)

    def _look_around(self) -> tuple[Entries, dict[Key, Print]]:
        entries = self._find()
        return entries, {key: _print(key.path) for key in _keys(entries)}

    def _found(self, entries: Entries, there: Collection[Key]) -> dict[str, Found]:
        """Return every model with its versions that are complete or were before. While a model has
        only incomplete versions, its previous entry stays: a half-written version replaces
        nothing."""
        complete: dict[str, dict[int, str]] = {name: {} for name in entries}
        waits = set()
        for key in sorted(there):
            before = self._last.get(key.name)
            was_there = before is not None and before.versions.get(key.version) == key.path
            if key in self._quiet.taken or was_there:
                complete[key.name][key.version] = key.path
            else:
                waits.add(key.name)
        found = {}
        for name, rules in entries.items():
            if complete[name] or name not in waits:
                found[name] = Found(rules, complete[name])
            elif name in self._last:
                found[name] = self._last[name]
        return found


def _keys(entries: Entries) -> list[Key]:
    """Return every version that exists."""
    return [
        Key(name, version, path)
        for name, rules in entries.items()
        for version, path in folders.versions_at(rules.path).items()
        if os.path.exists(path)
    ]


def _print(path: str) -> Print:
    """Return a fingerprint of the files at a path, without reading them."""
    if not os.path.isdir(path):
        return (_entry(path),)
    files = (os.path.join(root, name) for root, _, names in os.walk(path) for name in names)
    return tuple(sorted(map(_entry, files)))


def _entry(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, -1, 0, 0  # already removed, or a dangling link
    return path, found.st_size, found.st_mtime_ns, found.st_ino
