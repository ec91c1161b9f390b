"""Finds sessions and ops that are created repeatedly."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePath

from sojourn.audit import codes
from sojourn.audit.lint.built import (
    is_built_up,
    is_for_what_is_built,
    only_prepares,
    starts_what_is_kept,
)
from sojourn.audit.lint.conditions import is_flag
from sojourn.audit.lint.containers import is_collected
from sojourn.audit.lint.definitions import Definition
from sojourn.audit.lint.module import Function, Module, last_name, own_nodes
from sojourn.audit.lint.ops import ASSIGNING, adds_op
from sojourn.audit.lint.problem import Problem, problem_at
from sojourn.audit.lint.program import asked_once
from sojourn.audit.lint.repeats import (
    calls_in_loops,
    function_around,
    has_graph_of_its_own,
    is_eager,
    is_unconditional,
    is_used_up,
    leaves_after,
    loops_around,
    makes_graphs,
    renews,
    runs_steps,
)
from sojourn.audit.lint.serving import is_for_many_calls, occasion
from sojourn.audit.lint.steps import fetches, is_made_by, is_step, is_tensor, makes_op
from sojourn.source import dotted

_EAGER = ("enable_eager_execution", "enable_v2_behavior")
_PLAIN = frozenset({"staticmethod", "classmethod", "property"})


class Loops:
    """The rules that depend on which code runs repeatedly."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def problems(self) -> Iterator[Problem]:
        for call in self.module.calls:
            if self.module.opens(call) is not None:
                yield from self._opened_again(call)
        if any(last_name(call.func) in _EAGER for call in self.module.calls):
            return  # in this file, no op surely goes into a graph
        seen: set[ast.AST] = set()
        for node in self._makers():
            place, problem = self._added_again(node)
            if problem is not None and place not in seen:
                seen.add(place)
                yield problem

    # Sessions -----------------------------------------------------------------------------

    def _opened_again(self, call: ast.Call) -> Iterator[Problem]:
        if (self.module.opens(call) or "").startswith("sojourn."):
            return  # cheap to open, and leaves nothing behind
        if is_collected(self.module, call):
            return
        for loop in loops_around(self.module, call):
            if has_graph_of_its_own(self.module, call, loop):
                return
            if not makes_graphs(self.module, loop) and not leaves_after(self.module, call, loop):
                detail = f"opened on every turn of the loop on line {loop.lineno}"
                yield problem_at(call, codes.SESSION_PER_CALL, detail)
                return
        function = function_around(self.module, call)
        if function is None or makes_graphs(self.module, function):
            return
        if has_graph_of_its_own(self.module, call, function):
            return
        every = occasion(self.module, function)
        if every:
            detail = f"`{function.name}` opens it for every {every}"
            yield problem_at(call, codes.SESSION_PER_CALL, detail)
            return
        for caller, again, loops in calls_in_loops(self.module, function):
            if again in loops:
                continue  # `pool.map(function, items)`: perhaps in a process of its own
            detail = f"`{function.name}` opens it, and {self._place(caller, again)} in a loop"
            yield problem_at(call, codes.SESSION_PER_CALL, detail)
            return

    def _place(self, caller: Module, call: ast.Call) -> str:
        if caller is self.module:
            return f"line {call.lineno} calls that"
        return f"{PurePath(caller.path).name}:{call.lineno} calls that"

    # Ops ----------------------------------------------------------------------------------

    def _makers(self) -> Iterator[ast.expr]:
        """Every expression of this file that adds an op when it is evaluated, in order."""
        for call in self.module.calls:
            if _adds(self.module, call) or _is_builder_call(self.module, call):
                yield call
            elif is_step(self.module, call):
                for fetch in fetches(self.module, call):
                    if makes_op(self.module, fetch) or self._is_built_anew(fetch):
                        yield fetch
                    # `op = v.assign(x)` creates the op that is fetched by the name `op`.
                    yield from (v for v in self._named(fetch) if makes_op(self.module, v))

    def _named(self, fetch: ast.expr) -> Iterator[ast.expr]:
        """The values of a fetched name, and the items that are appended to it if it is a list."""
        for value in self.module.values_of(fetch):
            if isinstance(value, ast.ListComp):
                yield value.elt
            elif value is not None:
                yield value
        if not isinstance(fetch, ast.Name):
            return
        scope = self.module.scope_of(fetch)
        for node in self.module.attributes.get("append", ()):
            call = self.module.parents[node]
            is_put = isinstance(node.value, ast.Name) and node.value.id == fetch.id
            if is_put and isinstance(call, ast.Call) and self.module.scope_of(call) is scope:
                yield from call.args
                yield from (v for a in call.args for v in self.module.values_of(a) if v is not None)

    def _is_built_anew(self, fetch: ast.expr) -> bool:
        """Whether fetching builds the op anew: `model.loss` as a property, or `model.loss()`."""
        program = self.module.program
        if not isinstance(fetch, ast.Call):
            found = program.definition(self.module, fetch)
            if found is None or not isinstance(found.node, Function):
                return False
            is_property = {last_name(d) for d in found.node.decorator_list} == {"property"}
            return is_property and _builds_once(found)
        found = program.callee(self.module, fetch)
        if found is not None:
            return _builds_once(found, even_if_it_runs=True)
        if not isinstance(fetch.func, ast.Attribute) or self.module.names.meaning(fetch.func):
            return False
        # The fetch is a tensor, so the method returns one: consider all methods of that name.
        methods = program.methods_named(fetch.func.attr)
        return bool(methods) and all(map(_builds_once, methods))

    def _is_either_way(self, branch: ast.If) -> bool:
        """Whether a condition only chooses which op is added."""
        ways = (branch.body, branch.orelse)
        return all(_surely_adds(self.module, way) for way in ways)

    def _is_kept(self, node: ast.expr, region: ast.AST) -> bool:
        """Whether what `node` builds outlives the loop or function and is not run inside it."""
        module = self.module
        found = module.program.callee(module, node) if isinstance(node, ast.Call) else None
        if found is not None and isinstance(found.node, ast.ClassDef):
            return not is_used_up(module, node, region)  # type: ignore[arg-type]
        return is_built_up(module, node, region)

    def _is_run_at_once(self, node: ast.expr) -> bool:
        """Whether the op is run directly, not by later calls: `sess.run(tf.random_normal(n))`."""
        parent = self.module.parents[node]
        return isinstance(parent, ast.Call) and is_step(self.module, parent)

    def _added_again(self, node: ast.expr) -> tuple[ast.AST, Problem | None]:
        module = self.module
        if is_eager(module, node):
            return node, None
        for loop in loops_around(module, node):
            if runs_steps(module, loop) and not renews(module, loop):
                if leaves_after(module, node, loop) or self._is_kept(node, loop):
                    continue  # the code around the loop may run it
                if only_prepares(module, loop) or is_for_what_is_built(module, node, loop):
                    return node, None
                if starts_what_is_kept(module, node, loop):
                    return node, None
                detail = f"added on every turn of the loop on line {loop.lineno}"
                detail += _instead(module, node)
                return loop, problem_at(node, codes.GRAPH_GROWS, detail)
        asked: dict[str, bool] = {}
        function = function_around(module, node, asked, self._is_either_way)
        if function is None or renews(module, function) or not runs_steps(module, function):
            return node, None
        if self._is_kept(node, function):
            return node, None
        every = "" if asked else occasion(module, function)
        if every:
            detail = f"`{function.name}` adds it for every {every}"
            return function, problem_at(node, codes.GRAPH_GROWS, detail)
        if {last_name(d) for d in function.decorator_list} - _PLAIN:
            return node, None
        for caller, call, loops in calls_in_loops(module, function, asked):
            if any(not renews(caller, loop) for loop in loops):
                detail = f"`{function.name}` adds it, and {self._place(caller, call)} in a loop"
                return function, problem_at(node, codes.GRAPH_GROWS, detail)
        is_said = all(asked.values()) or self._is_run_at_once(node)
        is_said = is_said and not any(is_flag(function, name) for name in asked)
        if is_said and is_for_many_calls(module, function, node):
            detail = f"`{function.name}` adds it on every call"
            return function, problem_at(node, codes.GRAPH_GROWS, detail)
        return node, None


