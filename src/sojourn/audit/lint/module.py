"""One parsed file: parents of nodes, the scope of each name, bindings and definitions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sojourn.audit.lint.names import Names
from sojourn.source import dotted

if TYPE_CHECKING:
    from sojourn.audit.lint.program import Program

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)

LAMBDA = "lambda"  # marks a function that is a lambda in the file
CLOSING = frozenset({"close", "__exit__"})
# Functions that return a session that they did not open for the caller.
_LENDING = frozenset(
    {"get_default_session", "managed_session", "prepare_or_wait_for_session", "test_session"}
)
# Bases that never touch a session, so only the class itself can close what it keeps on self.
_PLAIN_BASES = frozenset(
    {"object", "ABC", "abc.ABC", "Thread", "threading.Thread", "Process", "multiprocessing.Process"}
    | {"unittest.TestCase", "TestCase", "Protocol", "NamedTuple", "Exception"}
)

# Packages whose classes never use sessions, in addition to Python's own.
_UNAWARE = sys.stdlib_module_names | frozenset(
    "aiohttp allennlp apache_beam attr bentoml bottle carla celery chainer cherrypy "
    "confluent_kafka cv2 deap discord django falcon fastapi flask flask_restful "
    "flask_restplus flask_restx gensim gi gin google grpc gym gym_minigrid gymnasium hyperopt "
    "kafka keras kfserving kivy kserve locust luigi marshmallow matplotlib mlflow mxnet nltk "
    "numpy pandas pettingzoo pika pydantic pygame pyglet PyQt4 PyQt5 PyQt6 pysc2 PySide "
    "PySide2 PySide6 pyspark ray.tune rest_framework rospy sanic scipy scrapy seldon_core "
    "skimage sklearn slackbot spacy starlette telegram torch torchvision tornado tqdm "
    "traitlets twisted ws4py wx zmq".split()
)


class Module:
    """A file's tree and the lookups that all rules need."""

    def __init__(self, tree: ast.Module, path: str, program: Program) -> None:
        self.tree = tree
        self.path = path
        self.program = program
        self.names = Names(tree)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: dict[str, Function] = {}  # of the module itself
        self.methods: dict[str, list[Function]] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.all_classes: list[ast.ClassDef] = []
        self.inner: dict[tuple[ast.AST, str], list[Function | ast.ClassDef]] = {}  # by their scope
        self.calls: list[ast.Call] = []
        self.attributes: dict[str, list[ast.Attribute]] = {}
        self._bound: dict[Function, set[str]] = {}
        _name_lambdas(tree)
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self.parents[child] = parent
                if isinstance(child, Function | ast.ClassDef):
                    self.inner.setdefault((self.scope_of(child), child.name), []).append(child)
                if isinstance(child, ast.Attribute):
                    self.attributes.setdefault(child.attr, []).append(child)
                elif isinstance(child, ast.Call):
                    self.calls.append(child)
                elif isinstance(child, ast.ClassDef):
                    self.classes[child.name] = child
                    self.all_classes.append(child)
                elif isinstance(child, Function):
                    if isinstance(parent, ast.ClassDef):
                        self.methods.setdefault(child.name, []).append(child)
                    elif isinstance(self.scope_of(child), ast.Module):
                        self.functions[child.name] = child
        self.calls.sort(key=lambda call: (call.lineno, call.col_offset))

    def opens(self, call: ast.Call) -> str | None:
        """The session class that this call opens, or the factory of the program that opens it."""
        if last_name(call.func) in self.program.factory_names:
            found = self.program.definition(self, call.func)
            if found is not None and found.node in self.program.factories:
                return f"{last_name(call.func)}()"
        return self.names.session_class(call)

    def opens_among(self, call: ast.Call) -> tuple[int, int] | None:
        """The length of the tuple that a call returns, and the index of the session it opened."""
        if not self.program.tuple_factories:
            return None
        found = self.program.definition(self, call.func)
        return self.program.tuple_factories.get(found.node) if found is not None else None

    @cached_property
    def bindings(self) -> dict[tuple[ast.AST, str], list[ast.expr | None]]:
        """The values of each name of a scope and each `self.x` of a class; None: not visible."""
        found: dict[tuple[ast.AST, str], list[ast.expr | None]] = {}
        plain: dict[ast.AST, ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                plain.update(dict.fromkeys(node.targets, node.value))
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                plain[node.target] = node.value
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and not _is_load(node):
                found.setdefault((self.scope_of(node), node.id), []).append(plain.get(node))
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                owner = self.class_of(node)
                if owner is not None and is_self(node.value):
                    found.setdefault((owner, node.attr), []).append(plain.get(node))
            elif isinstance(node, Function | ast.Lambda):
                for argument in _arguments(node.args):
                    found.setdefault((node, argument.arg), []).append(None)
        return found

    @cached_property
    def unpacked(self) -> dict[tuple[ast.AST, str], list[ast.expr]]:
        """The names that a loop binds to items, or an assignment to parts, with those values.

        These are made-up nodes: `*xs` for `x` in a loop, `value[1]` for `b` of `a, b = value`.
        """
        found: dict[tuple[ast.AST, str], list[ast.expr]] = {}

        def note(target: ast.expr, source: ast.expr, is_item: bool) -> None:
            if isinstance(target, ast.Name):
                made = ast.Starred(source, ast.Load()) if is_item else source
                found.setdefault((self.scope_of(target), target.id), []).append(made)
                return
            parts: list[ast.expr] = []
            count = len(target.elts) if isinstance(target, ast.Tuple | ast.List) else 0
            if is_item and isinstance(source, ast.Call):
                parts = list(source.args) if last_name(source.func) == "zip" else parts
                if last_name(source.func) == "enumerate":
                    parts = [ast.Constant(0), *source.args[:1]]
            elif not is_item and isinstance(source, ast.Tuple):
                parts = source.elts
            elif not is_item:
                parts = [ast.Subscript(source, ast.Constant(i), ast.Load()) for i in range(count)]
            if len(parts) == count > 0:
                for inner, part in zip(target.elts, parts, strict=True):  # type: ignore[attr-defined]
                    note(inner, part, is_item)

        for node in self.parents:
            if isinstance(node, ast.For | ast.comprehension):
                note(node.target, node.iter, True)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                note(node.targets[0], node.value, False)
        return found

    @cached_property
    def session_names(self) -> set[tuple[ast.AST, str]]:
        """The names of scopes and the attributes of classes that are bound to sessions."""
        found: set[tuple[ast.AST, str]] = set()
        for call in self.calls:
            parent = self.parents[call]
            if isinstance(parent, ast.Attribute) and parent.attr == "as_default":
                parent = self.parents[self.parents[parent]]  # `with tf.Session().as_default() as s`
            if not self.opens(call) and last_name(call.func) not in _LENDING:
                continue
            targets: list[ast.expr | None] = []
            if isinstance(parent, ast.Assign):
                targets = [*parent.targets]
            elif isinstance(parent, ast.withitem):
                targets = [parent.optional_vars]
            found |= {self._place_of(t) for t in targets if t is not None}
        return found

    def _place_of(self, node: ast.expr) -> tuple[ast.AST, str]:
        if isinstance(node, ast.Name):
            return self.home_of(node), node.id
        owner = self.class_of(node)
        is_own = isinstance(node, ast.Attribute) and is_self(node.value) and owner is not None
        return (owner, node.attr) if is_own else (node, "")  # type: ignore[attr-defined,return-value]

    def is_session(self, node: ast.expr) -> bool:
        """Whether a name, or an attribute of self, is one that this file binds to a session."""
        return self._place_of(node) in self.session_names

    def values_of(self, node: ast.expr) -> list[ast.expr | None]:
        """Everything that a name, or an attribute of self, is ever bound to."""
        if isinstance(node, ast.Attribute) and is_self(node.value):
            owner = self.class_of(node)
            return self.bindings.get((owner, node.attr), []) if owner is not None else []
        if not isinstance(node, ast.Name):
            return []
        return self.bindings.get((self.home_of(node), node.id), [])

    def home_of(self, node: ast.Name) -> Scope:
        """The scope that the name belongs to, as Python looks it up."""
        scope = self.scope_of(node)
        while isinstance(scope, Function | ast.ClassDef):
            if isinstance(scope, Function) and node.id in self.bound_in(scope):
                return scope
            scope = self.scope_of(scope)
        return self.tree

    def bound_in(self, function: Function) -> set[str]:
        """The names that are a function's own."""
        if function not in self._bound:
            self._bound[function] = bound_names(function) - declared(function, ast.Global)
        return self._bound[function]

    def scope_of(self, node: ast.AST) -> Scope:
        """The function, class or module whose statements hold this node."""
        return self._around(node, Scope) or self.tree

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class around this node, if any."""
        found: ast.ClassDef | None = self._around(node, ast.ClassDef)
        return found

    def _around(self, node: ast.AST, kind: Any) -> Any:
        current = self.parents.get(node)
        while current is not None and not isinstance(current, kind):
            current = self.parents.get(current)
        return current

    def closings(self) -> Iterator[ast.Attribute]:
        """The attributes that this file closes or enters: `model.sess.close()`, `with m.sess:`."""
        for name in CLOSING:
            for node in self.attributes.get(name, ()):
                if isinstance(node.value, ast.Attribute):
                    yield node.value
        for nodes in self.attributes.values():
            yield from (n for n in nodes if isinstance(self.parents[n], ast.withitem))

    def is_foreign(self, node: ast.expr) -> bool:
        """Whether a dotted name surely belongs to TensorFlow or a library, not to the program."""
        root = (dotted(node) or "").split(".")[0]
        if self.names.meaning(node) is not None:
            return True
        level, imported = self.names.imports.get(root, (1, ""))
        return not level and self.program.is_out_of_sight(self, imported)

    @cached_property
    def is_test(self) -> bool:
        """Whether this file holds tests."""
        name = self.path.rpartition("/")[2]
        if name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py":
            return True
        for node in self.all_classes:
            methods = [n.name for n in node.body if isinstance(n, Function)]
            if node.name.startswith("Test") and any(m.startswith("test_") for m in methods):
                return True
        return any("TestCase" in ast.unparse(b) for c in self.all_classes for b in c.bases)

    @cached_property
    def ends_keras(self) -> bool:
        """Whether this file may close or drop the session that Keras keeps."""
        names = {last_name(call.func) for call in self.calls} if not self.is_test else set()
        return "clear_session" in names or {"get_session", "close"} <= names

    def has_only_known_bases(self, node: ast.ClassDef) -> bool:
        """Whether no base from outside the program might close a session."""
        for base in _bases(node):
            if ast.unparse(base) in _PLAIN_BASES or last_name(base).endswith("Servicer"):
                continue
            if (self.names.meaning(base) or "").startswith("tensorflow."):
                continue
            _, imported = self.names.imports.get((dotted(base) or "").split(".")[0], (0, ""))
            parts = imported.split(".")
            if parts[0] in _UNAWARE or ".".join(parts[:2]) in _UNAWARE:
                continue
            found = self.program.definition(self, base)
            if found is None or not isinstance(found.node, ast.ClassDef) or found.node is node:
                return False
            if not found.module.has_only_known_bases(found.node):
                return False
        metas = [keyword.value for keyword in node.keywords]
        return all(last_name(m) == "ABCMeta" or self.program.definition(self, m) for m in metas)

    def free_uses(self, scope: Scope, name: str) -> Iterator[ast.Name]:
        """Loads of `name` in functions inside `scope` that mean the name of `scope` itself."""
        for child in (n for n in own_nodes(scope) if isinstance(n, _SCOPES)):
            if isinstance(child, ast.Lambda):
                bound = {a.arg for a in _arguments(child.args)}
            elif isinstance(child, ast.ClassDef):
                bound = set()  # a class body hides its own names from its methods
            else:
                bound = bound_names(child) - declared(child, ast.Global)
            if name in bound:
                continue
            for node in own_nodes(child):
                if isinstance(node, ast.Name) and node.id == name and _is_load(node):
                    yield node
            yield from self.free_uses(child, name)  # type: ignore[arg-type]


def _name_lambdas(tree: ast.Module) -> None:
    """Replace `predict = lambda x: sess.run(y, {inputs: x})` by a function definition.

    Unless the same scope binds the name more than once.
    """
    if not any(isinstance(n, ast.Lambda) for n in ast.walk(tree)):
        return
    for scope in [n for n in ast.walk(tree) if isinstance(n, ast.Module | Function)]:
        nodes = [scope, *own_nodes(scope)]
        stores = [n.id for n in nodes if isinstance(n, ast.Name) and not _is_load(n)]
        outer = declared(scope, ast.Global) | declared(scope, ast.Nonlocal)
        own = [n for n in nodes if n is scope or not isinstance(n, _SCOPES)]
        for block in (getattr(n, key, None) for n in own for key in ("body", "orelse")):
            for place, node in enumerate(block if isinstance(block, list) else ()):
                if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Lambda):
                    continue
                name = last_name(node.targets[0])
                is_plain = isinstance(node.targets[0], ast.Name) and name not in outer
                if is_plain and stores.count(name) == 1:
                    block[place] = _as_function(name, node, node.value)  # type: ignore[index]


def _as_function(name: str, node: ast.Assign, value: ast.Lambda) -> ast.FunctionDef:
    made = ast.parse("def f(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.name, made.args, made.type_comment = name, value.args, LAMBDA
    made.body = [ast.copy_location(ast.Return(value.body), value.body)]
    return ast.copy_location(made, node)


def _bases(node: ast.ClassDef) -> list[ast.expr]:
    """The bases of a class, including those in `six.with_metaclass(Meta, Base)`."""
    found: list[ast.expr] = []
    for base in node.bases:
        is_wrapped = isinstance(base, ast.Call) and last_name(base.func) == "with_metaclass"
        found += base.args[1:] if is_wrapped else [base]  # type: ignore[attr-defined]
    return found


def declared(scope: ast.AST, kind: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    """The names that this scope declares `global` or `nonlocal`."""
    return {n for node in own_nodes(scope) if isinstance(node, kind) for n in node.names}


def bound_names(function: Function) -> set[str]:
    """The names that are local to a function."""
    names = {a.arg for a in _arguments(function.args)}
    for node in own_nodes(function):
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
    """Loads of `name` in the scope's own statements, without nested functions."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and node.id == name and _is_load(node):
            yield node


def parameters(function: Function) -> list[str]:
    """The positional parameters, in order."""
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]


def _arguments(args: ast.arguments) -> list[ast.arg]:
    extra = filter(None, (args.vararg, args.kwarg))
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Every node of a scope's own statements, without nested functions and classes."""
    body = scope.body if isinstance(scope, Scope | ast.Lambda) else scope
    pending: list[ast.AST] = [*body] if isinstance(body, list) else [body]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, _SCOPES):
            # Only the parts that run in the outer scope: decorators, defaults, bases.
            pending += getattr(node, "decorator_list", [])
            pending += getattr(node, "bases", [])
            if not isinstance(node, ast.ClassDef):
                pending += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d]
            continue
        pending += ast.iter_child_nodes(node)


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name: `c` of `a.b.c`; empty if the node has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_self(node: ast.expr) -> bool:
    """Whether this is `self`, the usual name of a method's object."""
    return isinstance(node, ast.Name) and node.id == "self"
