"""Resolves names of one file to functions and classes of another.

Resolves only names that can be followed: names that an import leads to, methods of `self` or of
an object that the program creates. All others are unknown, and the unknown is never reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from sojourn.audit.lint.module import Function, Module, is_self, last_name, own_nodes, parameters
from sojourn.source import dotted

# Methods of many libraries: a method of the program with such a name is probably not meant.
_COMMON = frozenset(
    "run step fit predict train test get set put add update save load restore close reset start "
    "stop eval evaluate call build sample next render transform score forward append read write "
    "compile init initialize process apply open send join wait info debug log plot show "
    "items".split()
)
_MAPPING = ("map", "imap", "imap_unordered", "starmap")
_POOLS = re.compile("pool|exec", re.IGNORECASE)  # a dataset's `map` runs its function once
_FAR = 3  # most levels of callers whose arguments are searched
_DEEP = 8  # most levels of imports and attributes; deeper than this is a cycle


@dataclass(frozen=True)
class Definition:
    """A function or class of the program, and its file."""

    module: Module
    node: Function | ast.ClassDef
    is_bound: bool = False  # called through an object, which fills the first parameter


class Definitions:
    """All functions and classes of files that may import one another."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self.modules = dict(modules)
        self._definitions: dict[ast.expr, Definition | None] = {}
        self._instances: dict[ast.expr, Definition | None] = {}
        self._files: dict[tuple[PurePath, int, str], Module | None] = {}
        self._imported_by: dict[Module, set[Module]] = {}

    # Names --------------------------------------------------------------------------------

    def definition(self, module: Module, node: ast.expr, depth: int = 0) -> Definition | None:
        """The function, method or class of the program that an expression names."""
        if depth > _DEEP or not isinstance(node, ast.Name | ast.Attribute):
            return None
        if node not in self._definitions:
            self._definitions[node] = None  # a cycle resolves to None
            self._definitions[node] = self._define(module, node, depth)
        return self._definitions[node]

    def _define(
        self, module: Module, node: ast.Name | ast.Attribute, depth: int
    ) -> Definition | None:
        if isinstance(node, ast.Name):
            return self._named(module, node, depth)
        if node.attr not in self._known:
            return None
        text = dotted(node)
        if text is not None and text.split(".")[0] in module.names.imports:
            found = self._imported(module, text, depth)
            if found is not None or text.count(".") == 1:
                return found
        if isinstance(node.value, ast.Call) and dotted(node.value.func) == "super":
            child = module.class_of(node)
            here = Definition(module, child) if child is not None else None
            return here and self._inherited(here, node.attr, depth, bound=True)
        owner = self.definition(module, node.value, depth + 1)
        if owner is not None:
            is_class = isinstance(owner.node, ast.ClassDef)
            return self._method(owner, node.attr, depth, bound=False) if is_class else None
        instance = self.instance_of(module, node.value, depth + 1)
        if instance is not None:
            return self._method(instance, node.attr, depth, bound=True)
        return self._only_method(module, node)

    def callee(self, module: Module, call: ast.Call) -> Definition | None:
        """The callee of a call, including the `__call__` of an object that the program creates.

        Also resolves names bound to `partial(function)` or to a function that another returned.
        """
        found = self.definition(module, call.func)
        if found is not None or not isinstance(call.func, ast.Name | ast.Attribute):
            return found
        if last_name(call.func) in self._aliased:
            values = module.values_of(call.func)
            found = self._stands_for(module, values[0]) if len(values) == 1 else None
            if found is not None:
                return found
        instance = self.instance_of(module, call.func)
        return self._method(instance, "__call__", 0, bound=True) if instance is not None else None

    def _stands_for(self, module: Module, value: ast.expr | None) -> Definition | None:
        """The function that this value creates or renames."""
        if not isinstance(value, ast.Call):
            return None
        if last_name(value.func) == "partial":
            return self.definition(module, value.args[0]) if value.args else None
        made = self.definition(module, value.func)
        if made is None or not any(isinstance(n, Function) for n in made.node.body):
            return None
        given = [n.value for n in own_nodes(made.node) if isinstance(n, ast.Return)]
        found = self.definition(made.module, given[0]) if len(given) == 1 and given[0] else None
        is_inner = found is not None and found.node in made.node.body
        return found if is_inner else None

    @cached_property
    def aliases(self) -> dict[str, set[str]]:
        """The names that stand for a function elsewhere, by the function's name."""
        found: dict[str, set[str]] = {}
        for module in self.modules.values():
            for node in module.parents:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    made = self._stands_for(module, node.value)
                    if made is not None:
                        found.setdefault(made.node.name, set()).add(last_name(node.targets[0]))
        return found

    @cached_property
    def _aliased(self) -> set[str]:
        return {name for names in self.aliases.values() for name in names}

    def _only_method(self, module: Module, node: ast.Attribute) -> Definition | None:
        """The only method of that name, for a call on an argument: `agent.choose_action()`."""
        values = module.values_of(node.value)
        is_given = values == [None] or (
            len(values) == 1  # or the result of a function of the program
            and isinstance(values[0], ast.Call)
            and not module.is_foreign(values[0].func)
        )
        if not is_given or node.attr in _COMMON or node.attr.startswith("__"):
            return None
        methods = self.methods_named(node.attr)
        return methods[0] if len(methods) == 1 else None

    def methods_named(self, name: str) -> list[Definition]:
        """Every method of the program that has this name."""
        homes = [m for m in self.modules.values() if name in m.methods]
        return [Definition(m, f, is_bound=True) for m in homes for f in m.methods[name]]

    @cached_property
    def _known(self) -> set[str]:
        """Every name that a function, method or class of the program has."""
        found: set[str] = set()
        for module in self.modules.values():
            found.update(module.functions, module.methods, (c.name for c in module.all_classes))
        return found

    def _named(self, module: Module, node: ast.Name, depth: int) -> Definition | None:
        home = module.home_of(node)
        if node.id == "cls" and isinstance(home, Function):
            owner = module.class_of(home)
            is_made = any(last_name(d) == "classmethod" for d in home.decorator_list)
            return Definition(module, owner) if owner is not None and is_made else None
        if home is not module.tree:
            inner = module.inner.get((home, node.id), [])
            if len(inner) == 1 and (home, node.id) not in module.bindings:
                return Definition(module, inner[0])
            if node.id not in module.names.imports or (home, node.id) in module.bindings:
                return None
        return self.member(module, node.id, depth)

    def member(self, module: Module, name: str, depth: int = 0) -> Definition | None:
        """The definition of this name in a file: its own, or an imported one."""
        own = module.functions.get(name) or module.classes.get(name)
        if own is not None:
            return Definition(module, own)
        if name in module.names.imports:
            return self._imported(module, name, depth)
        if depth <= _DEEP:
            for level, dotted_name in module.names.star_imports:
                there = self._file(module.path, level, dotted_name)
                found = self.member(there, name, depth + 1) if there is not None else None
                if found is not None:
                    return found
        return None

    def _imported(self, module: Module, text: str, depth: int) -> Definition | None:
        """The definition of `utils.make` or `make`, through the import of its first name."""
        if depth > _DEEP:
            return None
        root, _, rest = text.partition(".")
        level, base = module.names.imports[root]
        parts = [*base.split("."), *rest.split(".")] if rest else base.split(".")
        for split in range(len(parts) - 1, -1, -1):
            there = self._file(module.path, level, ".".join(parts[:split]))
            if there is None or there is module:
                continue
            found = self.member(there, parts[split], depth + 1)
            for name in parts[split + 1 :]:
                if found is None or not isinstance(found.node, ast.ClassDef):
                    return None
                found = self._method(found, name, depth, bound=False)
            return found
        return None

    def _file(self, importer: str, level: int, name: str) -> Module | None:
        """The file that an import in another file loads, found as Python finds it."""
        here = PurePath(importer).parent
        key = (here, level, name)
        if key not in self._files:
            self._files[key] = self._find_file(here, level, name)
        return self._files[key]

    def imported_by(self, module: Module) -> set[Module]:
        """The files that a file imports, directly or through other files."""
        if module in self._imported_by:
            return self._imported_by[module]
        found = self._imported_by[module] = set()
        pending = [module]
        while pending:
            user = pending.pop()
            names = [*user.names.imports.values(), *user.names.star_imports]
            for level, name in names:
                parts = name.split(".")
                for end in range(len(parts) + 1):
                    there = self._file(user.path, level, ".".join(parts[:end]))
                    if there is not None and there not in found:
                        found.add(there)
                        pending.append(there)
        return found

    def is_out_of_sight(self, module: Module, name: str) -> bool:
        """Whether an absolute import of this name leads to no file of the program."""
        parts = name.split(".")
        prefixes = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
        return not any(self._file(module.path, 0, prefix) for prefix in prefixes)

    def _find_file(self, here: PurePath, level: int, name: str) -> Module | None:
        parts = name.split(".") if name else []
        if level:
            roots = [here, *here.parents][level - 1 : level]
        else:
            roots = [here, *here.parents]
            if not parts:
                return None
        for root in roots:
            target = root.joinpath(*parts)
            for path in (f"{target}.py", str(target / "__init__.py")):
                if path in self.modules:
                    return self.modules[path]
        return None

    # Objects ------------------------------------------------------------------------------

    def instance_of(self, module: Module, node: ast.expr, depth: int = 0) -> Definition | None:
        """The class of the program of which an expression is surely an instance."""
        if depth > _DEEP:
            return None
        if node not in self._instances:
            self._instances[node] = None  # a cycle resolves to None
            self._instances[node] = self._made(module, node, depth)
        return self._instances[node]

    def _made(self, module: Module, node: ast.expr, depth: int) -> Definition | None:
        if isinstance(node, ast.Call):
            found = self.definition(module, node.func, depth + 1)
            return found if found and isinstance(found.node, ast.ClassDef) else None
        if is_self(node):
            owner = module.class_of(node)
            return Definition(module, owner) if owner is not None else None
        values = [v for v in module.values_of(node) if not is_none(v)]
        if values == [None]:
            return self._given(module, node, depth)
        if not values or None in values:
            return None
        classes = [self.instance_of(module, v, depth + 1) for v in values if v is not None]
        is_one = len({found and found.node for found in classes}) == 1
        return classes[0] if is_one else None

    def _given(self, module: Module, node: ast.expr, depth: int) -> Definition | None:
        """The class of the argument that every call of the function passes for this parameter."""
        if not isinstance(node, ast.Name) or depth > _FAR:
            return None
        function = module.home_of(node)
        if not isinstance(function, Function) or node.id not in parameters(function):
            return None
        owner = module.class_of(function) if function.name == "__init__" else None
        called = owner or function
        found: set[Definition | None] = set()
        for caller, call in self.calls_named(called.name):
            made = self.definition(caller, call.func, depth + 1)
            if made is None or made.node is not called:
                continue
            filled = parameters(function)[made.is_bound or owner is not None :]
            value = argument_for(call, node.id, filled)
            found.add(self.instance_of(caller, value, depth + 1) if value is not None else None)
        return found.pop() if len(found) == 1 else None

    @cached_property
    def _calls(self) -> dict[str, list[tuple[Module, ast.Call]]]:
        found: dict[str, list[tuple[Module, ast.Call]]] = {}
        for module in self.modules.values():
            for call in module.calls:
                found.setdefault(last_name(call.func), []).append((module, call))
        return found

    @cached_property
    def _mapped(self) -> dict[str, list[tuple[Module, ast.Call]]]:
        """Calls such as `pool.map(work, items)`, by the name of the function that they call."""
        found: dict[str, list[tuple[Module, ast.Call]]] = {}
        for name in _MAPPING:
            for module, call in self.calls_named(name):
                owner = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
                is_mapping = isinstance(call.func, ast.Name) or _POOLS.search(owner)
                if len(call.args) > 1 and is_mapping:
                    found.setdefault(last_name(call.args[0]), []).append((module, call))
        return found

    def mappings_of(self, function: Function) -> Iterator[tuple[Module, ast.Call]]:
        """The calls that surely call this function for each of many items."""
        for module, call in self._mapped.get(function.name, ()):
            found = self.definition(module, call.args[0])
            if found is not None and found.node is function:
                yield module, call

    def calls_named(self, name: str) -> list[tuple[Module, ast.Call]]:
        """Every call of anything that has this name."""
        return self._calls.get(name, [])

    def _method(self, owner: Definition, name: str, depth: int, bound: bool) -> Definition | None:
        assert isinstance(owner.node, ast.ClassDef)
        for node in owner.node.body:
            if isinstance(node, Function) and node.name == name:
                static = any(last_name(d) == "staticmethod" for d in node.decorator_list)
                by_class = any(last_name(d) == "classmethod" for d in node.decorator_list)
                return Definition(owner.module, node, (bound or by_class) and not static)
        return self._inherited(owner, name, depth, bound)

    def _inherited(
        self, owner: Definition, name: str, depth: int, bound: bool
    ) -> Definition | None:
        assert isinstance(owner.node, ast.ClassDef)
        for base in owner.node.bases:
            found = self.definition(owner.module, base, depth + 1)
            if found is not None and isinstance(found.node, ast.ClassDef) and depth <= _DEEP:
                inherited = self._method(found, name, depth + 1, bound)
                if inherited is not None:
                    return inherited
        return None

    def constructor(self, owner: Definition) -> Definition | None:
        """The `__init__` that runs when an object of this class is created."""
        return self._method(owner, "__init__", 0, bound=True)

    def is_related(self, one: ast.ClassDef, other: ast.ClassDef) -> bool:
        """Whether one of two classes may inherit from the other, judged by their names."""
        return (
            one is other
            or one.name in self._ancestors[other]
            or other.name in (self._ancestors[one])
        )

    @cached_property
    def _ancestors(self) -> dict[ast.ClassDef, set[str]]:
        classes = [c for m in self.modules.values() for c in m.all_classes]
        bases: dict[str, set[str]] = {}
        for node in classes:
            bases.setdefault(node.name, set()).update(last_name(b) for b in node.bases)
        found: dict[ast.ClassDef, set[str]] = {}
        for node in classes:
            seen: set[str] = set()
            pending = [last_name(b) for b in node.bases]
            while pending:
                name = pending.pop()
                if name not in seen:
                    seen.add(name)
                    pending += bases.get(name, ())
            found[node] = seen
        return found


def argument_for(call: ast.Call, name: str, names: list[str]) -> ast.expr | None:
    """The argument that a call passes for a parameter; `names` is the positional order."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    place = names.index(name) if name in names else len(call.args)
    is_plain = not any(isinstance(a, ast.Starred) for a in call.args)
    return call.args[place] if is_plain and place < len(call.args) else None


def is_none(node: ast.expr | None) -> bool:
    """Whether this is the literal `None`."""
    return isinstance(node, ast.Constant) and node.value is None
