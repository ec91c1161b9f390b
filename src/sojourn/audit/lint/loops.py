"""Sessions and ops that are made again and again: in a loop, or in a function a loop calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sojourn.audit import codes
from sojourn.audit.lint.module import Function, Module, own_nodes
from sojourn.audit.lint.ops import adds_op
from sojourn.audit.lint.problem import Problem, problem_at

Loop = ast.For | ast.AsyncFor | ast.While
_SESSION_NAME = re.compile(r"(?:^|_)(?:mon_?)?sess(?:ion)?(?:_|\d|$)", re.IGNORECASE)
_FRESH = frozenset({"tensorflow.Graph", "tensorflow.reset_default_graph"})
_SERVING = frozenset({"route", "get", "post", "put"})
_FEW = 3  # turns of a literal loop that are a handful of cases, not a repetition


def looks_like_session(node: ast.expr) -> bool:
    """Whether a name says that it holds a session: `sess`, `self.session`, `mon_sess`."""
    return bool(_SESSION_NAME.search(_last_name(node)))


class Loops:
    """The rules that need to know what is repeated."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._repeated: dict[Function, list[ast.Call]] = {}

    def problems(self) -> Iterator[Problem]:
        calls = [n for n in ast.walk(self.module.tree) if isinstance(n, ast.Call)]
        for call in calls:
            if self.module.opens(call) is not None:
                yield from self._opened_again(call)
        seen: set[ast.AST] = set()
        for call in calls:
            if adds_op(self.module.names, call) or self._assigns(call):
                place, problem = self._added_again(call)
                if problem is not None and place not in seen:
                    seen.add(place)
                    yield problem

    # Sessions -----------------------------------------------------------------------------

    def _opened_again(self, call: ast.Call) -> Iterator[Problem]:
        if any(keyword.arg == "graph" for keyword in call.keywords):
            return  # a session of its own for a graph of its own
        if (self.module.opens(call) or "").startswith("sojourn."):
            return  # cheap to open, and leaves nothing behind
        for loop in self._loops_around(call):
            if not self._makes_graphs(loop) and not self._leaves_after(call, loop):
                detail = f"opened on every turn of the loop on line {loop.lineno}"
                yield problem_at(call, codes.SESSION_PER_CALL, detail)
                return
        function = self._function_around(call)
        if function is None or self._makes_graphs(function):
            return
        if any(_is_serving(d) for d in function.decorator_list):
            detail = f"`{function.name}` opens it for every request"
            yield problem_at(call, codes.SESSION_PER_CALL, detail)
            return
        for caller in self._calls_in_loops(function):
            detail = f"`{function.name}` opens it, and line {caller.lineno} calls that in a loop"
            yield problem_at(call, codes.SESSION_PER_CALL, detail)
            return

    # Ops ----------------------------------------------------------------------------------

    def _added_again(self, call: ast.Call) -> tuple[ast.AST, Problem | None]:
        for loop in self._loops_around(call):
            if self._runs_steps(loop) and not self._renews(loop):
                detail = f"added on every turn of the loop on line {loop.lineno}"
                return loop, problem_at(call, codes.GRAPH_GROWS, detail)
        function = self._function_around(call)
        if function is None or function.decorator_list or self._renews(function):
            return call, None
        runs = self._runs_steps(function)
        for caller in self._calls_in_loops(function):
            loops = list(self._loops_around(caller))
            if any((runs or self._runs_steps(x)) and not self._renews(x) for x in loops):
                detail = f"`{function.name}` adds it, and line {caller.lineno} calls that in a loop"
                return function, problem_at(call, codes.GRAPH_GROWS, detail)
        return call, None

    def _assigns(self, call: ast.Call) -> bool:
        """`sess.run(v.assign(...))`: the method makes an op, and its use as a fetch proves it."""
        if not isinstance(call.func, ast.Attribute):
            return False
        if call.func.attr not in ("assign", "assign_add", "assign_sub", "minimize"):
            return False
        parent = self.module.parents[call]
        if isinstance(parent, ast.List | ast.Tuple):
            parent = self.module.parents[parent]
        return isinstance(parent, ast.Call) and _runs_step(parent)

    def _renews(self, node: ast.AST) -> bool:
        """Whether each turn has a graph or a session of its own."""
        return self._makes_graphs(node) or any(
            isinstance(n, ast.Call) and self.module.opens(n) for n in ast.walk(node)
        )

    def _runs_steps(self, node: ast.AST) -> bool:
        return any(isinstance(n, ast.Call) and _runs_step(n) for n in self._nodes_of(node))

    def _nodes_of(self, node: ast.AST) -> Iterator[ast.AST]:
        return own_nodes(node) if isinstance(node, Function) else ast.walk(node)

    # What is repeated ---------------------------------------------------------------------

    def _loops_around(self, node: ast.AST) -> Iterator[Loop]:
        """The loops of the same scope that surely reach this node on every turn, or every nth."""
        child, parent = node, self.module.parents.get(node)
        while parent is not None and not isinstance(
            parent, Function | ast.ClassDef | ast.Lambda | ast.Module
        ):
            if isinstance(parent, ast.If) and child is not parent.test:
                if not _is_every_nth(parent.test) and not _is_main_guard(parent.test):
                    return
            elif isinstance(parent, ast.ExceptHandler | ast.IfExp | ast.BoolOp):
                return
            elif isinstance(parent, Loop) and child in parent.body and not _is_short(parent):
                yield parent
            child, parent = parent, self.module.parents.get(parent)

    def _function_around(self, node: ast.AST) -> Function | None:
        """The function that runs this node on every call."""
        child, parent = node, self.module.parents.get(node)
        while parent is not None:
            if isinstance(parent, Function):
                return parent if _is_reached_always(parent, child) else None
            if isinstance(parent, ast.If | ast.ExceptHandler | ast.IfExp | ast.Lambda | ast.BoolOp):
                return None
            child, parent = parent, self.module.parents.get(parent)
        return None

    def _calls_in_loops(self, function: Function) -> list[ast.Call]:
        if function not in self._repeated:
            self._repeated[function] = list(self._find_calls_in_loops(function))
        return self._repeated[function]

    def _find_calls_in_loops(self, function: Function) -> Iterator[ast.Call]:
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.Call) and self._is_call_of(node, function):
                loops = self._loops_around(node)
                if any(
                    not self._makes_graphs(x) and not self._leaves_after(node, x) for x in loops
                ):
                    yield node

    def _is_call_of(self, call: ast.Call, function: Function) -> bool:
        if isinstance(call.func, ast.Name):
            return self.module.functions.get(call.func.id) is function
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            own = call.func.value.id == "self" and call.func.attr == function.name
            return own and self.module.class_of(call) is self.module.class_of(function)
        return False

    def _makes_graphs(self, node: ast.AST) -> bool:
        for part in ast.walk(node):
            if not isinstance(part, ast.Call):
                continue
            if self.module.names.meaning(part.func) in _FRESH:
                return True
            if isinstance(part.func, ast.Attribute):
                name = part.func.attr
                if name in ("clear_session", "reset_default_graph"):
                    return True
                owner = part.func.value
                if name == "as_default" and not looks_like_session(owner):
                    return not (isinstance(owner, ast.Call) and self.module.opens(owner))
        return False

    def _leaves_after(self, node: ast.AST, loop: Loop) -> bool:
        """Whether the loop is left after this node: then it opens once, whatever the loop says."""
        child, parent = node, self.module.parents[node]
        while True:
            for _, block in ast.iter_fields(parent):
                if isinstance(block, list) and child in block:
                    rest = block[block.index(child) :]
                    if any(isinstance(s, ast.Break | ast.Return | ast.Raise) for s in rest):
                        return True
                    if any(isinstance(s, ast.With) and _ends_in_jump(s) for s in rest):
                        return True
            if parent is loop:
                return False
            child, parent = parent, self.module.parents[parent]


