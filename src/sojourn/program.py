"""Run a user's program in this process, as `python program.py` or `python -m module` would.

The program sees its own `sys.argv`, `sys.path[0]` and `__main__`, and standard input untouched;
its tracebacks show only its own lines. `end()` does what the interpreter does after the last line,
so that a caller can inspect what is left, and restores the caller's standard streams.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import io
import os
import pkgutil
import sys
import threading
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType, TracebackType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# With `python -P`, `sys.path` does not begin with a folder of the program.
_IS_PATH_SAFE: bool = getattr(sys.flags, "safe_path", False)
INTERRUPTED = 130


class ProgramNotFound(Exception):
    """No such file or module exists. The message can be shown to the user."""


@dataclass
class Program:
    """A script or module with its arguments. It can be run once."""

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    _before: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def run(self) -> int:
        """Run it to its end, print the traceback if it fails, and return its exit code."""
        try:
            code, globals_, argv0, folder = self._find()
        except (SyntaxError, ValueError) as error:
            _show(error)
            return 1
        self._before = {
            "argv": sys.argv,
            "path": list(sys.path),
            "main": sys.modules.get("__main__"),
            "streams": (sys.stdout, sys.stderr),
        }
        sys.argv = [argv0, *self.args]
        if not _IS_PATH_SAFE:
            sys.path[0:1] = [folder]
        main = ModuleType("__main__")
        main.__dict__.update(globals_)
        sys.modules["__main__"] = main
        try:
            exec(code, main.__dict__)
        except SystemExit as ending:
            return _exit_code(ending)
        except KeyboardInterrupt as interrupt:
            _show(interrupt)
            return INTERRUPTED
        except BaseException as error:
            _show(error)
            return 1
        return 0

    def end(self) -> None:
        """Do what the interpreter does at exit: wait for threads, run `atexit`, drop `__main__`."""
        # `_shutdown` is private, but it is the only way to end thread pools before waiting for
        # their threads; multiprocessing ends its children in the same way.
        try:
            threading._shutdown()  # type: ignore[attr-defined]
        except KeyboardInterrupt as interrupt:
            _show(interrupt)  # like Python, continue without waiting for the threads
        atexit._run_exitfuncs()
        flush()
        sys.stdout, sys.stderr = self._before.get("streams", (sys.stdout, sys.stderr))
        # Keep `__main__` if threads outlive the program, because they use its globals.
        here = threading.current_thread()
        if not any(t is not here and t.is_alive() for t in threading.enumerate()):
            sys.last_value = sys.last_traceback = None
            main = self._before.get("main")
            if main is not None:
                sys.modules["__main__"] = main
            gc.collect()
        sys.argv = self._before.get("argv", sys.argv)
        sys.path[:] = self._before.get("path", sys.path)

    def _find(self) -> tuple[CodeType, dict[str, Any], str, str]:
        """Return the code, its initial globals, `argv[0]` and `path[0]`."""
        if self.is_module:
            return self._find_module()
        path = self.target
        # A folder or an archive that contains a `__main__` is a program, too.
        importer = pkgutil.get_importer(path) if os.path.exists(path) else None
        spec = importer.find_spec("__main__") if importer is not None else None
        if spec is not None:
            return _code_of(spec), _globals_of(spec, ""), path, os.path.abspath(path)
        file_path = os.path.abspath(path)
        try:
            with io.open_code(file_path) as file:
                source = file.read()
        except OSError as error:
            raise ProgramNotFound(f"can't open file {path!r}: {error.strerror}") from None
        globals_: dict[str, Any] = {
            "__file__": file_path,
            "__cached__": None,
            "__spec__": None,
            "__package__": None,
            "__annotations__": {},
        }
        folder = os.path.dirname(os.path.realpath(path))
        return compile(source, file_path, "exec", dont_inherit=True), globals_, path, folder

    def _find_module(self) -> tuple[CodeType, dict[str, Any], str, str]:
        folder = os.getcwd()
        # Search as the program would: from the current folder, not from sojourn's.
        if not _IS_PATH_SAFE and (not sys.path or sys.path[0] != folder):
            sys.path.insert(0, folder)
            inserted = True
        else:
            inserted = False
        try:
            spec = importlib.util.find_spec(self.target)
            if spec is not None and spec.submodule_search_locations is not None:
                package, spec = spec, importlib.util.find_spec(f"{self.target}.__main__")
                if spec is None:
                    raise ProgramNotFound(
                        f"{package.name!r} is a package and cannot be run: it has no __main__"
                    )
        except ImportError as error:
            raise ProgramNotFound(f"error while finding {self.target!r}: {error}") from None
        finally:
            if inserted:
                sys.path.remove(folder)
        if spec is None:
            raise ProgramNotFound(f"no module named {self.target!r}")
        argv0 = spec.origin or self.target
        return _code_of(spec), _globals_of(spec, spec.parent or ""), argv0, folder


def _code_of(spec: ModuleSpec) -> CodeType:
    try:
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    except (AttributeError, ImportError):
        code = None
    if not isinstance(code, CodeType):
        raise ProgramNotFound(f"no code found for {spec.name!r}")
    return code


def _globals_of(spec: ModuleSpec, package: str) -> dict[str, Any]:
    return {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__spec__": spec,
        "__package__": package,
        "__annotations__": {},
    }


def _exit_code(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code & 0xFF
    flush()
    print(ending.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Print a traceback as Python would, without the lines of sojourn."""
    flush()
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = without_own_lines(each.__traceback__)
        todo += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    sys.excepthook(type(error), error, error.__traceback__)


def without_own_lines(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of sojourn."""
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_HERE):
            kept.append(traceback)
        traceback = traceback.tb_next
    rebuilt: TracebackType | None = None
    for each in reversed(kept):
        rebuilt = TracebackType(rebuilt, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return rebuilt


def flush() -> None:
    """Flush standard output and error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # a program may have closed or replaced the stream
            pass
