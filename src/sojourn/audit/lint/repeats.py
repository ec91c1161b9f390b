"""Finds code that runs repeatedly: in a loop, or in a function that a loop calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from sojourn.audit.lint.conditions import (
    Comprehension,
    Loop,
    Turns,
    as_branch,
    asked_parameter,
    binds,
    default_of,
    is_told_by_arguments,
    is_unset,
    turns_of,
)
from sojourn.audit.lint.definitions import argument_for
from sojourn.audit.lint.module import Function, Module, is_self, last_name, own_nodes, parameters
from sojourn.audit.lint.program import asked_once
from sojourn.audit.lint.steps import is_step, looks_like_session

_FRESH = frozenset({"tensorflow.Graph", "tensorflow.reset_default_graph"})
_CASES = 10  # the same limit as _FEW, for files with tests
_FEW = 3  # up to this many turns, a literal loop is a list of cases, not a repetition
_DEEP = 4  # most levels of calls or names that are followed
_ASIDE = frozenset({"Thread", "Process", "Timer", "submit", "apply_async"})
_NOTHING: Mapping[str, bool] = MappingProxyType({})


def loops_around(module: Module, node: ast.AST) -> Iterator[Loop]:
    """The loops of the same scope that surely run this node on every turn, or every nth turn."""
    child, parent = node, module.parents.get(node)
    branches: list[tuple[ast.If, ast.AST]] = []
    while parent is not None and not isinstance(
        parent, Function | ast.ClassDef | ast.Lambda | ast.Module
    ):
        if isinstance(parent, ast.If) and child is not parent.test:
            branches.append((parent, child))
        elif isinstance(parent, ast.IfExp | ast.BoolOp):
            branches += as_branch(parent, child)
        elif isinstance(parent, ast.ExceptHandler):
            return
        elif isinstance(parent, Loop) and _repeats(parent, child) and not _is_short(module, parent):
            turns = [turns_of(*branch, parent) for branch in branches]
            if Turns.UNKNOWN in turns:
                return
            if Turns.ONCE not in turns:
                yield parent
            # A test that varies in this loop varies in the outer loops as well.
            pairs = zip(branches, turns, strict=True)
            branches = [branch for branch, turn in pairs if turn is Turns.SAME]
        if not isinstance(parent, ast.comprehension) or child not in parent.ifs:
            child = parent
        parent = module.parents.get(parent)


def function_around(
    module: Module,
    node: ast.AST,
    asked: dict[str, bool] | None = None,
    is_either_way: Callable[[ast.If], bool] = lambda _: False,
) -> Function | None:
    """The function that runs this node on every call, or None.

    Branches for which `is_either_way` holds do not count as conditions. With `asked`, the node may
    depend on parameters that are given or None: these parameters are added to `asked`.
    """
    child, parent = node, module.parents.get(node)
    branches: list[tuple[ast.If, ast.AST]] = []
    while parent is not None:
        if isinstance(parent, Function):
            if asked is not None:
                found = [asked_parameter(*branch, parent) for branch in branches]
                asked |= dict(one for one in found if one is not None)
                branches = [b for b, one in zip(branches, found, strict=True) if one is None]
            is_asked_anew = all(turns_of(*b, parent) is Turns.AGAIN for b in branches)
            return parent if is_asked_anew and _is_reached_always(parent, child) else None
        if isinstance(parent, ast.If) and child is not parent.test:
            if not is_either_way(parent):
                branches.append((parent, child))
        elif isinstance(parent, ast.IfExp | ast.BoolOp):
            branches += as_branch(parent, child)
        elif isinstance(parent, ast.ExceptHandler | ast.Lambda):
            return None
        elif isinstance(parent, Loop):
            # `if batch == 0:` for the loop's own counter: runs once on each call.
            branches = [b for b in branches if turns_of(*b, parent) is not Turns.ONCE]
        child, parent = parent, module.parents.get(parent)
    return None


def is_unconditional(module: Module, node: ast.AST, statement: ast.stmt) -> bool:
    """Whether a statement always evaluates this part when it runs."""
    while node is not statement:
        node = module.parents[node]
        if isinstance(node, ast.IfExp | ast.BoolOp | ast.Lambda):
            return False
    return True


def calls_in_loops(
    module: Module, function: Function, asked: Mapping[str, bool] = _NOTHING, depth: int = 0
) -> Iterator[tuple[Module, ast.Call, list[ast.AST]]]:
    """Calls of this function that are repeated, with the loops around them.

    A call by another function counts if a loop calls that function, and so on;
    `map(function, items)` is a loop too. Calls whose arguments contradict `asked` (given or None,
    by parameter) are left out.
    """
    for caller, call in module.program.mappings_of(function):
        if not asked and not _is_few(caller, call.args[1]):
            yield caller, call, [call]
    for caller, call in module.program.calls_of(function):
        if not all(gives(caller, call, function, *one) for one in asked.items()):
            continue
        loops: list[ast.AST] = [
            loop
            for loop in loops_around(caller, call)
            if not makes_graphs(caller, loop)
            and not leaves_after(caller, call, loop)
            and (function.name != "__init__" or is_used_up(caller, call, loop))
        ]
        if loops:
            yield caller, call, loops
        elif depth < _DEEP:
            outer = function_around(caller, call)
            if outer is None or outer is function or outer.decorator_list:
                continue
            if function.name == "__init__" != outer.name and not is_used_up(caller, call, outer):
                continue
            if not makes_graphs(caller, outer):
                yield from calls_in_loops(caller, outer, depth=depth + 1)


def gives(module: Module, call: ast.Call, function: Function, name: str, is_given: bool) -> bool:
    """Whether a call sets this parameter (`is_given`), or leaves it at None or False (if not)."""
    found = module.program.definition(module, call.func)
    if found is None or any(keyword.arg is None for keyword in call.keywords):
        return False
    is_bound = found.is_bound or isinstance(found.node, ast.ClassDef)
    given = argument_for(call, name, parameters(function)[is_bound:])
    if given is None and not any(isinstance(a, ast.Starred) for a in call.args):
        given = default_of(function, name)
    return given is not None and is_unset(given) is not is_given


def renews(module: Module, node: ast.AST) -> bool:
    """Whether each turn or call creates its own graph or session."""
    return makes_graphs(module, node) or _opens(module, node)


@asked_once
def _opens(module: Module, node: ast.AST) -> bool:
    """Whether this opens a session on its own graph, or calls a function that does."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    opened = [call for call in calls if module.opens(call)]
    if opened:
        return any(call.args or not _is_default_graph(module, call) for call in opened)
    found = [module.program.callee(module, c) for c in calls if isinstance(node, Function)]
    return any(f and isinstance(f.node, Function) and _opens(f.module, f.node) for f in found)


