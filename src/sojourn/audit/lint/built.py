"""Decides whether an op that a loop adds is kept for later and not run by the loop's own steps.

`cost += layer_cost(sess.run(layer), layer)` over the layers of a model builds one graph. The loop
runs steps on the way, but the ops that it adds do not run before the loop has ended.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sojourn.audit.lint.module import Module, last_name
from sojourn.audit.lint.ops import adds_op
from sojourn.audit.lint.steps import fetches, is_preparation, is_step, taken

_KEEPING = frozenset({"append", "extend", "add", "insert", "update"})


def is_built_up(module: Module, node: ast.expr, region: ast.AST) -> bool:
    """Whether the value of `node` leaves the loop or function `region` without having been run."""
    names: set[str] = set()
    leaves = False
    for part in _inside(node, module, region):
        if isinstance(part, ast.Call) and any(node in ast.walk(run) for run in taken(module, part)):
            return False
        if isinstance(part, ast.stmt):
            leaves |= _binds(part, names)
    grows = True
    while grows and names:
        before = len(names)
        for part in ast.walk(region):
            if isinstance(part, ast.For | ast.comprehension) and _mentions(part.iter, names):
                names |= {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
        for part in ast.walk(region):
            if hasattr(part, "body") or not _mentions(part, names):
                continue
            if isinstance(part, ast.stmt):
                leaves |= _binds(part, names)
            runs = taken(module, part) if isinstance(part, ast.Call) else []
            if any(_mentions(run, names) for run in runs):
                return False
        grows = len(names) > before
    if isinstance(region, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return True
    return leaves


def is_for_what_is_built(module: Module, node: ast.expr, loop: ast.AST) -> bool:
    """Whether the result of running `node` goes into a graph that the same loop builds up.

    `target = sess.run(features(content))`, then `loss += tf.nn.l2_loss(layer - target)`.
    """
    around = _inside(node, module, loop)
    if not any(isinstance(n, ast.Call) and is_step(module, n) for n in around):
        return False
    names: set[str] = set()
    if not isinstance(around[-1], ast.Assign) or _binds(around[-1], names):
        return False
    calls = [n for n in ast.walk(loop) if isinstance(n, ast.Call) and adds_op(module.names, n)]
    return any(_mentions(call, names) and is_built_up(module, call, loop) for call in calls)


def only_prepares(module: Module, loop: ast.AST) -> bool:
    """Whether a loop adds ops and runs nothing but initializers, as metrics for Keras do."""
    calls = [n for n in ast.walk(loop) if isinstance(n, ast.Call)]
    steps = [call for call in calls if is_step(module, call)]
    fetched = [fetch for step in steps for fetch in fetches(module, step)]
    builds = any(adds_op(module.names, c) and not is_preparation(c) for c in calls)
    return builds and bool(fetched) and all(map(is_preparation, fetched))


def starts_what_is_kept(module: Module, node: ast.expr, loop: ast.AST) -> bool:
    """Whether this initializes the models of an ensemble, each right after the loop creates it.

    `models.append(Model()); sess.run(tf.global_variables_initializer())`
    """
    made: list[ast.expr] = []
    for part in ast.walk(loop) if is_preparation(node) else ():
        if isinstance(part, ast.Call) and last_name(part.func) == "append":
            made += part.args
        elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Subscript):
            made.append(part.value)
    values = [v for one in made for v in (one, *module.values_of(one))]
    return any(isinstance(v, ast.Call) and last_name(v.func)[:1].isupper() for v in values)


def _inside(node: ast.AST, module: Module, region: ast.AST) -> list[ast.AST]:
    """The ancestors of a node, up to its statement or the region."""
    found: list[ast.AST] = []
    while node is not region:
        node = module.parents[node]
        found.append(node)
        if isinstance(node, ast.stmt):
            break
    return found


def _binds(statement: ast.stmt, names: set[str]) -> bool:
    """Add the names that get the statement's value; return whether the value outlives the turn."""
    if isinstance(statement, ast.Return):
        return True
    if isinstance(statement, ast.AugAssign):
        names.add(ast.unparse(statement.target))
        return True
    if isinstance(statement, ast.Assign):
        names |= {ast.unparse(n) for target in statement.targets for n in _given(target)}
        reads = {ast.unparse(n) for n in ast.walk(statement.value) if isinstance(n, ast.expr)}
        kept = any(isinstance(t, ast.Subscript | ast.Attribute) for t in statement.targets)
        return kept or any(ast.unparse(t) in reads for t in statement.targets)
    if isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Yield):
            return True
        func = call.func if isinstance(call, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr in _KEEPING:
            names.add(ast.unparse(func.value))
            return True
    return False


def _given(target: ast.expr) -> Iterator[ast.expr]:
    """The names, attributes and containers that an assignment to this target changes."""
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _given(part)
        return
    yield target
    if isinstance(target, ast.Subscript):
        yield from _given(target.value)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(
        isinstance(n, ast.Name | ast.Attribute | ast.Subscript) and ast.unparse(n) in names
        for n in ast.walk(node)
    )