def _adds(module: Module, call: ast.Call) -> bool:
    if adds_op(module.names, call):
        kept = last_name(call.func) == "convert_to_tensor" and call.args
        return not (kept and is_tensor(module, call.args[0]))
    if _is_layer(module, call.func):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in ASSIGNING:
        return is_tensor(module, call.func.value)
    if call.func.attr in ("make_one_shot_iterator", "make_initializable_iterator"):
        return True
    if call.func.attr == "get_next":
        owner = call.func.value
        owner = owner.func if isinstance(owner, ast.Call) else owner
        return not call.args and "iter" in last_name(owner).lower()
    is_training = call.func.attr in ("minimize", "apply_gradients", "compute_gradients")
    return is_training and _is_optimizer(module, call.func.value)


def _is_builder_call(module: Module, call: ast.Call) -> bool:
    """Whether this calls a function of the program that adds ops on each call and runs none."""
    found = module.program.callee(module, call)
    return found is not None and _builds_once(found)


def _builds_once(found: Definition, even_if_it_runs: bool = False) -> bool:
    if isinstance(found.node, ast.ClassDef):
        made = found.module.program.constructor(found)
        return made is not None and _builds_once(made)
    function, there = found.node, found.module
    if not even_if_it_runs and runs_steps(there, function):
        return False
    return _builds(there, function)


