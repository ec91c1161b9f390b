"""Folders of models, looked at now and then: what is new there is served, what is gone is not.

By looking and not by being told (inotify): that works for every file system, network ones included,
and a look at some folders costs next to nothing. What is still being copied is left alone until
nothing has changed in it for a moment; what was renamed into place is whole, and waits as long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sojourn.service import folders
from sojourn.service.rules import ModelRules

_log = logging.getLogger("sojourn.service")
QUIET_SECONDS = 1.0  # without a change, until something new is taken to be complete

Entries = Mapping[str, ModelRules]
Print = tuple[tuple[str, int, int], ...]


class Key(NamedTuple):
    """One version of a model, somewhere."""

    name: str
    version: int
    path: str


class Quiet:
    """Tells what is complete from what is still being written. Pure: times are passed in."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.taken: dict[Key, Print | None] = {}  # with what it looked like when it had failed
        self._waiting: dict[Key, tuple[Print, float]] = {}  # since when it looks like this

    def take(self, keys: Collection[Key]) -> None:
        """These are complete: they were there when the server started."""
        self.taken.update(dict.fromkeys(keys))

    def to_look_at(self, there: Collection[Key], failed: Collection[tuple[str, int]]) -> list[Key]:
        """Which of those that are there must be looked at closely."""
        return [key for key in there if key not in self.taken or (key.name, key.version) in failed]

    def update(self, there: Collection[Key], prints: Mapping[Key, Print], now: float) -> set[Key]:
        """What has become complete by now. What has failed is so again once it has changed."""
        present = set(there)
        self.taken = {key: seen for key, seen in self.taken.items() if key in present}
        self._waiting = {key: seen for key, seen in self._waiting.items() if key in present}
        complete = set()
        for key, seen in prints.items():
            if key in self.taken:
                before = self.taken[key]
                if before is None or before == seen:
                    self.taken[key] = seen
                    continue
                del self.taken[key]
            since = self._waiting.get(key)
            if since is None or since[0] != seen:
                self._waiting[key] = seen, now
            elif now - since[1] >= self._seconds:
                del self._waiting[key]
                self.taken[key] = None
                complete.add(key)
        return complete


class Found(NamedTuple):
    """One model, as it was last found: its rules, and the paths of its complete versions."""

    rules: ModelRules
    versions: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class News:
    """What is different from the last look."""

    changed: Mapping[str, Found] = field(default_factory=dict)  # or new
    same_rules: frozenset[str] = frozenset()  # those of them of which only the versions are
    gone: frozenset[str] = frozenset()
    again: frozenset[tuple[str, int]] = frozenset()  # versions whose files have just settled

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone or self.again)


def compare(
    before: Mapping[str, Found], after: Mapping[str, Found], complete: Collection[Key]
) -> News:
    """What has changed from one look to the next."""
    settled = {key.name for key in complete}
    changed = {n: f for n, f in after.items() if n in settled or before.get(n) != f}
    return News(
        changed,
        frozenset(n for n in changed if n in before and before[n].rules == after[n].rules),
        frozenset(before.keys() - after.keys()),
        frozenset((key.name, key.version) for key in complete),
    )


class Watcher:
    """Looks at the folders until it is cancelled."""

    def __init__(
        self,
        find: Callable[[], Entries],
        has_failed: Callable[[], Collection[tuple[str, int]]],
        change: Callable[[News], Awaitable[None]],
        seconds: float,
    ) -> None:
        self._find = find
        self._has_failed = has_failed
        self._change = change
        self._seconds = seconds
        self._quiet = Quiet(QUIET_SECONDS)
        self._last: dict[str, Found] = {}
        self._said = ""
        self.lock = asyncio.Lock()  # held while something is changed

    async def begin(self) -> None:
        """Everything that is there now is served already, or is not to be."""
        entries = await asyncio.to_thread(self._find)
        keys = await asyncio.to_thread(_keys, entries)
        self._quiet.take(keys)
        self._last = self._found(entries, keys)

    async def run(self) -> None:
        """Look, for ever. A look that fails changes nothing, says why once, and is not the last."""
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
        entries = await asyncio.to_thread(self._find)
        there = await asyncio.to_thread(_keys, entries)
        keys = self._quiet.to_look_at(there, self._has_failed())
        prints = await asyncio.to_thread(lambda: {key: _print(key.path) for key in keys})
        complete = self._quiet.update(there, prints, time.monotonic())
        before, self._last = self._last, self._found(entries, there)
        news = compare(before, self._last, complete)
        if news:
            await self._change(news)

    def _found(self, entries: Entries, there: Collection[Key]) -> dict[str, Found]:
        """Every model with those of its versions that are complete. As long as there are others
        only, it is what it was before: nothing leaves for something half-written."""
        complete: dict[str, dict[int, str]] = {name: {} for name in entries}
        waits = set()
        for key in there:
            if key in self._quiet.taken:
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
    """Every version that is there."""
    return [
        Key(name, version, path)
        for name, rules in entries.items()
        for version, path in folders.versions_at(rules.path).items()
        if os.path.exists(path)
    ]


def _print(path: str) -> Print:
    """What its files look like from outside."""
    if not os.path.isdir(path):
        return (_entry(path),)
    files = (os.path.join(root, name) for root, _, names in os.walk(path) for name in names)
    return tuple(sorted(map(_entry, files)))


def _entry(path: str) -> tuple[str, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, -1, 0  # it is gone already, or a link to nothing
    return path, found.st_size, found.st_mtime_ns
