"""Finds functions that code outside the program calls repeatedly.

A web framework calls its routes, a robot's middleware and Keras call their callbacks, and users of
a model call `predict` for each item.
"""

from __future__ import annotations

import ast
import re

from sojourn.audit.lint.conditions import Loop
from sojourn.audit.lint.module import Function, Module, is_self, last_name, own_nodes, parameters
from sojourn.audit.lint.ops import adds_op
from sojourn.audit.lint.repeats import function_around, loops_around, runs_steps
from sojourn.audit.lint.steps import is_preparation, is_step, looks_like_session

_ROUTES = frozenset("route get post put websocket on message_handler on_message".split())
_HANDLERS = ("RequestHandler", "Resource", "MethodView", "APIView", "Servicer")
_VERBS = frozenset({"get", "post", "put", "do_GET", "do_POST", "do_PUT"})
# Functions that take a function to call, and the occasion of each call.
_SUBSCRIBING = {
    "Subscriber": "message",
    "add_url_rule": "request",
    "add_handler": "message",
    "add_message_handler": "message",
    "CommandHandler": "message",
    "MessageHandler": "message",
    "FuncAnimation": "frame",
    "setMouseCallback": "event",
    "connect": "event",
    "mpl_connect": "event",
    "bind": "event",
    "Button": "event",
    "add_command": "event",
    # Optimizers, which search for the best arguments of a function.
    "fmin": "trial",
    "fmin_l_bfgs_b": "trial",
    "fmin_bfgs": "trial",
    "fmin_cg": "trial",
    "gp_minimize": "trial",
    "minimize": "trial",
    "optimize": "trial",
}
# Methods of a callback that Keras calls, and the occasion of each call.
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
# Words of functions that run once for a model, or on all the data.
_AT_ONCE = frozenset(
    "init initialize build create make setup set prepare define compile load restore import fit "
    "train evaluate eval test score main run start save export freeze plot show visualize count "
    "check verify describe profile debug".split()
)
# Words of functions that run before a model is used, or on all the data: any word of the name,
# and (`_SETTING_UP_FIRST`) only its first.
_SETTING_UP = frozenset(
    "init initialize initialise initializer initialization build create make setup up prepare "
    "define compile construct restore reload import train training pretrain pretrained fit "
    "finetune export freeze main configure warm warmup enter exit del".split()
)
_FIRST_VALUES = frozenset({"embedding", "embeddings"})  # set once, though the name says `assign`
_SETTING_UP_FIRST = frozenset(
    "load run start begin open save demo experiment example connect plot show visualize "
    "print".split()
)
# Words of functions that may run repeatedly though they take and return nothing. The further
# words of `_CHANGING` count for methods only: another function may do that once, to all weights.
_FOLLOWING = frozenset(
    "update sync synchronize copy clone transfer increment increase decrease decay".split()
)
_AGAIN = (["update"], ["sync"], ["synchronize"])  # first words: not only constructors call these
_CHANGING = _FOLLOWING | frozenset("reset assign clear set replace".split())
_NOT_ITEMS = frozenset({"self", "cls", "args", "config", "cfg", "flags", "FLAGS", "hparams", "opt"})
_DEEP = 3  # most levels of callers that are searched


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
    if any(base.endswith("RunHook") for base in bases) and function.name.endswith("_run"):
        return "step"
    subscribing = [c for c in module.calls if last_name(c.func) in _SUBSCRIBING]
    for call in subscribing:
        if _hands_over(module, call, function):
            found = _SUBSCRIBING[last_name(call.func)]
            return "" if found == "event" and _is_set_up(function) else found
    return ""


def occasion(module: Module, function: Function, depth: int = 0) -> str:
    """The event for which a framework calls this function or its caller ("request"), or ""."""
    own = _own_occasion(module, function)
    if own or depth > _DEEP:
        return own
    for caller, call in module.program.calls_of(function):
        outer = function_around(caller, call)
        found = occasion(caller, outer, depth + 1) if outer is not None else ""
        if found:
            return found
    return ""


def _hands_over(module: Module, call: ast.Call, function: Function) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    found = [module.program.definition(module, g) for g in given if last_name(g) == function.name]
    return any(definition and definition.node is function for definition in found)


def _answers(module: Module, function: Function, given: set[str]) -> bool:
    """Whether a function makes ops from its arguments and returns the results of a session."""
    calls = [n for n in own_nodes(function) if isinstance(n, ast.Call)]
    makes = any(
        isinstance(a, ast.Name) and a.id in given
        for call in calls
        if adds_op(module.names, call)
        for a in call.args
    )
    return makes and _returns(function) and _has_session_from_before(module, function)


def _returns(function: Function) -> bool:
    return any(isinstance(n, ast.Return) and n.value for n in own_nodes(function))


def _has_session_from_before(module: Module, function: Function) -> bool:
    """Whether the steps of a function run on a session that already exists: one that its object
    keeps or gets, or a parameter."""
    given = {name for name in parameters(function) if looks_like_session(ast.Name(id=name))}
    owner = module.class_of(function)
    if owner is not None and any(place == owner for place, _ in module.session_names):
        return True
    calls = [n for n in own_nodes(function) if isinstance(n, ast.Call) and is_step(module, n)]
    used = [n for call in calls for n in ast.walk(call)]
    found = [v for n in used if isinstance(n, ast.Name) for v in module.values_of(n)]
    asked = [v for v in found if not isinstance(v, ast.Call) or not module.opens(v)]
    return any(
        (isinstance(n, ast.Attribute) and looks_like_session(n) and _is_own(n, owner))
        or (isinstance(n, ast.Name) and n.id in given)
        or (isinstance(n, ast.Call) and owner is not None and looks_like_session(n))
        for n in (*used, *asked)
    )


