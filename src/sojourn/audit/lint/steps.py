"""What runs a step, what it fetches, and which expressions are tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sojourn.audit.lint.module import Module, last_name
from sojourn.audit.lint.ops import ASSIGNING, MAKING, backend_name, is_tensor_call

_SESSION_NAME = re.compile(r"(?:^|_)(?:mon_?)?sess(?:ion)?(?:_|\d|$)", re.IGNORECASE)
# `sess.run(self.model(texts))`: what is called so gives new tensors each time.
_MODEL_NAME = re.compile(
    r"_*(?!get_|find_|load_|fetch_)(?:\w+_)?"
    r"(?:model|module|network|net|embed|embedder|encoder|elmo|bert)_*"
)
_SURELY_TENSORS = (ast.Sub, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult)
# What raises in eager mode.
_GRAPH_ONLY = frozenset({"get_session", "set_session", "Session", "gradients"})
_FOR_GRAPHS = frozenset(
    {"tensorflow.placeholder", "tensorflow.gradients", "tensorflow.disable_v2_behavior"}
    | {"tensorflow.disable_eager_execution", "tensorflow.get_default_session"}
)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def looks_like_session(node: ast.expr) -> bool:
    """Whether a name says that it is a session: `sess`, `self.session`, `get_session()`."""
    named = node.func if isinstance(node, ast.Call) else node
    return bool(_SESSION_NAME.search(last_name(named)))


def is_step(module: Module, call: ast.Call) -> bool:
    """Whether this call surely runs a step of TensorFlow."""
    if _is_backend_function(module, call.func) or _is_backend_eval(module, call):
        return _has_graphs(module)
    if not isinstance(call.func, ast.Attribute):
        return False
    name, owner = call.func.attr, call.func.value
    keywords = {keyword.arg for keyword in call.keywords}
    if name == "run":
        if looks_like_session(owner) or module.is_session(owner):
            return not _is_none(call.args[0] if call.args else None) and not _has(
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


def _is_saver(module: Module, node: ast.expr) -> bool:
    values = [node] if isinstance(node, ast.Call) else module.values_of(node)
    made = [v.func for v in values if isinstance(v, ast.Call)]
    is_made = len(made) == len(values) > 0
    return is_made and all(module.names.meaning(f) == "tensorflow.train.Saver" for f in made)


def _is_backend_function(module: Module, node: ast.expr) -> bool:
    """What `K.function(...)` returns, which runs a step when it is called."""
    values = [node] if isinstance(node, ast.Call) else module.values_of(node)
    made = [v.func for v in values if isinstance(v, ast.Call)]
    is_made = len(made) == len(values) > 0
    return is_made and all(backend_name(module.names, f) == "function" for f in made)


def _is_backend_eval(module: Module, call: ast.Call) -> bool:
    return backend_name(module.names, call.func) == "eval"


def _has_graphs(module: Module) -> bool:
    """Whether Keras surely builds a graph here, as TensorFlow 2 does not by itself."""

    def answer() -> bool:
        if any(last_name(call.func) in _GRAPH_ONLY for call in module.calls):
            return True
        calls = ((m, call) for m in module.program.together_with(module) for call in m.calls)
        return any(m.names.meaning(call.func) in _FOR_GRAPHS for m, call in calls)

    return module.program.once("has graphs", module.tree, answer)


def can_run(module: Module, node: ast.expr) -> bool:
    """`tf.group(...).run()`, `v.assign(...).op.run()`, a variable's initializer: surely an op."""
    if isinstance(node, ast.Attribute) and node.attr in ("op", "initializer"):
        node = node.value
    if isinstance(node, ast.Call) and last_name(node.func) in ASSIGNING:
        return True
    if isinstance(node, ast.Call) and module.names.meaning(node.func) == "tensorflow.group":
        return True
    return is_tensor(module, node)


def fetches(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """What a step fetches: the parts of the first argument of `run`, or what `.eval()` is of."""
    if not isinstance(call.func, ast.Attribute):
        return  # what `K.function` returned
    if _is_backend_eval(module, call):
        yield from call.args[:1]
        return
    if not looks_like_session(call.func.value) and not module.is_session(call.func.value):
        yield call.func.value
        return
    given = [k.value for k in call.keywords if k.arg == "fetches"] + call.args[:1]
    while given:
        node = given.pop()
        if isinstance(node, ast.List | ast.Tuple):
            given += node.elts
        elif isinstance(node, ast.Dict):
            given += node.values
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            given.append(node.elt)
        elif isinstance(node, ast.IfExp):
            pass  # one of two, which is for the program to say
        else:
            yield node


def is_preparation(node: ast.expr) -> bool:
    """`tf.global_variables_initializer()`, `tf.train.Saver()`: made before the first step."""
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    return "initialize" in name or name in ("Saver", "merge_all")


def makes_op(module: Module, fetch: ast.expr) -> bool:
    """Whether something fetched adds an op by being evaluated.

    That it is fetched says that it is a tensor; arithmetic that only tensors know then made it.
    """
    if isinstance(fetch, ast.BinOp):
        return isinstance(fetch.op, _SURELY_TENSORS) or is_tensor(module, fetch)
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
    """Whether an expression surely is one tensor or variable."""
    if node is None:
        return False
    if node in seen:
        return True  # `y = y * x`: as far as what it was before is one
    seen |= {node}
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get_tensor_by_name":
            return True
        return is_tensor_call(module.names, node)
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
    values = [v for v in values if not _is_none(v)]
    return bool(values) and all(is_tensor(module, v, seen) for v in values)


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _has(module: Module, package: str) -> bool:
    return package in module.names.foreign.values()
