"""Find out from its source which TensorFlow a program was written for. Nothing is run or imported.

The program and the modules of its own folder that it imports are read as syntax trees. The result
is one of three eras:

- ``tf1``: it uses names on the plain ``tensorflow`` module that only TensorFlow 1 had.
- ``compat``: it uses ``tensorflow.compat.v1``; its plain ``tensorflow`` is TensorFlow 2.
- ``tf2``: everything else.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sojourn.compat.legacy import marks
from sojourn.errors import SojournError
from sojourn.source import dotted, imported_names, is_python_2, parse
from sojourn.values import Place

Era = Literal["tf1", "compat", "tf2"]
_COMPAT = "tensorflow.compat.v1"
_MOST_FILES = 500  # files read: a program in a huge source tree must not take minutes


class ProgramSyntaxError(SojournError):
    """The program cannot run on Python 3. The message names the line."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The TensorFlow that a program was written for, and the lines that show it.

    `graph` says whether the program needs eager execution off, `dimensions` whether it reads
    the sizes of a shape in TensorFlow 1's form (`x.shape[0].value`).
    """

    era: Era
    graph: bool = False
    signs: tuple[tuple[str, Place], ...] = ()
    files: tuple[str, ...] = ()
    dimensions: bool = False

    def __str__(self) -> str:
        if not self.signs:
            return f"{self.era}: nothing in the program says otherwise"
        name, place = self.signs[0]
        more = f" and {len(self.signs) - 1} more" if len(self.signs) > 1 else ""
        return f"{self.era}: {name} at {place}{more}"


@dataclass(slots=True)
class _Findings:
    tf1: list[tuple[str, Place]] = field(default_factory=list)
    compat: list[tuple[str, Place]] = field(default_factory=list)
    sessions: bool = False
    fetches: bool = False
    switches: bool = False
    eager: bool = False
    dimensions: bool = False


def examine(program: str, folders: Sequence[str] = ()) -> Verdict:
    """Judge `program` and its own modules, searched in `folders` (default: as Python does)."""
    roots = [os.path.abspath(f) for f in folders or _search_path(program)]
    found = _Findings()
    waiting, seen = [os.path.abspath(program)], set[str]()
    while waiting and len(seen) < _MOST_FILES:
        path = waiting.pop()
        if path in seen:
            continue
        try:
            tree = read_tree(path)
        except ProgramSyntaxError:
            # A module that cannot run may be imported in a `try`, or be for another Python.
            if not seen:
                raise
            continue
        seen.add(path)
        _read(tree, path, found)
        waiting.extend(_own_modules(tree, path, roots))
    files = tuple(sorted(seen))
    if found.tf1:
        return Verdict("tf1", True, tuple(found.tf1 + found.compat), files)
    if found.compat:
        wants_graph = found.switches or (found.sessions and found.fetches and not found.eager)
        return Verdict("compat", wants_graph, tuple(found.compat), files, found.dimensions)
    return Verdict("tf2", files=files)


def _search_path(program: str) -> list[str]:
    """Return where Python looks for a program's own modules: its folder and PYTHONPATH."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.dirname(os.path.abspath(program)), *filter(None, named)]