@asked_once
def makes_graphs(module: Module, node: ast.AST) -> bool:
    """Whether this loop or function creates a graph or empties the default graph."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        if module.names.meaning(part.func) in _FRESH:
            return True
        name = last_name(part.func)
        if name in ("clear_session", "reset_default_graph", "Graph"):
            return True
        if name == "as_default" and isinstance(part.func, ast.Attribute):
            if _is_graph_of_its_own(module, part.func.value, node):
                return True
        else:
            found = module.program.definition(module, part.func)
            if found is not None and makes_graphs(found.module, found.node):
                return True
    return False


def has_graph_of_its_own(module: Module, opening: ast.Call, node: ast.AST) -> bool:
    """Whether a session gets a graph that may differ on each turn or call."""
    given = [k.value for k in opening.keywords if k.arg == "graph"] + opening.args[1:2]
    if module.names.session_class(opening) is None:  # a factory: any argument may be the graph
        given = [*opening.args, *(k.value for k in opening.keywords)]
    return any(
        not (isinstance(graph, ast.Attribute) and is_self(graph.value)) or binds(node, graph.attr)
        for graph in given
    )


def _is_default_graph(module: Module, opening: ast.Call) -> bool:
    """Whether a session surely gets the default graph, in which added ops stay."""
    return module.names.session_class(opening) == "tensorflow.Session" and not any(
        keyword.arg in ("graph", None) for keyword in opening.keywords
    )


def _is_graph_of_its_own(module: Module, owner: ast.expr, node: ast.AST) -> bool:
    """Whether the default graph that `node` installs may differ each time."""
    if looks_like_session(owner):
        return False
    if isinstance(owner, ast.Call):
        return not module.opens(owner)
    if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name):
        return owner.value.id != "self" or binds(node, owner.attr)
    if not isinstance(owner, ast.Name):
        return True
    if not isinstance(node, Function):
        return binds(node, owner.id)
    return module.home_of(owner) is not module.tree and not _is_given_one(module, owner, node)


def _is_given_one(module: Module, graph: ast.Name, function: Function) -> bool:
    """Whether every call passes for this parameter a graph that was created outside all loops."""
    calls = list(module.program.calls_of(function))
    names = parameters(function)[module.class_of(function) is not None :]
    given = [(caller, argument_for(call, graph.id, names)) for caller, call in calls]
    made = [(m, m.values_of(g)) for m, g in given if isinstance(g, ast.Name)]
    return len(made) == len(given) > 0 and all(
        len(values) == 1
        and isinstance(values[0], ast.Call)
        and last_name(values[0].func) == "Graph"
        and not any(True for _ in loops_around(m, values[0]))
        for m, values in made
    )


@asked_once
def runs_steps(module: Module, node: ast.AST) -> bool:
    """Whether this loop or function runs steps, itself or through functions of the program."""
    nodes = own_nodes(node) if isinstance(node, Function) else ast.walk(node)
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    return any(_is_step_of(module, call) for call in calls)


def is_used_up(module: Module, made: ast.Call, region: ast.AST) -> bool:
    """Whether an object that a loop or function creates runs steps there and is used nowhere else.

    `net = Net(rate); net.fit(data)`. Objects in a list, or with a thread each, are created once.
    """
    parent = module.parents[made]
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    target = parent.optional_vars if isinstance(parent, ast.withitem) else target
    nodes = list(ast.walk(region))
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    if any(last_name(call.func) in _ASIDE for call in calls):
        return False
    uses: list[ast.AST] = [made]
    if isinstance(target, ast.Name):
        uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == target.id]
        uses = [n for n in uses if isinstance(n.ctx, ast.Load)]  # type: ignore[attr-defined]
    parents = [module.parents[use] for use in uses]
    steps = {n for call in calls if _is_step_of(module, call) for n in ast.walk(call)}
    return all(isinstance(p, ast.Attribute) for p in parents) and any(p in steps for p in parents)


def _is_step_of(module: Module, call: ast.Call) -> bool:
    """Whether a call runs a step, itself or through a function of the program."""
    if is_step(module, call) and not is_eager(module, call):
        return True
    found = module.program.callee(module, call)
    is_function = found is not None and isinstance(found.node, Function)
    return is_function and runs_steps(found.module, found.node)  # type: ignore[union-attr]


def leaves_after(module: Module, node: ast.AST, loop: Loop) -> bool:
    """Whether the loop is left after this node, so that the node runs only once."""
    child, parent = node, module.parents[node]
    breaks = False
    while True:
        for _, block in ast.iter_fields(parent):
            if isinstance(block, list) and child in block:
                rest = block[block.index(child) :]
                rest += [s.body[-1] for s in rest if isinstance(s, ast.With)]
                if any(isinstance(s, ast.Return | ast.Raise) for s in rest):
                    return True
                breaks |= any(isinstance(s, ast.Break) for s in rest)
        if parent is loop:
            return breaks
        if isinstance(parent, Loop):
            breaks = False  # the break left only the inner loop
        child, parent = parent, module.parents[parent]


def is_eager(module: Module, node: ast.AST) -> bool:
    """Whether this may run without a graph: `if tf.executing_eagerly():`, a gradient tape."""
    while node in module.parents:
        node = module.parents[node]
        if isinstance(node, ast.If | ast.IfExp):
            signs = [node.test]
        elif isinstance(node, ast.With):
            signs = [item.context_expr for item in node.items]
        elif isinstance(node, ast.ClassDef):
            signs = node.bases
        else:
            signs = node.decorator_list if isinstance(node, Function) else []
        text = " ".join(map(ast.unparse, signs))
        if "eager" in text.lower() or "GradientTape" in text or "tf.function" in text:
            return True
    return False


def _repeats(loop: Loop, child: ast.AST) -> bool:
    if isinstance(loop, Comprehension):
        tests = [test for g in loop.generators for test in g.ifs]
        return child in tests[:1] or (not tests and not isinstance(child, ast.comprehension))
    return child in loop.body or (isinstance(loop, ast.While) and child is loop.test)


def _is_reached_always(function: Function, statement: ast.AST) -> bool:
    """Whether no earlier `if built: return` keeps later calls from reaching the statement."""
    for earlier in function.body:
        if earlier is statement:
            return True
        if isinstance(earlier, Function | ast.ClassDef):
            continue
        if isinstance(earlier, ast.If) and is_told_by_arguments(earlier.test, function):
            continue
        if any(isinstance(n, ast.Return) for n in own_nodes(earlier)):
            return False
    return False


def _is_short(module: Module, loop: Loop) -> bool:
    if isinstance(loop, ast.While):
        return False
    if isinstance(loop, Comprehension):
        return all(_is_few(module, g.iter) for g in loop.generators)
    return _is_few(module, loop.iter)


def _is_few(module: Module, turns: ast.expr | None, depth: int = 0) -> bool:
    """Whether these turns are visibly no more than a few."""
    few = _CASES if module.is_test else _FEW
    if isinstance(turns, ast.Tuple | ast.List | ast.Set):
        return 0 < len(turns.elts) <= few  # an empty list is filled later
    if isinstance(turns, ast.Dict):
        return 0 < len(turns.keys) <= few
    if isinstance(turns, ast.Call):
        name = last_name(turns.func)
        if name in ("zip", "enumerate", "items", "sorted", "reversed", "list") and depth <= _DEEP:
            inner = turns.func.value if isinstance(turns.func, ast.Attribute) else None
            parts = [inner] if inner is not None else turns.args
            return any(_is_few(module, part, depth + 1) for part in parts)
        counts = [a.value if isinstance(a, ast.Constant) else None for a in turns.args]
        if name == "range" and counts and all(isinstance(c, int) for c in counts):
            return len(range(*counts)) <= few  # type: ignore[arg-type]
    if isinstance(turns, ast.Name) and depth <= _DEEP:
        values = module.values_of(turns)
        return len(values) == 1 and _is_few(module, values[0], depth + 1)
    return False
