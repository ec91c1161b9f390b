"""Decides from the test of an `if` whether the code that it guards runs repeatedly.

Code under `if step % 100 == 0:` does, under `if model is None:` it does not, and under
`if os.path.isfile(path):` it does in a loop that binds `path` on every turn.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from sojourn.audit.lint.module import Function, last_name, parameters

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.AsyncFor | ast.While | Comprehension

_EPISODE = frozenset({"done", "terminal", "is_done", "is_terminal", "episode_done"})
_SETTINGS = frozenset({"FLAGS", "args", "flags", "hparams", "cfg", "config", "opt", "params"})
_CHANGING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.NotEq)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_COUNTING = frozenset({"range", "xrange", "enumerate", "trange"})
# Functions that tests call with one item after another.
_ASKING = frozenset(
    "endswith startswith isfile isdir exists match search fullmatch isdigit isalpha isinstance any "
    "all".split()
)
_EXTENSION = re.compile(r"\.[A-Za-z]\w+$")
_NUMBERS = frozenset({"int", "float", "round", "abs"})
_SHAPES = frozenset({"shape", "ndim", "size", "dtype"})
_FOUND = (ast.Call, ast.Subscript, ast.Attribute)
_PLAIN = frozenset({"len", "isinstance", "type", "str", "int", "float", "list", "tuple", "np"})
_FILLING = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})


class Turns(Enum):
    """On which turns of a loop, or calls of a function, a test holds."""

    AGAIN = auto()  # on several of them
    SAME = auto()  # on all turns or none
    ONCE = auto()  # on one turn each time that the loop runs
    UNKNOWN = auto()


def turns_of(branch: ast.If, child: ast.AST, region: Loop | Function) -> Turns:
    """On which turns of this loop or function the branch with `child` is taken."""
    test = branch.test
    if isinstance(region, Function):
        # `if shape != self.shape:` may exist so that the branch runs only once.
        is_asked = any(_is_asked(part, region) for part in ast.walk(test))
        is_again = is_asked or _is_repeating(test) or _is_new_best(branch, child)
        return Turns.AGAIN if is_again else Turns.UNKNOWN
    if _comes_again(test) or _is_every_other_turn(branch, child) or _is_there(branch, child):
        return Turns.AGAIN
    if _is_fixed(test, region):
        return Turns.SAME
    if _varies(test, branch, region):
        return Turns.AGAIN
    return Turns.ONCE if child in branch.body and _is_once(test, region) else Turns.UNKNOWN


def as_branch(node: ast.IfExp | ast.BoolOp, child: ast.AST) -> list[tuple[ast.If, ast.AST]]:
    """The `if` statement that is equivalent to the condition on a part of an expression.

    `step % 100 == 0 and sess.run(nan)`, `sess.run(x) if done else None`.
    """
    if isinstance(node, ast.IfExp):
        before, holds = [node.test], child is node.body
        if child is node.test:
            return []
    else:
        before = node.values[: node.values.index(child)]  # type: ignore[arg-type]
        holds = isinstance(node.op, ast.And)
        if not before:
            return []
    test = before[0] if len(before) == 1 else ast.BoolOp(node.op, before)  # type: ignore[union-attr]
    ways: tuple[list[Any], list[Any]] = ([child], []) if holds else ([], [child])
    return [(ast.If(test, *ways), child)]


def asked_parameter(branch: ast.If, child: ast.AST, function: Function) -> tuple[str, bool] | None:
    """The parameter that decides on this branch, and whether it must be given.

    `if train_op is None:`, `if len(weights) > 0:`.
    """
    if child not in branch.body:
        return None
    test = branch.test
    is_given = not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
    asked = test if is_given else test.operand  # type: ignore[attr-defined]
    if isinstance(test, ast.Compare):
        text = ast.unparse(test)
        is_given = text.endswith((" is not None", " > 0"))
        asked = test.left if is_given or text.endswith(" is None") else test
        is_sized = isinstance(asked, ast.Call) and last_name(asked.func) == "len" and asked.args
        if text.endswith(" > 0") and not is_sized:
            return None
        asked = asked.args[0] if is_sized else asked  # type: ignore[attr-defined]
    elif is_given and not is_unset(default_of(function, last_name(asked))):
        return None
    name = asked.id if isinstance(asked, ast.Name) else ""
    return (name, is_given) if name in parameters(function) else None


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a positional parameter, None if it has none."""
    names, defaults = parameters(function), function.args.defaults
    return dict(zip(reversed(names), reversed(defaults), strict=False)).get(name)


def is_unset(value: ast.expr | None) -> bool:
    """Whether this is None or False."""
    return isinstance(value, ast.Constant) and value.value in (None, False)


def is_flag(function: Function, name: str) -> bool:
    """Whether a parameter turns on something that is off by default: `debug=False`."""
    default = default_of(function, name)
    return isinstance(default, ast.Constant) and default.value is False