def read_tree(path: str) -> ast.Module:
    """Return the syntax tree of `path`, or raise `ProgramSyntaxError` if it cannot run."""
    try:
        with open(path, "rb") as file:
            return parse(file.read(), path)
    except OSError as error:
        raise ProgramSyntaxError(f"cannot read {path}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise ProgramSyntaxError(_why_not(path, error)) from error


def _why_not(path: str, error: SyntaxError | ValueError) -> str:
    if not isinstance(error, SyntaxError):
        return f"{path} is not Python source: {error}"
    where = f"{path}:{error.lineno}"
    line = (error.text or "").strip()
    shown = f"\n    {line}" if line else ""
    if is_python_2(error, line.encode()):
        return (
            f"{where}: this program is written for Python 2, which this Python cannot run. "
            f"Convert it first, for example with 2to3.{shown}"
        )
    return f"{where}: {error.msg}{shown}"


def _read(tree: ast.Module, path: str, found: _Findings) -> None:
    imported = dict(imported_names(tree, ("tensorflow",)))
    rebound = _rebound_to_compat(tree, imported)
    aliases = _with_assigned(tree, imported)
    for name, line in _imported(tree):
        if name.startswith(marks.TF1_PACKAGES):
            found.tf1.append((name, Place(path, line)))
        elif name.startswith(_COMPAT):
            found.compat.append((name, Place(path, line)))
            _note_use(name.removeprefix(_COMPAT + "."), found)
        elif name.startswith("tensorflow.") and _is_tf1(name.removeprefix("tensorflow.")):
            found.tf1.append((name, Place(path, line)))
            _note_use(name.removeprefix("tensorflow."), found)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("run", "eval", "make_callable"):
                found.fetches = True
            if node.func.attr == "numpy" and not node.args:
                found.eager = found.eager or bool(aliases)
        if not isinstance(node, ast.Attribute):
            continue
        found.dimensions = found.dimensions or _is_size(node)
        if node.attr in marks.TF1_METHODS and "tensorflow" in aliases.values() and not rebound:
            found.tf1.append((f".{node.attr}", Place(path, node.lineno)))
        dotted = _dotted(node, aliases)
        if dotted is None:
            continue
        name = dotted
        place = Place(path, node.lineno)
        root = name.split(".", 1)[0]
        if name.startswith(_COMPAT + ".") or name == _COMPAT:
            found.compat.append((name, place))
            _note_use(name.removeprefix(_COMPAT + "."), found)
        elif root == "tensorflow" and "." in name:
            used = name.removeprefix("tensorflow.")
            if rebound:
                found.compat.append((name, place))
            elif _is_tf1(used):
                found.tf1.append((name, place))
            _note_use(used, found)


def _is_size(node: ast.Attribute) -> bool:
    """Whether this is ``x.shape[0].value`` or ``x.get_shape()[0].value``."""
    if node.attr != "value" or not isinstance(node.value, ast.Subscript):
        return False
    whole = node.value.value
    shape = whole.func if isinstance(whole, ast.Call) else whole
    return isinstance(shape, ast.Attribute) and shape.attr in ("shape", "get_shape")


def _is_tf1(used: str) -> bool:
    head, _, rest = used.partition(".")
    if head in marks.TF1_TOP:
        return True
    return rest.split(".", 1)[0] in marks.TF1_UNDER.get(head, ())


def _note_use(used: str, found: _Findings) -> None:
    parts = set(used.split("."))
    found.sessions = found.sessions or bool(parts & marks.SESSION_NAMES)
    found.switches = found.switches or bool(parts & marks.GRAPH_SWITCHES)
    found.eager = found.eager or bool(parts & marks.EAGER_NAMES)


def _with_assigned(tree: ast.Module, aliases: dict[str, str]) -> dict[str, str]:
    """Return the aliases and the names assigned to parts: ``tf1 = tensorflow.compat.v1``."""
    known = dict(aliases)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            meaning = _dotted(node.value, known)
            for target in node.targets if meaning else ():
                if isinstance(target, ast.Name) and meaning:
                    known.setdefault(target.id, meaning)
    return known


def _rebound_to_compat(tree: ast.Module, aliases: dict[str, str]) -> bool:
    """Whether the file says ``tf = tf.compat.v1``."""
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and _dotted(node.value, aliases) == _COMPAT
        and any(isinstance(t, ast.Name) and t.id in aliases for t in node.targets)
        for node in ast.walk(tree)
    )


def _imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def _dotted(node: ast.Attribute, aliases: dict[str, str]) -> str | None:
    root, _, rest = (dotted(node) or "").partition(".")
    return f"{aliases[root]}.{rest}" if root in aliases else None


def _own_modules(tree: ast.Module, path: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the files below `roots` that this file imports, relative imports included."""
    here = os.path.dirname(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(alias.name.split("."), roots)
        elif isinstance(node, ast.ImportFrom):
            bases = list(roots)
            if node.level:
                base = here
                for _ in range(node.level - 1):
                    base = os.path.dirname(base)
                bases = [base]
            parts = node.module.split(".") if node.module else []
            yield from _files_of(parts, bases)
            for alias in node.names:
                yield from _files_of([*parts, alias.name], bases)


def _files_of(parts: Sequence[str], bases: Sequence[str]) -> Iterator[str]:
    for base in bases:
        for depth in range(1, len(parts) + 1):
            stem = os.path.join(base, *parts[:depth])
            for candidate in (stem + ".py", os.path.join(stem, "__init__.py")):
                if os.path.isfile(candidate):
                    yield os.path.abspath(candidate)
