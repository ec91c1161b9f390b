"""Recognizes calls that run a step, their fetches, and expressions that are tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from sojourn.audit.lint.definitions import argument_for, is_none
from sojourn.audit.lint.module import Function, Module, last_name, own_nodes, parameters
from sojourn.audit.lint.ops import ASSIGNING, MAKING, backend_name, is_tensor_call
from sojourn.audit.lint.program import asked_once

_SESSION_NAME = re.compile(r"(?:^|_)(?:mon_?)?sess(?:ion)?(?:_|\d|$)", re.IGNORECASE)
# `sess.run(self.model(texts))`: calling an object with such a name creates new tensors each time.
_MODEL_NAME = re.compile(
    r"_*(?!get_|find_|load_|fetch_)(?:\w+_)?"
    r"(?:model|module|network|net|embed|embedder|encoder|elmo|bert)_*"
)
_SURELY_TENSORS = (ast.Sub, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult)
# Functions that raise in eager mode.
_GRAPH_ONLY = frozenset({"get_session", "set_session", "Session", "gradients"})
_FOR_GRAPHS = frozenset(
    {"tensorflow.placeholder", "tensorflow.gradients", "tensorflow.disable_v2_behavior"}
    | {"tensorflow.disable_eager_execution", "tensorflow.get_default_session"}
)
_VARIABLES = frozenset(
    f"tensorflow.{name}"
    for name in "trainable_variables global_variables all_variables local_variables "
    "model_variables moving_average_variables get_collection".split()
)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def looks_like_session(node: ast.expr) -> bool:
    """Whether a name says that its value is a session: `sess`, `self.session`, `get_session()`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return bool(_SESSION_NAME.search(str(node.slice.value)))  # `config["sess"]`
    named = node.func if isinstance(node, ast.Call) else node
    return bool(_SESSION_NAME.search(last_name(named)))


def is_step(module: Module, call: ast.Call) -> bool:
    """Whether this call surely runs a step of TensorFlow."""
    if _handed_on(module, call):
        return True
    if _is_backend_function(module, call.func) or _is_backend_eval(module, call):
        return _has_graphs(module)
    func = _called(module, call)
    if not isinstance(func, ast.Attribute):
        return False
    name, owner = func.attr, func.value
    keywords = {keyword.arg for keyword in call.keywords}
    if name == "run":
        if looks_like_session(owner) or module.is_session(owner):
            return not is_none(call.args[0] if call.args else None) and not _has(
                module, "onnxruntime"
            )
        return bool(keywords & {"session", "feed_dict"}) or can_run(module, owner)
    if name in ("save", "restore"):
        return _is_saver(module, owner)
    if name != "eval":
        return False
    if keywords & {"session", "feed_dict"} or is_tensor(module, owner):
        return True
    if call.args:
        given = call.args[0]  # `variable.eval(sess)`, `tensor.eval({x: 1.0})`
        is_fed = isinstance(given, ast.Dict) or "feed" in last_name(given)
        return is_fed or looks_like_session(given)
    return not _has(module, "torch")


def _called(module: Module, call: ast.Call) -> ast.expr:
    """The callee of a call: `sess.run` for `run` if the name is bound to nothing else."""
    values = module.values_of(call.func) if isinstance(call.func, ast.Name) else []
    is_method = len(values) == 1 and isinstance(values[0], ast.Attribute)
    return values[0] if is_method and values[0] is not None else call.func


def taken(module: Module, call: ast.Call) -> list[ast.expr]:
    """The parts of a call that a step runs or is fed; empty if the call does not run a step."""
    return _handed_on(module, call) or ([call] if is_step(module, call) else [])


def _handed_on(module: Module, call: ast.Call) -> list[ast.expr]:
    """The arguments that the called function fetches: `tf.norm(x)` in `self.evaluate(...)`."""
    found = module.program.callee(module, call)
    if found is None or not isinstance(found.node, Function):
        return []
    filled = parameters(found.node)[found.is_bound :]
    given = [argument_for(call, name, filled) for name in _fetched(found.module, found.node)]
    return [value for value in given if value is not None]


