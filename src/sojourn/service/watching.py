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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sojourn.service import folders
from sojourn.service.rules import ModelRules

_log = logging.getLogger("sojourn.service")
QUIET_SECONDS = 1.0  # without a change, until something new is taken to be complete

Entries = Mapping[str, ModelRules]
Print = tuple[tuple[str, int, int, int], ...]  # of each file: size, time, and which it is


class Key(NamedTuple):
    """One version of a model, somewhere."""

    name: str
    version: int
    path: str


class Quiet:
    """Tells what is complete from what is still being written. Pure: times are passed in."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.taken: dict[Key, Print] = {}  # with what it looked like
        self._waiting: dict[Key, tuple[Print, float]] = {}  # since when it looks like this

    def take(self, prints: Mapping[Key, Print]) -> None:
        """These are complete: they were there when the server started."""
        self.taken.update(prints)

    def update(self, prints: Mapping[Key, Print], now: float) -> set[Key]:
        """What has become complete by now, of those that are there: also what was so before, and
        has been changed since."""
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
        """Everything that is there now is served already, or is not to be."""
        entries, prints = await asyncio.to_thread(self._look_around)
        self._quiet.take(prints)
        self._last = self._found(entries, prints)

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
        """Every model with those of its versions that are complete, or were before. As long as
        there are others only, it is what it was: nothing leaves for something half-written."""
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


def _entry(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, -1, 0, 0  # it is gone already, or a link to nothing
    return path, found.st_size, found.st_mtime_ns, found.st_ino
