"""Functions that are called again and again by code that is not in sight.

A web framework calls its routes, a robot's middleware its callbacks, and whoever uses a model calls
`predict` for each thing that is to be predicted.
"""

from __future__ import annotations

import ast
import re

from sojourn.audit.lint.conditions import Loop
from sojourn.audit.lint.module import Function, Module, last_name, own_nodes, parameters
from sojourn.audit.lint.repeats import function_around, loops_around, runs_steps
from sojourn.audit.lint.steps import looks_like_session

_ROUTES = frozenset("route get post put websocket on message_handler on_message".split())
_HANDLERS = ("RequestHandler", "Resource", "MethodView", "APIView", "Servicer")
_VERBS = frozenset({"get", "post", "put", "do_GET", "do_POST", "do_PUT"})
_SUBSCRIBING = frozenset({"Subscriber", "add_url_rule", "add_handler", "add_message_handler"})
_PER_ITEM = frozenset(
    "predict prediction infer inference act action choose classify detect detection recognize "
    "recognise step batch callback frame query respond reply".split()
)
_NOT_ITEMS = frozenset({"self", "cls", "args", "config", "cfg", "flags", "FLAGS", "hparams", "opt"})
_DEEP = 3  # callers of callers


def _is_serving(module: Module, function: Function) -> bool:
    """Whether a framework calls this function for every request or message."""
    decorators = [d.func for d in function.decorator_list if isinstance(d, ast.Call)]
    if any(isinstance(func, ast.Attribute) and func.attr in _ROUTES for func in decorators):
        return True
    owner = module.class_of(function)
    if owner is not None and any(last_name(base).endswith(_HANDLERS) for base in owner.bases):
        is_rpc = any(last_name(base).endswith("Servicer") for base in owner.bases)
        if function.name in _VERBS or (is_rpc and function.name[:1].isupper()):
            return True
    return any(
        last_name(call.func) in _SUBSCRIBING and _hands_over(call, function)
        for call in module.calls
    )


def serves(module: Module, function: Function, depth: int = 0) -> bool:
    """Whether this function runs for every request or message, or one that does calls it."""
    if _is_serving(module, function):
        return True
    for caller, call in module.program.calls_of(function):
        outer = function_around(caller, call)
        if outer is not None and depth < _DEEP and serves(caller, outer, depth + 1):
            return True
    return False


def _hands_over(call: ast.Call, function: Function) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(last_name(argument) == function.name for argument in given)


def is_for_many_calls(module: Module, function: Function, depth: int = 0) -> bool:
    """Whether each call is about another thing, on a session that was there before.

    Its name says so, and no code in sight calls it just once.
    """
    words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function.name).lower().split("_"))
    given = set(parameters(function)) - _NOT_ITEMS
    is_asked = any(not looks_like_session(ast.Name(id=name)) for name in given)
    if not words & _PER_ITEM or not is_asked or depth > _DEEP:
        return False
    nodes = list(own_nodes(function))
    if any(isinstance(n, ast.Call) and module.opens(n) for n in nodes):
        return False
    if any(isinstance(n, Loop) and runs_steps(module, n) for n in nodes):
        return False  # a whole run, over all there is
    for caller, call in module.program.calls_named(function.name):
        if any(True for _ in loops_around(caller, call)):
            continue
        outer = function_around(caller, call)
        if outer is function:
            continue
        if outer is None or not is_for_many_calls(caller, outer, depth + 1):
            return False
    return True