def _fetched(module: Module, function: Function) -> frozenset[str]:
    """The parameters that a function fetches."""
    known = module.program.fetched
    if function not in known:
        known[function] = frozenset()  # a recursive call adds no parameter
        steps = [n for n in own_nodes(function) if isinstance(n, ast.Call) and is_step(module, n)]
        names = {last_name(f) for s in steps for f in fetches(module, s) if isinstance(f, ast.Name)}
        names &= {*parameters(function)} - {"self", "cls"}
        # `op = self.ops[op]` first binds the parameter to another value.
        known[function] = frozenset(n for n in names if len(module.bindings[function, n]) == 1)
    return known[function]


def is_made_by(module: Module, node: ast.expr, is_maker: Callable[[ast.expr], bool]) -> bool:
    """Whether a call, or every value of a name, calls a function for which `is_maker` holds."""
    values = [node] if isinstance(node, ast.Call) else module.values_of(node)
    return bool(values) and all(isinstance(v, ast.Call) and is_maker(v.func) for v in values)


def _is_saver(module: Module, node: ast.expr) -> bool:
    return is_made_by(module, node, lambda f: module.names.meaning(f) == "tensorflow.train.Saver")


def _is_backend_function(module: Module, node: ast.expr) -> bool:
    """Whether this is a result of `K.function(...)`, which runs a step when it is called."""
    return is_made_by(module, node, lambda f: backend_name(module.names, f) == "function")


def _is_backend_eval(module: Module, call: ast.Call) -> bool:
    return backend_name(module.names, call.func) == "eval"


@asked_once
def _has_graphs(module: Module) -> bool:
    """Whether Keras surely builds a graph here, which it does not by default in TensorFlow 2."""
    if any(last_name(call.func) in _GRAPH_ONLY for call in module.calls):
        return True
    calls = ((m, call) for m in module.program.together_with(module) for call in m.calls)
    return any(m.names.meaning(call.func) in _FOR_GRAPHS for m, call in calls)


def can_run(module: Module, node: ast.expr) -> bool:
    """Whether this is surely an op: `tf.group(...)`, `v.assign(...).op`, `v.initializer`."""
    if isinstance(node, ast.Attribute) and node.attr in ("op", "initializer"):
        node = node.value
    if isinstance(node, ast.Call) and last_name(node.func) in ASSIGNING:
        return True
    if isinstance(node, ast.Call) and module.names.meaning(node.func) == "tensorflow.group":
        return True
    return is_tensor(module, node)