def _is_reached_always(function: Function, statement: ast.AST) -> bool:
    """Whether no earlier `if built: return` keeps later calls from getting there."""
    for earlier in function.body:
        if earlier is statement:
            return True
        if any(isinstance(n, ast.Return) for n in ast.walk(earlier)):
            return False
    return False


def _runs_step(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    name, owner = call.func.attr, call.func.value
    keywords = {keyword.arg for keyword in call.keywords}
    if name == "run":
        return looks_like_session(owner) or "session" in keywords
    return name == "eval" and (bool(keywords & {"session", "feed_dict"}) or not call.args)


def _ends_in_jump(node: ast.With) -> bool:
    return isinstance(node.body[-1], ast.Break | ast.Return | ast.Raise)


def _is_every_nth(test: ast.expr) -> bool:
    """`step % 100 == 0` comes again and again; other tests may be true once."""
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))


def _is_main_guard(test: ast.expr) -> bool:
    return "__name__" in {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}


def _is_short(loop: Loop) -> bool:
    if isinstance(loop, ast.While):
        return False
    if isinstance(loop.iter, ast.Tuple | ast.List):
        return len(loop.iter.elts) <= _FEW
    call = loop.iter
    if isinstance(call, ast.Call) and _last_name(call.func) == "range" and len(call.args) == 1:
        count = call.args[0]
        return (
            isinstance(count, ast.Constant)
            and isinstance(count.value, int)
            and (count.value <= _FEW)
        )
    return False


def _is_serving(decorator: ast.expr) -> bool:
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in _SERVING
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