def is_told_by_arguments(test: ast.expr, function: Function) -> bool:
    """Whether the test depends only on the call's arguments, on chance or on progress.

    `if len(self.memory) < size: return` stops holding once the memory is full enough.
    """
    names = _names(test)
    given = set(parameters(function)) - {"self", "cls"}
    is_until = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Lt | ast.LtE)
    return is_until or _is_repeating(test) or bool(names & given and names <= given | _PLAIN)


def _comes_again(test: ast.expr) -> bool:
    """Whether a test holds repeatedly or always: `step % 100 == 0`, `done`, `FLAGS.summaries`.

    Other tests may hold only once.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if _is_repeating(test):
        return True
    nodes = list(ast.walk(test))
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], _CHANGING):
        # `loss < best`, `newest != last`; but `epoch >= epochs - 1` holds on the last turn only.
        return not any(isinstance(n, ast.Constant) for n in nodes)
    names = _names(test)
    if "__name__" in names or (isinstance(test, ast.Name) and test.id in _EPISODE):
        return True
    is_plain = isinstance(test, ast.Name | ast.Attribute)
    return is_plain and bool(names) and names <= _SETTINGS


def _is_repeating(test: ast.expr) -> bool:
    """Whether a test holds repeatedly anywhere: `step % 100 == 0`, `random.random() < epsilon`."""
    return any(
        (isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod))
        or (isinstance(n, ast.Call) and last_name(n.func) in ("mod", "rand", "randint", "randn"))
        or (isinstance(n, ast.Call) and "random" in ast.unparse(n.func))
        for n in ast.walk(test)
    )


def _is_new_best(branch: ast.If, child: ast.AST) -> bool:
    """Whether this is `if score > self.best:`, and the branch sets `self.best`."""
    test = branch.test
    if child not in branch.body or not isinstance(test, ast.Compare):
        return False
    sides = [s for s in (test.left, test.comparators[0]) if isinstance(s, ast.Attribute)]
    is_order = isinstance(test.ops[0], _ORDER) and len(sides) == 1
    return is_order and any(binds(part, sides[0].attr) for part in branch.body)


def _is_every_other_turn(branch: ast.If, child: ast.AST) -> bool:
    """Whether `child` is in the `else` of an equality test such as `if step == 0:`."""
    test = branch.test
    return (
        child in branch.orelse and isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
    )


def _is_there(branch: ast.If, child: ast.AST) -> bool:
    """Whether this is `if self.image is not None:`, true from some turn on.

    Unless the branch itself sets the attribute again.
    """
    test = branch.test
    if child not in branch.body or not isinstance(test, ast.Compare):
        return False
    is_asked = isinstance(test.left, ast.Attribute) and isinstance(test.ops[0], ast.IsNot)
    return is_asked and not any(binds(part, last_name(test.left)) for part in branch.body)


def _is_fixed(test: ast.expr, loop: Loop) -> bool:
    """Whether all turns decide alike: `if training:` of a name that the loop does not bind."""
    nodes = list(ast.walk(test))
    names = _names(test)
    is_plain = not any(isinstance(n, ast.Call | ast.Attribute | ast.Subscript) for n in nodes)
    return is_plain and bool(names) and not any(binds(loop, name) for name in names)


def _is_once(test: ast.expr, loop: Loop) -> bool:
    """Whether this compares the loop's own counter: `if step == steps - 1:`."""
    is_equal = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
    return is_equal and bool(_names(test) & _targets(loop))


def _varies(test: ast.expr, branch: ast.If, loop: Loop) -> bool:
    """Whether each turn tests another object, as `if path.endswith(".png"):` does."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return not isinstance(test.operand, ast.Name) and _varies(test.operand, branch, loop)
    if isinstance(test, ast.BoolOp):
        found = [_varies(part, branch, loop) for part in test.values]
        rest = [part for part, varies in zip(test.values, found, strict=True) if not varies]
        is_enough = isinstance(test.op, ast.Or) or all(_is_of_items(part, loop) for part in rest)
        return any(found) and is_enough
    if _is_past(test, loop) or _is_asked(test, loop):
        return True
    counters, results = _counters(loop), set(_results(loop, branch))
    names = _names(test)
    indices = {n for s in ast.walk(test) if isinstance(s, ast.Subscript) for n in _names(s.slice)}
    if (names - indices) & counters or not names & (_targets(loop) | results):
        return False
    if isinstance(test, ast.Name):
        return test.id in results
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return False
    left, op, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(op, ast.In | ast.NotIn):
        if isinstance(left, ast.Constant):
            # `if ".png" in path:`; but `if "output" in variable.name:` may hold for a single item.
            return _is_measured(right) or bool(_EXTENSION.search(str(left.value)))
        return not _is_filled(right, loop)
    if isinstance(op, ast.IsNot):
        return isinstance(left, ast.Name) and left.id in results
    if isinstance(op, ast.Is):
        return False
    if isinstance(op, _ORDER):
        return _is_of_items(test, loop) or _is_measured(left)
    is_text = isinstance(right, ast.Constant) and isinstance(right.value, str)
    if is_text and isinstance(left, ast.Name) and left.id in _parsed(loop, branch):
        return True
    return _is_measured(left)


def _is_measured(node: ast.expr) -> bool:
    """Whether this mentions a size or type: `image.ndim`, `len(image.shape)`."""
    return any(
        (isinstance(n, ast.Attribute) and n.attr in _SHAPES)
        or (isinstance(n, ast.Call) and last_name(n.func) == "len")
        for n in ast.walk(node)
    )


def _is_of_items(test: ast.expr, loop: Loop) -> bool:
    """Whether each turn tests another item: `score > 0.5` where `score = float(scores[i])`."""
    if not isinstance(test, ast.Compare):
        return False
    assigned = [n for n in ast.walk(loop) if isinstance(n, ast.Assign)]
    names = {name for node in assigned if _takes(node.value, loop) for name in _bound(node)}
    return isinstance(test.left, ast.Name) and test.left.id in names


def _takes(value: ast.expr, loop: Loop) -> bool:
    """Whether this is `items[i]` with the loop's own `i`, or a number made from that item."""
    if isinstance(value, ast.Call) and last_name(value.func) in _NUMBERS and len(value.args) == 1:
        value = value.args[0]
    return isinstance(value, ast.Subscript) and bool(_names(value.slice) & _targets(loop))


