"""One text of a module's file, and whether it is what the module in memory was made of."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any

from sojourn.engines.code_serving import PROGRAM, ModuleCode


class Version:
    """The text of a module's file when sojourn saw it."""

    def __init__(self, name: str, module: ModuleType, file: str) -> None:
        self._name = name
        self._file = file
        self._module = weakref.ref(module)
        self._spec = module.__spec__
        self._stamp = _stamp(file)  # before it is read: what changes meanwhile is seen later
        self._data = _read(file)
        self._is_newer = self._is_newer_than_bytecode()
        self._is_trusted = False

    def is_of(self, module: ModuleType) -> bool:
        """False after a reload, which makes another spec."""
        return self._module() is module and self._spec is module.__spec__

    def is_what_runs(self, module: ModuleType) -> bool:
        """Whether the module in memory was made of this text."""
        if not self._is_trusted:
            self._is_trusted = self._was_there_before_us() or (
                self.agrees_with(module) and not self._is_newer
            )
        # A file that changes later may be reloaded in place, as IPython's autoreload does.
        return self._is_trusted and (not self._has_changed() or self.agrees_with(module))

    def agrees_with(self, module: ModuleType) -> bool:
        """Whether it has the code of all functions of the module in memory."""
        return self._code is not None and all(
            self._outline(code) in self._codes for code in _in_memory(module, self._file)
        )

    @functools.cached_property
    def as_module(self) -> ModuleCode:
        """As a worker gets it."""
        search = None if self._spec is None else self._spec.submodule_search_locations
        return ModuleCode(
            self._name,
            self._file,
            importlib.util.decode_source(self._data or b""),
            b"" if self._name == PROGRAM else marshal.dumps(self._code),
            None if search is None else list(search),
        )

    def differs_from(self, other: Version) -> bool:
        """Whether the text is another."""
        return self._data != other._data

    def trust(self) -> None:
        """It is known to be what runs."""
        self._is_trusted = True

    @functools.cached_property
    def _code(self) -> CodeType | None:
        if self._data is None:
            return None
        loader: Any = None if self._spec is None else self._spec.loader
        compiled = self._compiled_before(loader)
        if compiled is not None:
            return compiled
        make = getattr(loader, "source_to_code", _plain_compile)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were shown when it was imported
                return make(self._data, self._file)
        except (SyntaxError, ValueError):
            return None  # half of a file

    def _compiled_before(self, loader: Any) -> CodeType | None:
        """What Python keeps of the import, which is quicker, while the file has not changed."""
        if type(loader) is not SourceFileLoader or self._has_changed():
            return None
        # Python counts in seconds: bytecode as young as the file may be of a text before it.
        if _stamp(getattr(self._spec, "cached", None) or "")[0] < self._stamp[0] + 2 * 10**9:
            return None
        try:
            code = loader.get_code(loader.name)
        except (ImportError, OSError, EOFError, SyntaxError, ValueError):
            return None
        return None if self._has_changed() else code

    def _has_changed(self) -> bool:
        return self._stamp != _stamp(self._file)

    @functools.cached_property
    def _codes(self) -> frozenset[Any]:
        return frozenset(map(self._outline, _within(self._code)))

    def _outline(self, code: CodeType) -> Any:
        # What an unknown loader has rewritten, such as pytest's, has only this in common.
        is_known = self._spec is None or hasattr(self._spec.loader, "source_to_code")
        return code if is_known else (code.co_name, code.co_firstlineno)

    def _was_there_before_us(self) -> bool:
        mtime, ctime, _, _ = self._stamp
        return self._code is not None and 0 < max(mtime, ctime) < _process_started()

    def _is_newer_than_bytecode(self) -> bool:
        """Whether the file changed after Python compiled it. Constants show nowhere else."""
        cached = getattr(self._spec, "cached", None)
        if not cached or sys.dont_write_bytecode:
            return False
        if not os.access(os.path.dirname(cached), os.W_OK):
            return False  # Python could not have replaced it
        data = _read(cached) or b""
        flags, *compiled = (int.from_bytes(data[at : at + 4], "little") for at in (4, 8, 12))
        mtime, _, size, _ = self._stamp
        if flags or compiled == [mtime // 10**9 & 0xFFFFFFFF, size & 0xFFFFFFFF]:
            return False
        try:
            return bool(marshal.loads(data[16:]) != self._code)  # it may just have been touched
        except (EOFError, ValueError, TypeError):
            return False


def _in_memory(module: ModuleType, file: str) -> Iterator[CodeType]:
    """The code of the functions and methods that the module has defined."""
    for value in list(vars(module).values()):
        is_class = isinstance(value, type) and value.__module__ == module.__name__
        for member in list(vars(value).values()) if is_class else [value]:
            function = _function_behind(member)
            if function is not None and function.__code__.co_filename == file:
                yield function.__code__


def _function_behind(value: Any) -> FunctionType | None:
    """The innermost function of a decorated one, a method or a property."""
    inner = value
    while inner is not None:
        value = inner
        if isinstance(value, staticmethod | classmethod):
            inner = value.__func__
        elif isinstance(value, property):
            inner = value.fget
        else:
            try:
                inner = object.__getattribute__(value, "__dict__").get("__wrapped__")
            except Exception:  # has none, or does something else when it is asked
                inner = None
    return value if isinstance(value, FunctionType) else None


def _within(code: CodeType | None) -> Iterator[CodeType]:
    if code is not None:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from _within(constant)


def _plain_compile(data: bytes, file: str) -> CodeType:
    return compile(data, file, "exec", dont_inherit=True)


def _stamp(file: str) -> tuple[int, int, int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return (0, 0, 0, 0)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return None


@functools.cache
def _process_started() -> int:
    """When, in nanoseconds of the clock that files have; 0 if the system does not say."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - age) * 10**9)
