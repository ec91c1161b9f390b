"""In the caller: the code of the user's modules as it was imported, sent along with every call.

A worker imports modules by name, and their files may have changed since the caller imported them.
So the source of every module of the user's is kept from the moment sojourn first sees it (when a
function is decorated, at the latest at its first call), and workers run that. Whether a file that
changed in between is what was imported shows in the functions in memory; if it is not, the worker
refuses to import the module. Installed packages and the standard library stay with the disk.
"""

from __future__ import annotations

import functools
import importlib.util
import linecache
import marshal
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import msgspec
import numpy as np

from sojourn.engines.code_serving import PROGRAM, Bundle, CallersLoader, ModuleCode, served

_MAX_CELL_LINES = 20_000
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_LIBRARIES = (
    os.path.dirname(os.__file__) + os.sep,
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
)
_lock = threading.Lock()
_others: dict[str, int] = {}  # modules that are none of the user's: there are thousands


def note() -> None:
    """Keep the source of the modules that are loaded now, before anybody changes their files."""
    with _lock:
        for name, module, file in _users_modules():
            _keep(name, module, file)


def packed(function: Callable[..., Any]) -> np.ndarray:
    """The code that a worker needs for a function, for `code_serving.install`."""
    modules = dict(served())
    with _lock:
        for name, module, file in _users_modules():
            modules[name] = _as_imported(name, module, file)
    bundle = Bundle(list(modules.values()), _cells(function))
    return np.frombuffer(msgspec.msgpack.encode(bundle), np.uint8)


def is_kept(module: ModuleType) -> bool:
    """Whether a worker gets this module from us."""
    return _file_of(module.__name__, module) is not None


# -- which modules -----------------------------------------------------------------------------


def _users_modules() -> Iterator[tuple[str, ModuleType, str]]:
    """Name, module and file of those that can change while they are in use."""
    for name, module in list(sys.modules.items()):
        if _others.get(name) == id(module):
            continue
        file = _file_of(name, module)
        if file is not None:
            yield name, module, file
        elif name != PROGRAM:
            _others[name] = id(module)


def _file_of(name: str, module: Any) -> str | None:
    """Where a module of the user's came from; None if it is none of theirs, or has no file."""
    if not isinstance(module, ModuleType):
        return None
    facts = vars(module)  # not attributes: some modules import more when asked for one
    file, spec = facts.get("__file__"), facts.get("__spec__")
    if not isinstance(file, str) or not _can_change(file):
        return None
    is_imported = spec is not None and spec.name == name and _has_parent(name)
    return file if is_imported or name == PROGRAM else None


def _has_parent(name: str) -> bool:
    parent = name.rpartition(".")[0]
    return not parent or parent in sys.modules


@functools.cache
def _can_change(file: str) -> bool:
    """Whether it is source that is neither installed nor Python's own, nor ours."""
    is_library = file.startswith(_LIBRARIES) or any(folder in file for folder in _INSTALLED)
    return file.endswith(".py") and not is_library


# -- what they were ----------------------------------------------------------------------------


class _Kept:
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
        is_unchanged = self._stamp == _stamp(self._file)
        return self._is_trusted and (is_unchanged or self.agrees_with(module))

    def agrees_with(self, module: ModuleType) -> bool:
        """Whether it has the code of all functions of the module in memory."""
        return self._code is not None and all(
            self._outline(code) in self._codes for code in _in_memory(module, self._file)
        )

    @functools.cached_property
    def as_module(self) -> ModuleCode:
        search = None if self._spec is None else self._spec.submodule_search_locations
        return ModuleCode(
            self._name,
            self._file,
            importlib.util.decode_source(self._data or b""),
            b"" if self._name == PROGRAM else marshal.dumps(self._code),
            None if search is None else list(search),
        )

    def differs_from(self, other: _Kept) -> bool:
        return self._data != other._data

    def trust(self) -> None:
        self._is_trusted = True

    @functools.cached_property
    def _code(self) -> CodeType | None:
        if self._data is None:
            return None
        loader = None if self._spec is None else self._spec.loader
        make: Any = getattr(loader, "source_to_code", _plain_compile)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were shown when it was imported
                return make(self._data, self._file)  # type: ignore[no-any-return]
        except (SyntaxError, ValueError):
            return None  # half of a file

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
        if not cached or sys.dont_write_bytecode or not os.access(cached, os.W_OK):
            return False
        with open(cached, "rb") as file:
            _, flags, *compiled = (int.from_bytes(file.read(4), "little") for _ in range(4))
        mtime, _, size, _ = self._stamp
        return flags == 0 and compiled != [mtime // 10**9 & 0xFFFFFFFF, size & 0xFFFFFFFF]


_kept: dict[str, _Kept] = {}


def _keep(name: str, module: ModuleType, file: str) -> _Kept:
    kept = _kept.get(name)
    if kept is None or not kept.is_of(module):
        kept = _kept[name] = _Kept(name, module, file)
    return kept


def _as_imported(name: str, module: ModuleType, file: str) -> ModuleCode:
    loader = getattr(module.__spec__, "loader", None)
    if isinstance(loader, CallersLoader):
        return loader.module  # we are a worker
    kept = _keep(name, module, file)
    if kept.is_what_runs(module):
        return kept.as_module
    now = _Kept(name, module, file)
    if now.differs_from(kept) and now.agrees_with(module):
        now.trust()
        _kept[name] = now
        return now.as_module
    return ModuleCode(
        name,
        file,
        refusal=f"module {name!r} is not what {file} contains: the file has changed since the "
        "module was imported, before sojourn saw it. Reload the module or restart the program",
    )


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


# -- code without files ------------------------------------------------------------------------


def _cells(function: Callable[..., Any]) -> dict[str, str]:
    """The text of notebook cells and prompts, which a worker cannot find on the disk."""
    if getattr(plain(function), "__globals__", {}).get("__name__") != PROGRAM:
        return {}
    found: dict[str, str] = {}
    lines_left = _MAX_CELL_LINES
    for filename, entry in reversed(list(linecache.cache.items())):
        # Entries of real files carry a time of modification. Generated code is nobody's source.
        if len(entry) != 4 or entry[1] is not None or " generated " in filename:
            continue
        lines_left -= len(entry[2])
        if lines_left < 0:
            break
        found[filename] = "".join(entry[2])
    return found


def plain(function: Callable[..., Any]) -> Any:
    """The Python function behind a bound method or a partial."""
    while True:
        inner = getattr(function, "__func__", None) or getattr(function, "func", None)
        if inner is None:
            return function
        function = inner


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that does not exist here may hold the other one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
