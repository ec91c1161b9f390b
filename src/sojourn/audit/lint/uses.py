"""What a use does to a session. Whoever opened it owns it until something takes it over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from enum import Enum

from sojourn.audit.lint.module import Function, Module, own_uses, parameters


class Use(Enum):
    """From harmless to final."""

    TEST = "looked at: `sess is None`, `if sess`"
    DRIVE = "used by the owner: `sess.run(...)`"
    BORROW = "used by a function that gives it back: `saver.save(sess, ...)`"
    KEEP = "stored by a class of this file that never closes it"
    LEND = "passed to code that cannot be seen; the owner may go on using it"
    TAKE = "handed over: returned, stored, registered"
    CLOSE = "closed"


CLOSING = frozenset({"close", "__exit__"})
_LOOKING = frozenset(
    {"print", "repr", "str", "type", "isinstance", "id", "hash", "bool", "hasattr", "len", "dir"}
)
# Methods of savers, tensors, ops, variables, coordinators, queue runners and summary writers.
_BORROWING_METHODS = frozenset(
    {"save", "restore", "eval", "run", "load", "start_queue_runners", "create_threads", "get_value"}
    | {"initialize", "recover_last_checkpoints", "export_meta_graph", "add_graph", "start"}
    | {"add_meta_graph_and_variables", "add_meta_graph", "start_standard_services", "format"}
    | {"convert_variables_to_constants", "freeze_graph", "simple_save", "latest_checkpoint"}
)
_ENDING_WORDS = (
    "close closing stop finish finalize finalise shut shutdown release dispose clean cleanup tear "
    "teardown destroy terminate exit"
)
_TAKING_WORDS = (
    "register adopt own manage add append put push insert set setdefault update extend enter "
    "callback defer attach send submit partial thread process"
)
_ENDING = frozenset(_ENDING_WORDS.split())
_TAKING = _ENDING | frozenset(_TAKING_WORDS.split())


def is_takeover(name: str) -> bool:
    """Whether a function's name says that what it is given is no longer the caller's."""
    return bool(_words(name) & _TAKING)


def is_ending(name: str) -> bool:
    """Whether a method's name says that its object is done with."""
    return bool(_words(name) & _ENDING)


def _words(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def classify(module: Module, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> Use:
    """What the surrounding code does to the session that `node` evaluates to."""
    if node in seen:
        return Use.TEST
    seen |= {node}
    parent = module.parents[node]
    if isinstance(parent, ast.Attribute):
        return Use.CLOSE if parent.attr in CLOSING else Use.DRIVE
    if isinstance(parent, ast.keyword):
        call = module.parents[parent]
        return argument_use(module, call, parent, seen) if isinstance(call, ast.Call) else Use.TAKE
    if isinstance(parent, ast.Call):
        return argument_use(module, parent, node, seen)
    if isinstance(parent, ast.withitem):
        return Use.CLOSE
    if isinstance(parent, ast.Compare | ast.UnaryOp | ast.FormattedValue | ast.Expr | ast.Assert):
        return Use.TEST
    if isinstance(parent, ast.If | ast.While | ast.IfExp) and parent.test is node:
        return Use.TEST
    if isinstance(parent, ast.BoolOp | ast.IfExp | ast.Await):
        return classify(module, parent, seen)  # its value may be the session
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
        scope = module.scope_of(node)
        if isinstance(target, ast.Name) and not isinstance(scope, ast.ClassDef):
            return worst(classify(module, n, seen) for n in own_uses(scope, target.id))
    return Use.TAKE


def worst(uses: Iterable[Use]) -> Use:
    """The most final of several uses."""
    order = list(Use)
    return max(uses, key=order.index, default=Use.TEST)


def is_never_closed(uses: Iterable[Use]) -> bool:
    """Whether none of these uses ends the session or makes it somebody else's."""
    found = set(uses)
    if found & {Use.CLOSE, Use.TAKE}:
        return False
    # Lent to the unknown and never touched again: it may well be theirs now.
    return Use.LEND not in found or Use.DRIVE in found


def argument_use(
    module: Module,
    call: ast.Call,
    argument: ast.expr | ast.keyword,
    seen: frozenset[ast.AST] = frozenset(),
) -> Use:
    """What a call does to a session among its arguments."""
    meaning = module.names.meaning(call.func)
    if meaning is not None:
        return _use_by_tensorflow(meaning)
    if isinstance(call.func, ast.Name):
        name = call.func.id
        if name in _LOOKING:
            return Use.TEST
        if name in module.functions:
            return _use_by_function(module, module.functions[name], call, argument, 0, seen)
        if name in module.classes:
            return _use_by_class(module, module.classes[name], call, argument, seen)
    elif isinstance(call.func, ast.Attribute):
        name = call.func.attr
        if name in _BORROWING_METHODS:
            return Use.BORROW
        methods = module.methods.get(name, [])
        if len(methods) == 1 and not methods[0].decorator_list:
            return _use_by_function(module, methods[0], call, argument, 1, seen)
    else:
        return Use.LEND
    return Use.TAKE if is_takeover(name) else Use.LEND


def _use_by_tensorflow(meaning: str) -> Use:
    last = meaning.rpartition(".")[2]
    # Keras keeps the session it is given; a debug wrapper closes the one it wraps.
    return Use.TAKE if last == "set_session" or last.endswith("Session") else Use.BORROW


def _use_by_class(
    module: Module,
    owner: ast.ClassDef,
    call: ast.Call,
    argument: ast.expr | ast.keyword,
    seen: frozenset[ast.AST],
) -> Use:
    for node in owner.body:
        if isinstance(node, Function) and node.name == "__init__":
            return _use_by_function(module, node, call, argument, 1, seen)
    return Use.LEND


def _use_by_function(
    module: Module,
    function: Function,
    call: ast.Call,
    argument: ast.expr | ast.keyword,
    skipped: int,
    seen: frozenset[ast.AST],
) -> Use:
    if isinstance(argument, ast.keyword):
        name = argument.arg
    else:
        index = call.args.index(argument) + skipped
        named = parameters(function)
        name = named[index] if index < len(named) else None
    if name is None or function in seen:
        return Use.LEND
    seen |= {function}
    uses = [_use_of_parameter(module, node, seen) for node in own_uses(function, name)]
    uses += [classify(module, node, seen) for node in module.free_uses(function, name)]
    found = worst(uses)
    return Use.BORROW if found in (Use.TEST, Use.DRIVE) else found


def _use_of_parameter(module: Module, node: ast.Name, seen: frozenset[ast.AST]) -> Use:
    parent = module.parents[node]
    if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
        target = parent.targets[0]
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            uses = attribute_uses(module, target.attr, seen)
            owner = module.class_of(node)
            plain = owner is not None and module.has_only_known_bases(owner)
            return Use.KEEP if plain and is_never_closed(uses) else Use.TAKE
    return classify(module, node, seen)


def attribute_uses(
    module: Module, attribute: str, seen: frozenset[ast.AST] = frozenset()
) -> list[Use]:
    """Every use in this file of an attribute of that name, on any object."""
    found: list[Use] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr == attribute and node not in seen:
            if isinstance(node.ctx, ast.Load):
                found.append(classify(module, node, seen))
            elif isinstance(node.ctx, ast.Del):
                found.append(Use.TAKE)
        elif isinstance(node, ast.Constant) and node.value == attribute:
            parent = module.parents[node]
            # getattr(self, "sess").close() is out of sight.
            if isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "getattr":
                found.append(Use.TAKE)
    return found