def _is_own(node: ast.expr, owner: ast.ClassDef | None) -> bool:
    """Whether this belongs to the object or its class: `self.model.sess`, `Model.sess`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return is_self(node) or (owner is not None and last_name(node) == owner.name)


def is_for_many_calls(module: Module, function: Function, node: ast.expr) -> bool:
    """Whether a function that adds `node` on each call is meant for many calls.

    Its name says so, or it builds ops from its arguments, or it is a method that runs its object's
    session; and no visible code calls it just once, or only to set things up.
    """
    if not _is_offered(module, function, node):
        return False
    nodes = list(own_nodes(function))
    if any(isinstance(n, ast.Call) and module.opens(n) for n in nodes):
        return False
    if any(isinstance(n, Loop) and runs_steps(module, n) for n in nodes):
        return False  # a whole run over all the data
    calls = _calls(module, function)
    return (
        not calls or _are_many(module, function, calls) or _is_done_again(module, function, calls)
    )


def _is_done_again(
    module: Module, function: Function, calls: list[tuple[Module, ast.Call]]
) -> bool:
    """Whether code outside may also call `update_target()`, which constructors here call."""
    scopes = [caller.scope_of(call) for caller, call in calls]
    makers = [s for s in scopes if isinstance(s, Function) and s.name == "__init__"]
    return (
        len(makers) == len(scopes)
        and _in_order(function)[:1] in _AGAIN
        and not any(True for maker in makers for _ in module.program.calls_of(maker))
    )


def _is_offered(module: Module, function: Function, node: ast.expr) -> bool:
    words = _words(function)
    given = set(parameters(function)) - _NOT_ITEMS
    is_asked = any(not looks_like_session(ast.Name(id=name)) for name in given)
    if is_asked and words & _PER_ITEM:
        return True
    is_method = module.class_of(function) is not None
    if is_asked and not words & _AT_ONCE and _answers(module, function, given):
        return is_method or not _is_handed_out(module, function)
    if module.is_test or is_preparation(node) or _is_set_up(function):
        return False
    if not _has_session_from_before(module, function):
        return False
    if not is_method:
        return bool(words & _FOLLOWING) and not _is_handed_out(module, function)
    if words & _CHANGING:
        return not words & _FIRST_VALUES
    return is_asked or (not words & _AT_ONCE and _returns(function))


def _is_handed_out(module: Module, function: Function) -> bool:
    """Whether a function is passed on, not only called: `dataset.map(function)`."""
    names = [n for n in module.parents if isinstance(n, ast.Name) and n.id == function.name]
    calls = {call.func for call in module.calls}
    return any(name not in calls for name in names)


def _words(function: Function) -> set[str]:
    words = _in_order(function)
    return {*words} - {"main"} if len(words) > 1 else {*words}  # `update_main_network`


def _in_order(function: Function) -> list[str]:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function.name)
    return [word for word in name.lower().split("_") if word]


def _is_set_up(function: Function) -> bool:
    first = _in_order(function)[:1]
    return bool(_words(function) & _SETTING_UP or _SETTING_UP_FIRST.intersection(first))


def _calls(module: Module, function: Function) -> list[tuple[Module, ast.Call]]:
    """The calls that reach or may reach this function."""
    found = []
    for caller, call in module.program.calls_named(function.name):
        called = module.program.definition(caller, call.func)
        is_inside = caller.scope_of(call) is function
        if called is None and _is_of_a_part(module, function, caller, call):
            continue
        if not is_inside and (called is None or called.node is function):
            found.append((caller, call))
    return found


def _is_of_a_part(module: Module, function: Function, caller: Module, call: ast.Call) -> bool:
    """Whether a method calls another object's method of that name: `self.model.sample()`."""
    scope, owner = caller.scope_of(call), module.class_of(function)
    if owner is None or not isinstance(scope, Function) or caller.class_of(scope) is not owner:
        return False
    return isinstance(call.func, ast.Attribute) and not is_self(call.func.value)


def _are_many(
    module: Module, function: Function, calls: list[tuple[Module, ast.Call]], depth: int = 0
) -> bool:
    """Whether these calls of a function visibly run more than once."""
    if depth > _DEEP:
        return False
    singles = 0
    for caller, call in calls:
        if any(True for _ in loops_around(caller, call)):
            return True
        outer = caller.scope_of(call)
        if not isinstance(outer, Function):
            singles += 1
        elif not _is_set_up(outer) or _is_step_of_training(caller, outer):
            if occasion(caller, outer):
                return True
            further = _calls(caller, outer)
            if further:
                if _are_many(caller, outer, further, depth + 1):
                    return True
            elif caller.class_of(outer) is not None and not _is_whole(caller, outer):
                return True  # a method that users of the object may call too
            singles += 1
    return singles > 1 and module.class_of(function) is not None


def _is_whole(module: Module, function: Function) -> bool:
    """Whether a function's name says that it does a whole run."""
    return bool(_words(function) & _AT_ONCE) and not _is_step_of_training(module, function)


def _is_step_of_training(module: Module, function: Function) -> bool:
    """Whether a method such as `train(batch)` runs one step, not a loop of steps."""
    is_asked = bool(set(parameters(function)) - _NOT_ITEMS)
    loops = [n for n in own_nodes(function) if isinstance(n, Loop)]
    is_training = bool(_words(function) & {"train", "fit", "learn"})
    return is_training and is_asked and not any(runs_steps(module, loop) for loop in loops)
