"""In a worker: imports run the caller's code, even if the files have changed since.

`code_capture.py` is the caller's half.
"""

from __future__ import annotations

import linecache
import marshal
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType

import msgspec
import numpy as np

from sojourn.errors import CodeChanged

# The program itself is never imported: its functions are pickled by value.
PROGRAM = "__main__"


class ModuleCode(msgspec.Struct, frozen=True, array_like=True):
    """One module as its caller imported it."""

    name: str
    file: str = ""  # empty for a namespace package, which only has `search`
    source: str = ""
    code: bytes = b""  # marshalled
    search: list[str] | None = None  # the folders where a package finds its submodules
    refusal: str = ""  # why the caller's code is not available


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """All code that is sent with a call or a builder."""

    modules: list[ModuleCode]
    cells: dict[str, str]  # name -> text of code that was never in a file


def packed_bundle(bundle: Bundle) -> bytes:
    """Serialize a bundle, with `marshal` because file names may hold bytes that are no text."""
    return marshal.dumps(msgspec.to_builtins(bundle, builtin_types=(bytes,)))


def install(packed: np.ndarray) -> None:
    """Make all later imports in this process use the code of the bundle."""
    bundle = msgspec.convert(marshal.loads(packed.tobytes()), Bundle)
    for name, text in bundle.cells.items():
        _remember(name, text)
    modules = {module.name: module for module in bundle.modules}
    program = modules.pop(PROGRAM, None)
    if program is not None:
        _remember(program.file, program.source)
    sys.meta_path.insert(0, _CallersModules(modules))


def served() -> Mapping[str, ModuleCode]:
    """Return the modules that this process itself received from its caller, by name."""
    return {
        name: module
        for finder in reversed(sys.meta_path)
        if isinstance(finder, _CallersModules)
        for name, module in finder.modules.items()
    }


class CallersLoader(SourceFileLoader):
    """Executes the code that the caller imported. Its data files are read from the disk."""

    def __init__(self, module: ModuleCode) -> None:
        super().__init__(module.name, module.file)
        self.module = module

    def get_code(self, fullname: str) -> CodeType:
        if self.module.refusal:
            raise CodeChanged(self.module.refusal)
        # Otherwise tracebacks, `inspect` and AutoGraph would read the file.
        _remember(self.module.file, self.module.source)
        return marshal.loads(self.module.code)  # type: ignore[no-any-return]

    def get_source(self, fullname: str) -> str:
        return self.module.source


class _CallersModules(MetaPathFinder):
    def __init__(self, modules: Mapping[str, ModuleCode]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        module = self.modules.get(fullname)
        if module is None:
            return None
        if not module.file:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = module.search
            return spec
        return spec_from_file_location(
            fullname,
            module.file,
            loader=CallersLoader(module),
            submodule_search_locations=module.search,
        )


def _remember(name: str, text: str) -> None:
    # linecache never compares an entry without a modification time with a file.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