@asked_once
def _builds(module: Module, function: Function) -> bool:
    if {last_name(d) for d in function.decorator_list} - _PLAIN:
        return False
    if any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in own_nodes(function)):
        return False
    return not renews(module, function) and _surely_adds(module, function.body)


def _surely_adds(module: Module, statements: list[ast.stmt]) -> bool:
    """Whether every way through these statements adds an op."""
    for statement in statements:
        if isinstance(statement, ast.If):
            ways = (statement.body, statement.orelse)
            if all(_surely_adds(module, way) for way in ways):
                return True
        elif isinstance(statement, ast.With | ast.For | ast.While | ast.Try):
            if _surely_adds(module, statement.body):
                return True
        elif not isinstance(statement, Function | ast.ClassDef):
            calls = [n for n in own_nodes(statement) if isinstance(n, ast.Call)]
            calls = [c for c in calls if is_unconditional(module, c, statement)]
            steps = [c for c in calls if is_step(module, c)]
            if any(makes_op(module, f) for step in steps for f in fetches(module, step)):
                return True
            if any(_adds(module, c) or _is_builder_call(module, c) for c in calls):
                return True
        if any(isinstance(n, ast.Return) for n in ast.walk(statement)):
            return False
    return False


def _instead(module: Module, node: ast.expr) -> str:
    """The advice on setting a variable, for example to loaded weights, without a new op."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "assign" or not node.args:
        return ""
    if is_tensor(module, node.args[-1]):
        return ""
    return "; `variable.load(value, session)` adds none"


def _is_layer(module: Module, node: ast.expr) -> bool:
    """Whether calling this adds ops: `dense = tf.layers.Dense(3)`, `embed = hub.Module(...)`."""
    if isinstance(node, ast.Call):
        return False
    return is_made_by(module, node, lambda func: _makes_layers(module, func))


def _makes_layers(module: Module, node: ast.expr) -> bool:
    meaning = module.names.meaning(node) or ""
    if meaning.startswith(("tensorflow.layers.", "tensorflow.keras.layers.")):
        return meaning.rpartition(".")[2][:1].isupper()
    root = (dotted(node) or "").split(".")[0]
    return last_name(node) == "Module" and module.names.foreign.get(root) == "tensorflow_hub"


def _is_optimizer(module: Module, node: ast.expr) -> bool:
    return is_made_by(
        module, node, lambda func: (module.names.meaning(func) or "").endswith("Optimizer")
    )
