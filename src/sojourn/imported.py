"""The source text of the user's modules as they were imported: files change while programs run.

Once sojourn is imported, a finder in `sys.meta_path` is called before each import. It finds no
module itself, but reads the file that Python is about to read. For modules imported earlier, the
text is what their files contain when sojourn is imported. Installed packages and the standard
library do not change, and are not read.
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
    """The text of a module's file, and a stamp by which a change of the file is noticed."""

    file: str
    stamp: Stamp
    data: bytes | None  # None: it could not be read
    was_imported: bool = False  # whether this is certainly the text that Python imported

    @classmethod
    def of(cls, file: str, loader: Any, was_imported: bool = False) -> Text:
        """Read the file as it is now."""
        stamp = stamp_of(file, loader)  # before reading, so that a change meanwhile is noticed
        return cls(file, stamp, _read(file, loader), was_imported)


_texts: dict[str, Text] = {}


def take(name: str, file: str) -> Text | None:
    """Return the kept text of a module and forget it: the next import keeps a new one."""
    text = _texts.pop(name, None)
    return text if text is not None and text.file == file else None


@functools.cache
def can_change(file: str) -> bool:
    """Whether a file is Python source that is neither installed, nor Python's own, nor ours."""
    is_library = file.startswith(_LIBRARIES) or any(folder in file for folder in _INSTALLED)
    return file.endswith(".py") and not is_library


def stamp_of(file: str, loader: Any = None) -> Stamp:
    """Return a stamp that changes with the file, or with the archive that contains the module."""
    try:
        found = os.stat(getattr(loader, "archive", file))
    except OSError:
        return (0, 0, 0, 0)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def watch() -> None:
    """Keep the text of all modules imported from now on, and of those imported already."""
    if _Watch in sys.meta_path:
        return
    sys.meta_path.insert(0, _Watch)
    for name, module in list(sys.modules.items()):
        facts = getattr(module, "__dict__", {})  # reading attributes may import more modules
        file = facts.get("__file__")
        if isinstance(file, str) and can_change(file):
            _texts[name] = Text.of(file, getattr(facts.get("__spec__"), "loader", None))


class _Watch:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        try:
            _note(name, path)
        except Exception:  # Python reports whatever is wrong with the module
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
