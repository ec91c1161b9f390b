"""The files of one run as programs: shared names, factories, calls and mentions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Concatenate, ParamSpec

from sojourn.audit.lint.definitions import Definition, Definitions
from sojourn.audit.lint.module import Function, Module, is_self, last_name, own_uses
from sojourn.audit.lint.names import Names
from sojourn.audit.lint.problem import Problem

P = ParamSpec("P")


def asked_once(
    answer: Callable[Concatenate[Module, P], bool],
) -> Callable[Concatenate[Module, P], bool]:
    """Cache the answers of a function about a file and its nodes.

    A recursive call for an answer that is still being computed returns False.
    """

    def ask(module: Module, /, *about: P.args, **more: P.kwargs) -> bool:
        key = (answer, module, *about)
        known = module.program.answers
        if key not in known:
            known[key] = False
            known[key] = answer(module, *about, **more)
        return known[key]

    return ask


class Program(Definitions):
    """All files of a run, which may import one another, with cached answers about them."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.trees = dict(trees)
        super().__init__({path: Module(tree, path, self) for path, tree in trees.items()})
        self.factories: set[ast.AST] = set()  # functions that return a session that they opened
        self.factory_names: set[str] = set()
        self.openings: dict[ast.AST, list[ast.Call]] = {}  # where factories open their sessions
        self.flow_problems: dict[str, frozenset[Problem]] = {}  # by file, filled on demand
        self.silenced: dict[str, dict[int, frozenset[str]]] = {}  # by file and line
        self.effort = 0  # number of uses that the current question has led to
        # Functions that return a session in a tuple: the tuple's length and the session's index.
        self.tuple_factories: dict[ast.AST, tuple[int, int]] = {}
        self.fetched: dict[Function, frozenset[str]] = {}  # the parameters that a function fetches
        self.answers: dict[tuple[object, ...], bool] = {}  # the cache of `asked_once`
        self._share_tensorflow()

    def _share_tensorflow(self) -> None:
        """Resolve imports such as `from ..compat import tf` to what that file means by the name."""
        for _ in range(2):
            for module in self.modules.values():
                for name, (level, dotted_name) in module.names.imports.items():
                    there, _, last = dotted_name.rpartition(".")
                    home = self._file(module.path, level, there) if level or there else None
                    meaning = home.names.meaning_of(last) if home is not None else None
                    if meaning is not None:
                        module.names.adopt(name, meaning)

    def with_file(self, path: str, tree: ast.Module) -> Program:
        """A copy of the program in which one file has another text."""
        program = Program({**self.trees, path: tree})
        program.silenced = {p: lines for p, lines in self.silenced.items() if p != path}
        return program

    def all_calls_of(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """Every call of this function; none if it may have calls that cannot be followed."""
        calls = self.calls_named(function.name)
        found = [(m, c, self.definition(m, c.func)) for m, c in calls if not m.is_foreign(c.func)]
        if any(definition is None for _, _, definition in found):
            return []
        return [(m, c) for m, c, definition in found if definition and definition.node is function]

    def mentions_of_method(self, name: str, is_property: bool) -> list[tuple[Module, ast.expr]]:
        """Every call of a method of this name, or every use of such a property, on any object."""
        if not is_property:
            return [*self.calls_named(name)]
        modules = self.modules.values()
        found = [(m, n) for m in modules for n in m.attributes.get(name, ())]
        return [(m, n) for m, n in found if isinstance(n.ctx, ast.Load)]

    def ends_keras(self, module: Module) -> bool:
        """Whether this program drops or closes the session that Keras keeps."""
        return any(other.ends_keras for other in self.together_with(module))

    def together_with(self, module: Module) -> Iterator[Module]:
        """The files of the same program, including this one."""
        group = self._group[module.path]
        for path, other in self.modules.items():
            if self._group[path] == group:
                yield other

    def calls_of(self, function: Function) -> Iterator[tuple[Module, ast.Call]]:
        """Every call that surely calls this function; for `__init__`, the calls of its class."""
        for name in {function.name, *self.aliases.get(function.name, ())}:
            for module, call in self.calls_named(name):
                found = self.callee(module, call)
                if found is not None and (
                    found.node is function or self._is_overridden(module, call, found, function)
                ):
                    yield module, call
        for name in self._makers_of(function):
            for module, call in self.calls_named(name):
                found = self.definition(module, call.func)
                if found is None or not isinstance(found.node, ast.ClassDef):
                    continue
                made = self.constructor(found)
                if made is not None and made.node is function:
                    yield module, call

    def _is_overridden(
        self, module: Module, call: ast.Call, found: Definition, function: Function
    ) -> bool:
        """Whether `self.train_epoch()` in a base class calls this function of a derived class."""
        is_own = isinstance(call.func, ast.Attribute) and is_self(call.func.value)
        base = module.class_of(call)
        if not is_own or base is None or found.node.name != function.name:
            return False
        below = [c for c, above in self._ancestors.items() if base.name in above]
        return any(function in c.body for c in below)

    def _makers_of(self, function: Function) -> set[str]:
        """The names of the classes of which this function may be the constructor."""
        if function.name != "__init__":
            return set()
        classes = [c for m in self.modules.values() for c in m.all_classes]
        owners = {c.name for c in classes if function in c.body}
        return owners | {c.name for c, above in self._ancestors.items() if above & owners}

    @cached_property
    def _mentions(self) -> dict[str, set[str]]:
        """The names that each function mentions, by the function's and its class's name."""
        found: dict[str, set[str]] = {}
        for module in self.modules.values():
            for node in module.parents:
                if isinstance(node, ast.Name | ast.Attribute):
                    scope = module.scope_of(node)
                    owner = module.class_of(scope) if isinstance(scope, Function) else None
                    for name in (getattr(scope, "name", ""), owner.name if owner else ""):
                        found.setdefault(name, set()).add(last_name(node))
        return found

    def mentions(self, name: str) -> bool:
        """Whether any code of the program mentions this name."""
        return any(name in names for names in self._mentions.values())

    def reachable(self, names: set[str]) -> set[str]:
        """Every name that code that mentions these may reach, whatever the names stand for."""
        found: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self._mentions.get(name, ())
        return found

    def mentions_of(self, module: Module, name: str) -> Iterator[tuple[Module, ast.expr]]:
        """The uses in other files of the program of a name of this file: `sess`, `model.sess`."""
        for other in self.together_with(module):
            if other is module:
                continue
            for node in other.attributes.get(name, ()):
                if isinstance(node.value, ast.Name) and node.value.id in other.names.imports:
                    yield other, node
            if name in other.names.imports or other.names.star_imports:
                for use in (*own_uses(other.tree, name), *other.free_uses(other.tree, name)):
                    yield other, use

    def closes(self, module: Module, owner: ast.ClassDef, attribute: str) -> bool:
        """Whether another file of the program may close the session on that attribute."""
        for closed, by in self._closings[self._group[module.path]].get(attribute, ()):
            if closed is not module and (by is None or self.is_related(by, owner)):
                return True
        return False

    @cached_property
    def _group(self) -> dict[str, int]:
        return _groups({path: module.names for path, module in self.modules.items()})

    @cached_property
    def _closings(self) -> dict[int, dict[str, list[tuple[Module, ast.ClassDef | None]]]]:
        found: dict[int, dict[str, list[tuple[Module, ast.ClassDef | None]]]] = {}
        for path, module in self.modules.items():
            here = found.setdefault(self._group[path], {})
            for node in module.closings():
                by = module.class_of(node) if is_self(node.value) else None
                here.setdefault(node.attr, []).append((module, by))
        return found


def _groups(files: Mapping[str, Names]) -> dict[str, int]:
    """The group of each file. Imports, compared by the parts of their names, never cross groups.

    A folder often holds many programs: if one of them closes `self.sess`, that proves nothing
    about another.
    """
    by_name: dict[str, list[str]] = {}
    for path in files:
        pure = PurePath(path)
        name = pure.parent.name if pure.stem == "__init__" else pure.stem
        by_name.setdefault(name, []).append(path)
    found = {path: {path} for path in files}
    for path, names in files.items():
        imported = [name for _, name in (*names.imports.values(), *names.star_imports)]
        for part in {part for name in imported for part in name.split(".")}:
            for other in by_name.get(part, ()):
                mine, theirs = found[path], found[other]
                if mine is not theirs:
                    mine |= theirs
                    found.update(dict.fromkeys(theirs, mine))
    return {path: id(group) for path, group in found.items()}
