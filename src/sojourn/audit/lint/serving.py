"""Functions that are called again and again by code that is not in sight.

A web framework calls its routes, a robot's middleware and Keras their callbacks, and whoever uses a
model calls `predict` for each thing that is to be predicted.
"""

from __future__ import annotations

import ast
import re

from sojourn.audit.lint.conditions import Loop
from sojourn.audit.lint.module import (
    Function,
    Module,
    is_self,
    last_name,
    own_nodes,
    parameters,
)
from sojourn.audit.lint.ops import adds_op
from sojourn.audit.lint.repeats import function_around, loops_around, runs_steps
from sojourn.audit.lint.steps import is_step, looks_like_session

_ROUTES = frozenset("route get post put websocket on message_handler on_message".split())
_HANDLERS = ("RequestHandler", "Resource", "MethodView", "APIView", "Servicer")
_VERBS = frozenset({"get", "post", "put", "do_GET", "do_POST", "do_PUT"})
# What is given a function to be called, and what for.
_SUBSCRIBING = {
    "Subscriber": "message",
    "add_url_rule": "request",
    "add_handler": "message",
    "add_message_handler": "message",
    "CommandHandler": "message",
    "MessageHandler": "message",
    "FuncAnimation": "frame",
    "setMouseCallback": "event",
}
# What Keras calls on a callback, and what for.
_HOOKS = {
    "on_epoch": "epoch",
    "on_batch": "batch",
    "on_train_batch": "batch",
    "on_test_batch": "batch",
    "on_predict_batch": "batch",
}
_PER_ITEM = frozenset(
    "predict prediction infer inference act action choose classify detect detection recognize "
    "recognise step batch callback frame query respond reply".split()
)
# What is done once to a model, or to all there is.
_AT_ONCE = frozenset(
    "init initialize build create make setup set prepare define compile load restore import fit "
    "train evaluate eval test score main run start save export freeze plot show visualize".split()
)
_NOT_ITEMS = frozenset({"self", "cls", "args", "config", "cfg", "flags", "FLAGS", "hparams", "opt"})
_DEEP = 3  # callers of callers


def _own_occasion(module: Module, function: Function) -> str:
    decorators = [d.func for d in function.decorator_list if isinstance(d, ast.Call)]
    if any(isinstance(func, ast.Attribute) and func.attr in _ROUTES for func in decorators):
        return "request"
    owner = module.class_of(function)
    bases = [last_name(base) for base in owner.bases] if owner is not None else []
    if any(base.endswith(_HANDLERS) for base in bases):
        is_rpc = any(base.endswith("Servicer") for base in bases)
        if function.name in _VERBS or (is_rpc and function.name[:1].isupper()):
            return "request"
    if any(base.endswith("Callback") for base in bases):
        return _HOOKS.get(function.name.rpartition("_")[0], "")
    subscribing = [c for c in module.calls if last_name(c.func) in _SUBSCRIBING]
    given = [last_name(c.func) for c in subscribing if _hands_over(c, function)]
    return _SUBSCRIBING[given[0]] if given else ""


def occasion(module: Module, function: Function, depth: int = 0) -> str:
    """What a framework calls this function for, or one that calls it: every "request"; or ""."""
    own = _own_occasion(module, function)
    if own or depth > _DEEP:
        return own
    for caller, call in module.program.calls_of(function):
        outer = function_around(caller, call)
        found = occasion(caller, outer, depth + 1) if outer is not None else ""
        if found:
            return found
    return ""


def _hands_over(call: ast.Call, function: Function) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(last_name(argument) == function.name for argument in given)


def _answers(module: Module, function: Function, given: set[str]) -> bool:
    """Whether a method makes ops of its arguments and returns what its own session says of them."""
    calls = [n for n in own_nodes(function) if isinstance(n, ast.Call)]
    is_told = any(isinstance(n, ast.Return) and n.value for n in own_nodes(function))
    makes = any(
        isinstance(a, ast.Name) and a.id in given
        for call in calls
        if adds_op(module.names, call)
        for a in call.args
    )
    steps = [s for c in calls if is_step(module, c) for s in ast.walk(c)]
    is_own = any(
        isinstance(s, ast.Attribute) and is_self(s.value) and looks_like_session(s) for s in steps
    )
    return is_told and makes and is_own


def is_for_many_calls(module: Module, function: Function, depth: int = 0) -> bool:
    """Whether each call is about another thing, on a session that was there before.

    Its name says so, or what it builds of its arguments, and no code in sight calls it just once.
    """
    words = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function.name).lower().split("_"))
    given = set(parameters(function)) - _NOT_ITEMS
    is_asked = any(not looks_like_session(ast.Name(id=name)) for name in given)
    if not is_asked or depth > _DEEP:
        return False
    if not words & _PER_ITEM and (words & _AT_ONCE or not _answers(module, function, given)):
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
        if outer is function or (outer is not None and occasion(caller, outer)):
            continue
        if outer is None or not is_for_many_calls(caller, outer, depth + 1):
            return False
    return True
