"""One parsed file: who is whose parent, which names belong to which scope, what is defined."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sojourn.audit.lint.names import Names

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)

# Bases that never touch a session: what a class keeps on self is its own affair.
_PLAIN_BASES = frozenset(
    {"object", "ABC", "abc.ABC", "Thread", "threading.Thread", "Process", "multiprocessing.Process"}
    | {"unittest.TestCase", "TestCase", "Protocol", "NamedTuple", "Exception"}
)


class Module:
    """A file's tree with the questions that every rule asks."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.names = Names(tree)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: dict[str, Function] = {}  # of the module itself
        self.methods: dict[str, list[Function]] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.factories: set[str] = set()  # functions of this file that return an open session
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self.parents[child] = parent
                if isinstance(child, ast.ClassDef):
                    self.classes[child.name] = child
                elif isinstance(child, Function):
                    if isinstance(parent, ast.ClassDef):
                        self.methods.setdefault(child.name, []).append(child)
                    elif isinstance(parent, ast.Module):
                        self.functions[child.name] = child

    def opens(self, call: ast.Call) -> str | None:
        """The session class this call opens, directly or by a factory of this file."""
        if isinstance(call.func, ast.Name) and call.func.id in self.factories:
            return f"{call.func.id}()"
        return self.names.session_class(call)

    def scope_of(self, node: ast.AST) -> Scope:
        """The function, class or module whose statements hold this node."""
        current = self.parents.get(node)
        while current is not None and not isinstance(current, Scope):
            current = self.parents.get(current)
        return current if current is not None else self.tree

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class around this node, if any."""
        current = self.parents.get(node)
        while current is not None and not isinstance(current, ast.ClassDef):
            current = self.parents.get(current)
        return current

    def has_only_known_bases(self, node: ast.ClassDef) -> bool:
        """Whether nothing outside this file can be inherited that might close a session."""
        for base in node.bases:
            name = ast.unparse(base)
            if name in _PLAIN_BASES or (self.names.meaning(base) or "").startswith("tensorflow."):
                continue
            own = self.classes.get(name)
            if own is None or own is node or not self.has_only_known_bases(own):
                return False
        return not node.keywords

    def free_uses(self, scope: Scope, name: str) -> Iterator[ast.Name]:
        """Loads of `name` in functions inside `scope` that mean the name of `scope` itself."""
        for child in _directly_inside(scope):
            if isinstance(child, ast.Lambda):
                bound = {a.arg for a in _arguments(child.args)}
            elif isinstance(child, ast.ClassDef):
                bound = set()  # a class body hides its own names from its methods
            else:
                bound = bound_names(child) - declared(child, ast.Global)
            if name in bound:
                continue
            for node in _own_nodes(child):
                if isinstance(node, ast.Name) and node.id == name and _is_load(node):
                    yield node
            yield from self.free_uses(child, name)  # type: ignore[arg-type]


def declared(scope: ast.AST, kind: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    """The names that this scope declares `global` or `nonlocal`."""
    return {n for node in _own_nodes(scope) if isinstance(node, kind) for n in node.names}


def bound_names(function: Function) -> set[str]:
    """The names that are local to a function."""
    names = {a.arg for a in _arguments(function.args)}
    for node in _own_nodes(function):
        if isinstance(node, ast.Name) and not _is_load(node):
            names.add(node.id)
        elif isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names - declared(function, ast.Nonlocal)


def own_uses(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    """Loads of `name` in the scope's own statements, nested functions left out."""
    for node in _own_nodes(scope):
        if isinstance(node, ast.Name) and node.id == name and _is_load(node):
            yield node


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Every node of a scope's own statements, nested functions and classes left out."""
    return _own_nodes(scope)


def parameters(function: Function) -> list[str]:
    """The positional parameters, in order."""
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]


def _arguments(args: ast.arguments) -> list[ast.arg]:
    extra = [a for a in (args.vararg, args.kwarg) if a is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    body = scope.body if isinstance(scope, Scope | ast.Lambda) else scope
    pending: list[ast.AST] = [*body] if isinstance(body, list) else [body]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, _SCOPES):
            # Only what runs with the outer scope: decorators, defaults, bases.
            pending += getattr(node, "decorator_list", [])
            pending += getattr(node, "bases", [])
            if not isinstance(node, ast.ClassDef):
                pending += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d]
            continue
        pending += ast.iter_child_nodes(node)


def _directly_inside(scope: ast.AST) -> Iterator[Function | ast.ClassDef | ast.Lambda]:
    for node in _own_nodes(scope):
        if isinstance(node, _SCOPES):
            yield node
