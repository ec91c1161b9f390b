"""One version of a module's file, and whether the module in memory was made from it."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import sys
import time
import warnings
import weakref
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from sojourn.engines.code_serving import PROGRAM, ModuleCode
from sojourn.engines.module_outlines import (
    constants,
    has,
    in_memory,
    is_same,
    outline,
    place,
    within,
)
from sojourn.imported import Text, stamp_of


class Version:
    """The text of a module's file at the time when sojourn read it."""

    def __init__(self, name: str, module: ModuleType, file: str, text: Text | None = None) -> None:
        """Use `text` if it was kept at the import; otherwise read the file now."""
        self._name = name
        self._file = file
        self._module = weakref.ref(module)
        self._spec = module.__spec__
        self._loader: Any = getattr(self._spec, "loader", None)
        text = text or Text.of(file, self._loader)
        self._stamp, self._data = text.stamp, text.data
        self._is_trusted = text.was_imported
        self._is_newer = not self._is_trusted and self._is_newer_than_bytecode()

    def is_of(self, module: ModuleType) -> bool:
        """Whether this is the same module, not reloaded since (a reload makes a new spec)."""
        return self._module() is module and self._spec is module.__spec__

    def was_imported(self, module: ModuleType) -> bool:
        """Whether the module in memory was made from this text."""
        if not self._is_trusted:
            self._is_trusted = self._was_there_before_us() or (
                self.agrees_with(module) and not self._is_newer
            )
        return self._is_trusted

    def agrees_with(self, module: ModuleType) -> bool:
        """Whether this text contains the code of all functions of the module in memory."""
        return self._code is not None and all(
            self._outline(code) in self._codes for code in in_memory(module, self._file)
        )

    def has_replaced(self, older: Version, module: ModuleType) -> bool:
        """Whether the module was reloaded in place, as IPython's autoreload does."""
        if self._data == older._data or not self.agrees_with(module):
            return False
        if not older.agrees_with(module):
            return True
        before, now = constants(older._data or b""), constants(self._data or b"")
        new = [p for p in now if p not in before or not is_same(before[p], now[p])]
        return bool(new) and all(has(module, path, now[path]) for path in new)

    @functools.cached_property
    def as_module(self) -> ModuleCode:
        """The module in the form that is sent to a worker."""
        search = None if self._spec is None else self._spec.submodule_search_locations
        return ModuleCode(
            self._name,
            self._file,
            importlib.util.decode_source(self._data or b""),
            b"" if self._name == PROGRAM else marshal.dumps(self._code),
            None if search is None else list(search),
        )

    def trust(self) -> None:
        """Mark this version as the one that runs."""
        self._is_trusted = True

    @functools.cached_property
    def _code(self) -> CodeType | None:
        if self._data is None:
            return None
        compiled = self._compiled_before(self._loader)
        if compiled is not None:
            return compiled
        make = getattr(self._loader, "source_to_code", _plain_compile)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were shown at the import
                return make(self._data, self._file)
        except (SyntaxError, ValueError):
            return None  # for example, a file that is half written

    def _compiled_before(self, loader: Any) -> CodeType | None:
        """Return Python's cached bytecode, quicker than compiling, if the file has not changed."""
        if type(loader) is not SourceFileLoader or self.has_changed():
            return None
        # Python compares whole seconds: bytecode as young as the file may be of an earlier text.
        if stamp_of(getattr(self._spec, "cached", None) or "")[0] < self._stamp[0] + 2 * 10**9:
            return None
        try:
            code = loader.get_code(loader.name)
        except (ImportError, OSError, EOFError, SyntaxError, ValueError):
            return None
        return None if self.has_changed() else code

    def has_changed(self) -> bool:
        """Whether the file has changed since it was read."""
        return self._stamp != stamp_of(self._file, self._loader)

    @functools.cached_property
    def _codes(self) -> frozenset[Any]:
        return frozenset(map(self._outline, within(self._code)))

    def _outline(self, code: CodeType) -> Any:
        is_known = self._loader is None or hasattr(self._loader, "source_to_code")
        return outline(code) if is_known or hasattr(self._loader, "archive") else place(code)

    def _was_there_before_us(self) -> bool:
        mtime, ctime, _, _ = self._stamp
        return self._code is not None and 0 < max(mtime, ctime) < _process_started()

    def _is_newer_than_bytecode(self) -> bool:
        """Whether the file changed after Python compiled it. A changed constant shows only here."""
        cached = getattr(self._spec, "cached", None)
        if not cached or sys.dont_write_bytecode:
            return False
        if not os.access(os.path.dirname(cached), os.W_OK):
            return False  # Python could not have updated the bytecode
        data = _read(cached) or b""
        flags, *compiled = (int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12))
        mtime, _, size, _ = self._stamp
        if flags or compiled == [mtime // 10**9 & 0xFFFFFFFF, size & 0xFFFFFFFF]:
            return False
        try:
            return bool(marshal.loads(data[16:]) != self._code)  # equal if only touched
        except (EOFError, ValueError, TypeError):
            return False


def _plain_compile(data: bytes, file: str) -> CodeType:
    return compile(data, file, "exec", dont_inherit=True)


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return None


@functools.cache
def _process_started() -> int:
    """Return when this process started, in ns of the files' clock; 0 if that is unknown."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - age) * 10**9)