def fetches(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """The fetches of a step: the parts of the first argument of `run`, or the owner of `.eval`."""
    given = _handed_on(module, call)
    if not given:
        func = _called(module, call)
        if not isinstance(func, ast.Attribute):
            return  # a result of `K.function`
        owner = func.value
        given = [k.value for k in call.keywords if k.arg == "fetches"] + call.args[:1]
        if _is_backend_eval(module, call):
            yield from call.args[:1]
            return
        if not looks_like_session(owner) and not module.is_session(owner):
            yield owner
            return
    while given:
        node = given.pop()
        if isinstance(node, ast.List | ast.Tuple):
            given += node.elts
        elif isinstance(node, ast.Dict):
            given += node.values
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            given.append(node.elt)
        elif isinstance(node, ast.IfExp):
            pass  # fetches one of two; which one is unknown
        else:
            yield node


def is_preparation(node: ast.expr) -> bool:
    """Whether this prepares the first step: `tf.global_variables_initializer()`, a Saver."""
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    return "initialize" in name or name in ("Saver", "merge_all")


def makes_op(module: Module, fetch: ast.expr) -> bool:
    """Whether evaluating a fetched expression adds an op.

    A fetched expression is a tensor, so arithmetic that only tensors support has added an op.
    """
    if isinstance(fetch, ast.BinOp):
        sides = (fetch.left, fetch.right)
        if isinstance(fetch.op, _SURELY_TENSORS) or is_tensor(module, fetch):
            return True
        # A text or list cannot be added to a number, nor multiplied by 0.5.
        number = int | float if isinstance(fetch.op, ast.Add) else float
        if any(isinstance(s, ast.Constant) and isinstance(s.value, number) for s in sides):
            return True
        return any(isinstance(s, ast.BinOp) and makes_op(module, s) for s in sides)
    if isinstance(fetch, ast.UnaryOp):
        return isinstance(fetch.op, ast.USub | ast.Invert)
    if isinstance(fetch, ast.Compare):
        return isinstance(fetch.ops[0], _ORDER)
    if isinstance(fetch, ast.Subscript):
        return is_tensor(module, fetch.value)
    if isinstance(fetch, ast.Call) and module.program.callee(module, fetch) is None:
        name = last_name(fetch.func)
        is_method = isinstance(fetch.func, ast.Attribute) and name in MAKING
        return is_method or bool(fetch.args and _MODEL_NAME.fullmatch(name))
    return False


def is_tensor(
    module: Module, node: ast.expr | None, seen: frozenset[ast.expr] = frozenset()
) -> bool:
    """Whether an expression is surely one tensor or variable."""
    if node is None:
        return False
    if node in seen:
        return True  # `y = y * x`: a tensor if all other values are
    seen |= {node}
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get_tensor_by_name":
            return True
        return is_tensor_call(module.names, node) or _returns_tensor(module, node, None)
    if isinstance(node, ast.BinOp):
        return is_tensor(module, node.left, seen) or is_tensor(module, node.right, seen)
    if isinstance(node, ast.UnaryOp):
        return is_tensor(module, node.operand, seen)
    if isinstance(node, ast.Subscript):
        return is_tensor(module, node.value, seen)
    values = module.values_of(node)
    if not values and isinstance(node, ast.Attribute):
        owner = module.program.instance_of(module, node.value)
        if owner is not None:
            module = owner.module
            values = module.bindings.get((owner.node, node.attr), [])
    values = [v for v in values if not is_none(v)]
    if values == [None] and isinstance(node, ast.Name):
        parts = module.unpacked.get((module.home_of(node), node.id), [])
        return len(parts) == 1 and _is_tensor_part(module, parts[0])
    return bool(values) and all(is_tensor(module, v, seen) for v in values)


def _is_tensor_part(module: Module, part: ast.expr) -> bool:
    """Whether a loop's item, or one part of an unpacked value, is a tensor."""
    if isinstance(part, ast.Starred):
        return _are_variables(module, part.value)
    if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
        made = part.value
        return isinstance(made, ast.Call) and _returns_tensor(module, made, part.slice.value)
    return is_tensor(module, part)


def _are_variables(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether this is `tf.trainable_variables()` or a part of such a list, under any name."""
    if isinstance(node, ast.ListComp):
        is_item = ast.unparse(node.elt) == ast.unparse(node.generators[0].target)
        return is_item and _are_variables(module, node.generators[0].iter, depth + 1)
    if isinstance(node, ast.Call):
        return module.names.meaning(node.func) in _VARIABLES
    values = module.values_of(node)
    if values == [None] and isinstance(node, ast.Name):
        values = [*module.unpacked.get((module.home_of(node), node.id), ())]
    is_known = len(values) > 0 and depth < 3
    return is_known and all(v and _are_variables(module, v, depth + 1) for v in values)


def _returns_tensor(module: Module, call: ast.Call, place: object) -> bool:
    """Whether a function of the program returns one tensor, or a tuple with one at this place."""
    found = module.program.callee(module, call)
    if found is None or not isinstance(found.node, Function):
        return False
    return _gives_tensor(found.module, found.node, place)


@asked_once
def _gives_tensor(module: Module, function: Function, place: object) -> bool:
    if function.decorator_list or any(isinstance(n, ast.Yield) for n in own_nodes(function)):
        return False
    given = [n.value for n in own_nodes(function) if isinstance(n, ast.Return)]
    if place is not None:
        given = [
            v.elts[place] if isinstance(v, ast.Tuple) and place < len(v.elts) else None  # type: ignore[call-overload,operator]
            for v in given
        ]
    return bool(given) and all(is_tensor(module, v) for v in given)


def _has(module: Module, package: str) -> bool:
    return package in module.names.foreign.values()