def _parsed(loop: Loop, branch: ast.If) -> set[str]:
    """The names that are bound to results of calls, as in `ext = name.split(".")[-1]`."""
    inside = set(ast.walk(branch))
    assigned = [n for n in ast.walk(loop) if isinstance(n, ast.Assign) and n not in inside]
    made = [n for n in assigned if any(isinstance(part, ast.Call) for part in ast.walk(n.value))]
    return {name for node in made for name in _bound(node)}


def _is_asked(node: ast.AST, region: Loop | Function) -> bool:
    """Whether this checks a value that each turn or call gets anew: `path.endswith(".png")`."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in _ASKING:
        return False
    return bool(_names(node) & _changing(region))


def _is_past(test: ast.expr, loop: Loop) -> bool:
    """Whether a test stays true once it holds: `step > 5000`, `len(memory) > 500`."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Gt | ast.GtE):
        return False
    if not isinstance(test.comparators[0], ast.Constant):
        return False
    left = test.left
    if isinstance(left, ast.Call):
        return last_name(left.func) == "len"
    if isinstance(left, ast.Name) and left.id in _counters(loop):
        return True
    steps = [
        n for n in ast.walk(loop) if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)
    ]
    return any(ast.unparse(step.target) == ast.unparse(left) for step in steps)


def _targets(region: Loop | Function) -> set[str]:
    """The names that the head of the loop or function binds on every turn or call."""
    if isinstance(region, Function):
        return set(parameters(region)) - {"self", "cls"}
    if isinstance(region, ast.While):
        return set()
    heads = region.generators if isinstance(region, Comprehension) else [region]
    return {name for head in heads for name in _names(head.target)}


def _changing(region: Loop | Function) -> set[str]:
    """The names that change on every turn or call: targets, and all that derive from them."""
    found = _targets(region)
    if isinstance(region, Function):
        return found
    nodes = list(ast.walk(region))
    found |= {last_name(n.target) for n in nodes if isinstance(n, ast.AugAssign)}
    assigned = [n for n in nodes if isinstance(n, ast.Assign)]
    before = -1
    while before < len(found):
        before = len(found)
        for node in assigned:
            if _names(node.value) & found:
                found |= _bound(node)
    return found


def _counters(loop: Loop) -> set[str]:
    """The loop's counter: `i` of `for i in range(n)` and of `for i, x in enumerate(xs)`."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return set()
    if last_name(loop.iter.func) not in _COUNTING:
        return set()
    names = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
    return set(names[:1])


def _results(loop: Loop, branch: ast.If) -> Iterator[str]:
    """The names that the loop binds to computed values outside the branch."""
    inside = set(ast.walk(branch))
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and node not in inside and isinstance(node.value, _FOUND):
            yield from _bound(node)


def _bound(node: ast.Assign) -> set[str]:
    nodes = (n for target in node.targets for n in ast.walk(target))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _is_filled(container: ast.expr, loop: Loop) -> bool:
    """Whether the loop adds items to a container: `if name not in cache: cache[name] = ...`"""
    text = ast.unparse(container)
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            held: ast.expr | None = node.value
        elif isinstance(node, ast.Attribute) and node.attr in _FILLING:
            held = node.value
        else:
            held = None
        if held is not None and ast.unparse(held) == text:
            return True
    return binds(loop, last_name(container))


def binds(node: ast.AST, name: str) -> bool:
    """Whether the code below `node` binds a name, or an attribute of that name."""
    for part in ast.walk(node):
        is_bound = isinstance(part, ast.Name | ast.Attribute) and not isinstance(part.ctx, ast.Load)
        if is_bound and last_name(part) == name:  # type: ignore[arg-type]
            return True
    return False
