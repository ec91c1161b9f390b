"""The text of the user's modules as they were imported: files change while programs run.

From the import of sojourn on, a finder that finds nothing is asked before each import, and reads
what Python is about to read. Of modules that were there before, it is what their files have then.
Installed packages and the standard library do not change, and are not read.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

Stamp = tuple[int, int, int, int]
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_LIBRARIES = (os.path.dirname(os.__file__) + os.sep, os.path.dirname(__file__) + os.sep)


@dataclass(frozen=True, slots=True)
class Text:
    """What a module's file contained, and by which marks of the file a change shows."""

    file: str
    stamp: Stamp
    data: bytes | None  # None: it could not be read
    was_imported: bool = False  # certainly, not only by what its functions look like

    @classmethod
    def of(cls, file: str, loader: Any, was_imported: bool = False) -> Text:
        """As it is now."""
        stamp = stamp_of(file, loader)  # before it is read: what changes meanwhile is seen later
        return cls(file, stamp, _read(file, loader), was_imported)


_texts: dict[str, Text] = {}


def take(name: str, file: str) -> Text | None:
    """What was kept of a module. It is given once: the next import keeps its own."""
    text = _texts.pop(name, None)
    return text if text is not None and text.file == file else None


@functools.cache
def can_change(file: str) -> bool:
    """Whether it is source that is neither installed nor Python's own, nor ours."""
    is_library = file.startswith(_LIBRARIES) or any(folder in file for folder in _INSTALLED)
    return file.endswith(".py") and not is_library


def stamp_of(file: str, loader: Any = None) -> Stamp:
    """What changes when the file does; of a module in an archive, when the archive does."""
    try:
        found = os.stat(getattr(loader, "archive", file))
    except OSError:
        return (0, 0, 0, 0)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def watch() -> None:
    """Keep the text of what is imported from now on, and of what has been."""
    if _Watch in sys.meta_path:
        return
    sys.meta_path.insert(0, _Watch)
    for name, module in list(sys.modules.items()):
        facts = getattr(module, "__dict__", {})  # attributes may import more
        file = facts.get("__file__")
        if isinstance(file, str) and can_change(file):
            _texts[name] = Text.of(file, getattr(facts.get("__spec__"), "loader", None))


class _Watch:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        try:
            _note(name, path)
        except Exception:  # whatever is wrong with the module, Python says it
            _texts.pop(name, None)


def _note(name: str, path: Sequence[str] | None) -> None:
    if name in sys.stdlib_module_names or (path and not _may_change(next(iter(path)))):
        return
    spec = PathFinder.find_spec(name, path)
    if spec is not None and spec.origin and spec.has_location and can_change(spec.origin):
        _texts[name] = Text.of(spec.origin, spec.loader, was_imported=True)


@functools.cache
def _may_change(folder: str) -> bool:
    return can_change(os.path.join(folder, "module.py"))


def _read(file: str, loader: Any) -> bytes | None:
    try:
        if hasattr(loader, "archive"):
            return bytes(loader.get_data(file))
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return None
