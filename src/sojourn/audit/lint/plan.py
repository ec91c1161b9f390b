"""Plans how to close a session without changing the program's behaviour, if that is possible.

This module rewrites nothing. A plan names statements by line; `fix` carries it out.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from enum import Enum

from sojourn.audit.lint.flow import Flow
from sojourn.audit.lint.module import LAMBDA, Function, Module, Scope, declared, last_name, own_uses
from sojourn.audit.lint.names import is_interactive
from sojourn.audit.lint.owned import dies_with_its_owner
from sojourn.audit.lint.problem import Problem
from sojourn.audit.lint.state import Site
from sojourn.audit.lint.steps import looks_like_session


class Form(Enum):
    """The form that the opening statement gets."""

    WITH = "with tf.Session() as sess:"
    FINALLY = "sess = tf.Session(), then try: ... finally: sess.close()"
    AT_EXIT = "atexit.register(sess.close)"
    WITH_OWNER = "weakref.finalize(self, self.sess.close)"
    INLINE = "with tf.Session() as sess: around the one statement that opens it"
    ENTER = "with tf.Session() instead of with tf.Session().as_default()"


@dataclass(frozen=True, slots=True)
class ClosingPlan:
    """How to rewrite the statement that opens a session, and which later ones to move inside."""

    form: Form
    line: int  # of the statement
    position: int  # among the statements that share this line
    last_line: int  # on which the last statement that moves inside begins
    name: str  # the session's present or new name
    renames_interactive: bool = False


_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
_HARMLESS = frozenset(
    {"run", "close", "graph", "graph_def", "sess_str", "list_devices", "as_default"}
)
_WITH_THE_DEFAULT = frozenset({"keras", "tf_keras", "tflearn", "edward", "gpflow", "baselines"})
# Packages that never use sessions.
_INDIFFERENT = frozenset(
    {"numpy", "scipy", "matplotlib", "pandas", "sklearn", "skimage", "PIL", "cv2", "six", "tqdm"}
    | {"absl", "h5py", "yaml", "requests", "seaborn", "google", "past", "future", "builtins"}
)
_IMPLICIT = frozenset({"eval", "run", "get_default_session"})


def plan_for(module: Module, problem: Problem) -> ClosingPlan | None:
    """The safe way to close the session of this finding, or None."""
    for call in module.calls:
        if (call.lineno, call.col_offset + 1) == problem.start and module.opens(call):
            return _Planner(module, call).plan()
    return None


class _Planner:
    def __init__(self, module: Module, call: ast.Call) -> None:
        self.module = module
        self.call = call
        statement: ast.AST = call
        while not isinstance(statement, ast.stmt):
            statement = module.parents[statement]
        self.statement = statement
        self.parent = module.parents[statement]
        self.block = _block_with(self.parent, statement)
        self.scope: Scope = module.scope_of(statement)
        self.kind = module.opens(call) or ""
        self.is_interactive = is_interactive(self.kind)
        flow = Flow(module, self.scope)
        flow.run()
        self.site: Site | None = flow.sites.get(call)

    def plan(self) -> ClosingPlan | None:
        if self.site is None or isinstance(self.scope, ast.ClassDef):
            return None
        if isinstance(self.scope, Function) and self.scope.type_comment == LAMBDA:
            return None  # a lambda cannot contain statements
        if self.site.is_stored:
            return None  # the container that holds it is used later
        statement = self.statement
        if isinstance(statement, ast.With):
            return self._enter(statement)
        if not isinstance(statement, _SIMPLE):
            return None
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is self.call:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if len(targets) == 1 and isinstance(targets[0], ast.Name):
                return self._named(targets[0].id)
            if len(targets) == 1 and isinstance(targets[0], ast.Attribute):
                return self._on_self(targets[0])
            return None
        if isinstance(statement, ast.Expr) and statement.value is self.call:
            return self._nameless() if self.is_interactive else None
        return self._inline()

    # A session with a name ----------------------------------------------------------------

    def _named(self, name: str) -> ClosingPlan | None:
        assert self.site is not None
        if isinstance(self.scope, Function):
            outside = declared(self.scope, ast.Global) | declared(self.scope, ast.Nonlocal)
            if name in outside:
                return None
        if self.site.attributes or self.site.globals or self.site.names != {name}:
            return None  # other code keeps holding it
        tail, is_rebound = self._tail_until_rebound(name)
        captured = any(True for _ in self.module.free_uses(self.scope, name))
        uses = list(own_uses(self.scope, name))
        inside = [u for u in uses if _is_within(u, tail)]
        if any(self._is_entered(u) for u in uses):
            return None  # the code enters it as a context manager itself
        stays = captured or self.site.is_lent or not inside
        if stays or (self.is_interactive and self._is_needed_elsewhere(tail)):
            return self._at_exit(name) if not is_rebound else None
        if not self._ends_with(uses, tail, is_rebound) or self._leaves_threads(tail):
            return None
        if self.is_interactive and is_rebound:
            return None  # the old session may still be the default below the new one
        if not self.is_interactive and all(self._is_plain(u) for u in inside):
            shorter = tail[: 1 + max(_index_of(u, tail) for u in inside)]
            tail = shorter if not self._leaves_threads(shorter) else tail
        form = Form.WITH if self._with_is_exact(tail) else Form.FINALLY
        return self._made(form, tail, name)

    def _on_self(self, target: ast.Attribute) -> ClosingPlan | None:
        """The plan for a session that an object keeps: close it when the object is collected."""
        if self.is_interactive or self._loop_around() is not None:
            return None
        if not dies_with_its_owner(self.module, target):
            return None
        return self._made(Form.WITH_OWNER, [], ast.unparse(target))

    def _made(self, form: Form, tail: list[ast.stmt], name: str) -> ClosingPlan:
        line = self.statement.lineno
        position = [s for s in self.block if s.lineno == line].index(self.statement)
        last = tail[-1].lineno if tail else line
        renames = form is Form.WITH and self.is_interactive
        return ClosingPlan(form, line, position, last, name, renames)

    def _tail_until_rebound(self, name: str) -> tuple[list[ast.stmt], bool]:
        """The statements after the opening one, up to one that rebinds the name (True if any)."""
        tail = self.block[self.block.index(self.statement) + 1 :]
        for index, statement in enumerate(tail):
            if isinstance(statement, ast.Assign | ast.With) and _binds(statement, name):
                return tail[:index], True
        return tail, False

    def _ends_with(self, uses: list[ast.Name], tail: list[ast.stmt], is_rebound: bool) -> bool:
        """Whether no use of this session follows the statements that move inside."""
        loop = self._loop_around()
        for use in uses:
            if _is_within(use, tail):
                continue
            before = use.lineno < self.statement.lineno
            if loop is not None and _is_within(use, [loop]):
                return False  # the next turn may use the session of the previous turn
            if not before and not is_rebound:
                return False
        return not any(_rebinds_deeper(s, use_name) for s in tail for use_name in self._name())

    def _name(self) -> list[str]:
        return sorted(self.site.names) if self.site else []

    def _is_entered(self, use: ast.Name) -> bool:
        parent = self.module.parents[use]
        by_hand = isinstance(parent, ast.Attribute) and parent.attr in ("__enter__", "__exit__")
        return by_hand or isinstance(parent, ast.withitem)

    def _is_plain(self, use: ast.Name) -> bool:
        """Whether the session works only where its name is mentioned, and not later."""
        parents = self.module.parents
        parent = parents[use]
        if isinstance(parent, ast.Attribute):
            called = getattr(parents[parent], "func", None) is parent
            if parent.attr not in _HARMLESS or (parent.attr == "run" and not called):
                return False
        elif not isinstance(parent, ast.Call | ast.keyword | ast.Compare):
            return False
        node: ast.AST = use
        while not isinstance(node, ast.stmt):
            if isinstance(node, ast.GeneratorExp | ast.Lambda):
                return False
            node = parents[node]
        return True

    def _with_is_exact(self, tail: list[ast.stmt]) -> bool:
        """Whether a `with` block changes nothing but that it closes the session.

        A `with` also makes the session and its graph the defaults, which affects code that
        resets the default graph, builds in another graph, or stacks default sessions. Where such
        code cannot be ruled out, `finally` closes the session and changes nothing else.
        """
        if self.kind.startswith("sojourn."):
            return True
        if self.kind not in ("tensorflow.Session", "tensorflow.InteractiveSession"):
            return False
        if _has_graph(self.call) or (self.is_interactive and isinstance(self.call.func, ast.Name)):
            return False
        if any(isinstance(n, ast.Yield | ast.YieldFrom) for s in tail for n in ast.walk(s)):
            return False
        if self._uses_the_default() or self._calls_strangers(tail):
            return False
        here = (self.scope, self.module.tree)
        return not any(
            self._stirs_defaults(node)
            for node in ast.walk(self.module.tree)
            # The statements inside may call the other functions of the file.
            if _is_within(node, tail) or self.module.scope_of(node) not in here
        )

    def _stirs_defaults(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and node is not self.call:
            return is_interactive(self.module.opens(node) or "")
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        return name in ("get_default_session", "reset_default_graph")

    def _calls_strangers(self, tail: list[ast.stmt]) -> bool:
        """Whether code of other files runs inside: it may reset the graph or use the defaults."""
        foreign = self.module.names.foreign
        names = {n.id for s in tail for n in ast.walk(s) if isinstance(n, ast.Name)}
        packages = {foreign[name] for name in names if name in foreign}
        return bool(packages - _INDIFFERENT - sys.stdlib_module_names)

    def _uses_the_default(self) -> bool:
        """Whether the file uses a library that prefers the default session to its own."""
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.Attribute) and node.attr == "keras":
                return True
            if isinstance(node, ast.Import | ast.ImportFrom):
                words = re.findall(r"\w+", ast.unparse(node))
                if _WITH_THE_DEFAULT & set(words):
                    return True
        return False

    def _leaves_threads(self, tail: list[ast.stmt]) -> bool:
        """Whether queue runners are not joined and so would still use the closed session."""
        nodes = [n for s in tail for n in ast.walk(s) if isinstance(n, ast.Call)]
        called = [n.func for n in nodes if isinstance(n.func, ast.Attribute)]
        # Not `os.path.join` and `", ".join`.
        joined = [f for f in called if f.attr == "join" and last_name(f.value) not in ("path", "")]
        return any(f.attr == "start_queue_runners" for f in called) and not joined

    def _is_needed_elsewhere(self, tail: list[ast.stmt]) -> bool:
        """Whether code outside these statements may need this session as the default."""
        for node in ast.walk(self.module.tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in _IMPLICIT or any(k.arg == "session" for k in node.keywords):
                continue
            if looks_like_session(node.func.value):
                continue
            own = self.module.scope_of(node) is self.scope
            earlier = node.lineno < self.statement.lineno and self._loop_around() is None
            if not (own and (earlier or _is_within(node, tail))):
                return True
        return False

    def _at_exit(self, name: str) -> ClosingPlan | None:
        """Plan to close a module's session, which its functions use, when the program exits."""
        if not isinstance(self.scope, ast.Module) or self._loop_around() is not None:
            return None
        return self._made(Form.AT_EXIT, [], name)

    def _loop_around(self) -> ast.stmt | None:
        node: ast.AST | None = self.parent
        while node is not None and node is not self.scope:
            if isinstance(node, ast.For | ast.While | ast.AsyncFor):
                return node
            node = self.module.parents.get(node)
        return None

    # Sessions without a name --------------------------------------------------------------

    def _nameless(self) -> ClosingPlan | None:
        tail = self.block[self.block.index(self.statement) + 1 :]
        if self._is_needed_elsewhere(tail):
            return self._at_exit("")
        if not self._with_is_exact(tail) or self._leaves_threads(tail):
            return None
        return self._made(Form.WITH, tail, "")

    def _inline(self) -> ClosingPlan | None:
        """Plan a `with` around `print(tf.Session().run(x))`: nothing else can close its session."""
        if self.site is None or self.site.is_lent:
            return None  # other code keeps holding it
        node: ast.AST = self.call
        while node is not self.statement:
            parent = self.module.parents[node]
            if isinstance(parent, ast.Lambda | ast.IfExp | ast.BoolOp | ast.comprehension):
                return None
            if isinstance(parent, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
                return None
            is_method = isinstance(parent, ast.Attribute) and parent.value is self.call
            if is_method and getattr(parent, "attr", "") != "run":
                return None
            node = parent
        calls = [n for n in ast.walk(self.statement) if isinstance(n, ast.Call)]
        builds = any(c is not self.call and self.module.names.meaning(c.func) for c in calls)
        openers = [c for c in calls if self.module.opens(c)]
        if self.is_interactive or len(openers) != 1 or (builds and _has_graph(self.call)):
            return None
        if self.kind != "tensorflow.Session" or "reset_default_graph" in ast.unparse(
            self.statement
        ):
            return None
        return self._made(Form.INLINE, [], self._fresh_name())

    def _fresh_name(self) -> str:
        taken = {n.id for n in ast.walk(self.module.tree) if isinstance(n, ast.Name)}
        taken |= {n.arg for n in ast.walk(self.module.tree) if isinstance(n, ast.arg)}
        taken |= {n for k in (ast.Global, ast.Nonlocal) for n in declared(self.module.tree, k)}
        taken |= set(self.module.functions) | set(self.module.classes)
        names = ["sess", "session", *(f"sess_{n}" for n in range(1, 1000))]
        return next(name for name in names if name not in taken)

    def _enter(self, statement: ast.With) -> ClosingPlan | None:
        """Plan to drop `as_default` from `with tf.Session().as_default():`, which never closes."""
        parents = self.module.parents
        method = parents[self.call]
        outer = parents[method]
        item = parents[outer]
        if not (isinstance(item, ast.withitem) and isinstance(method, ast.Attribute)):
            return None
        if method.attr != "as_default" or _has_graph(self.call):
            return None
        if self.kind != "tensorflow.Session" or not self._with_is_exact(statement.body):
            return None
        name = item.optional_vars
        if name is not None:
            if not isinstance(name, ast.Name) or self.site is None or self.site.is_lent:
                return None
            uses = [*own_uses(self.scope, name.id), *self.module.free_uses(self.scope, name.id)]
            if not all(_is_within(u, statement.body) for u in uses):
                return None
        line = statement.lineno
        return ClosingPlan(Form.ENTER, line, statement.items.index(item), line, "")


def _block_with(parent: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    for _, block in ast.iter_fields(parent):
        if isinstance(block, list) and statement in block:
            return block
    return [statement]


def _is_within(node: ast.AST, statements: list[ast.stmt]) -> bool:
    line = getattr(node, "lineno", 0)
    return any(s.lineno <= line <= (s.end_lineno or s.lineno) for s in statements)


def _index_of(node: ast.expr, statements: list[ast.stmt]) -> int:
    return max(
        i for i, s in enumerate(statements) if s.lineno <= node.lineno <= (s.end_lineno or s.lineno)
    )


def _binds(statement: ast.Assign | ast.With, name: str) -> bool:
    if isinstance(statement, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == name for t in statement.targets)
    targets = [item.optional_vars for item in statement.items]
    return any(isinstance(t, ast.Name) and t.id == name for t in targets)


def _rebinds_deeper(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        for n in ast.walk(statement)
    )


def _has_graph(call: ast.Call) -> bool:
    return len(call.args) > 1 or any(k.arg in ("graph", None) for k in call.keywords)
