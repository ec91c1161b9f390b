"""Classifies uses of a session. Code that opens a session owns it until other code takes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from enum import Enum

from sojourn.audit.lint.definitions import Definition
from sojourn.audit.lint.module import (
    CLOSING,
    Function,
    Module,
    is_self,
    last_name,
    own_uses,
    parameters,
)
from sojourn.source import dotted


class Use(Enum):
    """From harmless to final."""

    TEST = "looked at: `sess is None`, `if sess`"
    DRIVE = "used by the owner: `sess.run(...)`"
    BORROW = "used by a function that gives it back: `saver.save(sess, ...)`"
    KEEP = "stored by a class or function of the program that never closes it"
    LEND = "passed to code that cannot be seen; the owner may go on using it"
    TAKE = "handed over: returned, stored, registered"
    CLOSE = "closed"


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
_USING_WORDS = (
    "evaluate eval evaluation predict prediction infer inference test validate validation restore "
    "load save export compute calculate calc score sample decode generate visualize plot show "
    "print measure accuracy train fit"
)
_FAR = 500  # most uses that are followed for one answer; beyond, any code may own the session
_USING = frozenset(_USING_WORDS.split())
_ENDING = frozenset(_ENDING_WORDS.split())
_TAKING = _ENDING | frozenset(_TAKING_WORDS.split())


def is_takeover(name: str) -> bool:
    """Whether a function's name says that it takes over its arguments from the caller."""
    return bool(_words(name) & _TAKING)


def is_ending(name: str) -> bool:
    """Whether a method's name says that it ends its object."""
    return bool(_words(name) & _ENDING)


def _words(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def classify(module: Module, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> Use:
    """What the surrounding code does to the session that `node` evaluates to."""
    if node in seen:
        return Use.TEST
    if _is_too_far(module, seen):
        return Use.TAKE
    seen |= {node}
    parent = module.parents[node]
    if isinstance(parent, ast.Attribute):
        return Use.CLOSE if parent.attr in CLOSING else Use.DRIVE
    if isinstance(parent, ast.keyword):
        call = module.parents[parent]
        return argument_use(module, call, parent, seen) if isinstance(call, ast.Call) else Use.TAKE
    if isinstance(parent, ast.Call):
        return Use.DRIVE if parent.func is node else argument_use(module, parent, node, seen)
    if isinstance(parent, ast.withitem):
        return Use.CLOSE
    if isinstance(parent, ast.Compare | ast.UnaryOp | ast.FormattedValue | ast.Expr | ast.Assert):
        return Use.TEST
    if isinstance(parent, ast.If | ast.While | ast.IfExp) and parent.test is node:
        return Use.TEST
    if isinstance(parent, ast.BoolOp | ast.IfExp | ast.Await):
        return classify(module, parent, seen)  # its value may be the session
    if isinstance(parent, ast.Tuple | ast.List) and is_for_a_thread(module, parent):
        return use_by_thread(module, node, seen)
    if isinstance(parent, ast.arguments):
        return _use_as_default(module, parent, node, seen)
    if isinstance(parent, ast.Tuple) and isinstance(module.parents[parent], ast.BinOp):
        return Use.TEST  # "%s of %s" % (self.name, self.sess)
    target = _target_of(module, node)
    scope = module.scope_of(node)
    if isinstance(target, ast.Attribute) and is_self(target.value):
        return _use_of_attribute(module, target, seen)
    if isinstance(target, ast.Name) and not isinstance(scope, ast.ClassDef):
        return worst(classify(module, n, seen) for n in own_uses(scope, target.id))
    return Use.TAKE


def _target_of(module: Module, node: ast.expr) -> ast.expr | None:
    """The target of a value, also of one in a tuple: `self.sess, self.env = sess, env`."""
    parent = module.parents[node]
    values = parent.elts if isinstance(parent, ast.Tuple) else [node]
    statement = module.parents[parent] if isinstance(parent, ast.Tuple) else parent
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if not isinstance(parent, ast.Tuple):
        return target
    targets = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    is_plain = len(targets) == len(values) and not any(isinstance(t, ast.Starred) for t in targets)
    return targets[values.index(node)] if is_plain else None


def _is_too_far(module: Module, seen: frozenset[ast.AST]) -> bool:
    """Whether a question has led through so many uses that following it further is too slow."""
    program = module.program
    program.effort = program.effort + 1 if seen else 0
    return program.effort > _FAR


def is_for_a_thread(module: Module, node: ast.AST) -> bool:
    """Whether this is the `args` of a call such as `Thread(target=f, args=(sess,))`."""
    keyword = module.parents[node]
    return isinstance(keyword, ast.keyword) and keyword.arg == "args"


def use_by_thread(module: Module, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> Use:
    """What a thread does to a session in its `args`; LEND if its function cannot be seen."""
    arguments = module.parents[node]
    call = module.parents[module.parents[arguments]]
    targets = [k.value for k in getattr(call, "keywords", ()) if k.arg == "target"]
    found = module.program.definition(module, targets[0]) if targets else None
    if found is None or not isinstance(found.node, Function):
        return Use.LEND
    given: list[ast.expr] = arguments.elts  # type: ignore[attr-defined]
    use = _use_by_program(found, ast.Call(targets[0], given, []), node, seen)
    return Use.KEEP if use is Use.BORROW else use


def worst(uses: Iterable[Use]) -> Use:
    """The most final of several uses."""
    order = list(Use)
    return max(uses, key=order.index, default=Use.TEST)


def is_never_closed(uses: Iterable[Use]) -> bool:
    """Whether none of these uses ends the session or passes it to another owner."""
    found = set(uses)
    if found & {Use.CLOSE, Use.TAKE}:
        return False
    # Lent to unknown code and never used again by its owner: that code may own it now.
    return Use.LEND not in found or Use.DRIVE in found


def argument_use(
    module: Module,
    call: ast.Call,
    argument: ast.expr | ast.keyword,
    seen: frozenset[ast.AST] = frozenset(),
) -> Use:
    """What a call does to a session among its arguments."""
    if _is_too_far(module, seen):
        return Use.TAKE
    meaning = module.names.meaning(call.func)
    name = last_name(call.func)
    if name == "set_session" and _is_keras(module, call.func):
        # Keras keeps the session and never closes it; `clear_session` drops it.
        return Use.TAKE if module.program.ends_keras(module) else Use.KEEP
    if meaning is not None and meaning.endswith("DebugWrapperSession"):
        return classify(module, call, seen)  # the session lives as long as its wrapper
    if meaning is not None:
        return _use_by_tensorflow(meaning)
    if not name:
        return Use.LEND
    if isinstance(call.func, ast.Name) and name in _LOOKING:
        return Use.TEST
    found = module.program.definition(module, call.func)
    if found is not None:
        return _use_by_program(found, call, argument, seen)
    if isinstance(call.func, ast.Attribute):
        if name in _BORROWING_METHODS:
            return Use.BORROW
        methods = module.methods.get(name, [])
        if len(methods) == 1 and not methods[0].decorator_list:
            only = Definition(module, methods[0], is_bound=True)
            return _use_by_program(only, call, argument, seen)
    if is_takeover(name):
        return Use.TAKE
    return Use.BORROW if name[:1].islower() and _words(name) & _USING else Use.LEND


def _use_by_tensorflow(meaning: str) -> Use:
    last = meaning.rpartition(".")[2]
    return Use.TAKE if last.endswith("Session") else Use.BORROW  # wrappers close their session


def _is_keras(module: Module, node: ast.expr) -> bool:
    if ".keras." in (module.names.meaning(node) or ""):
        return True
    _, imported = module.names.imports.get((dotted(node) or "").split(".")[0], (0, ""))
    return imported.split(".")[0] == "keras"


def _use_by_program(
    found: Definition,
    call: ast.Call,
    argument: ast.expr | ast.keyword,
    seen: frozenset[ast.AST],
) -> Use:
    if isinstance(found.node, ast.ClassDef):
        made = found.module.program.constructor(found)
        if made is None:
            return Use.LEND
        found = made
    function = found.node
    assert isinstance(function, Function)
    decorators = {last_name(d) for d in function.decorator_list}
    if decorators - {"staticmethod", "classmethod"}:
        return Use.LEND
    if isinstance(argument, ast.keyword):
        name = argument.arg
    else:
        index = call.args.index(argument) + found.is_bound
        named = parameters(function)
        name = named[index] if index < len(named) else None
    return Use.LEND if name is None else _use_of_parameter(found.module, function, name, seen)


def _use_as_default(
    module: Module, arguments: ast.arguments, node: ast.expr, seen: frozenset[ast.AST]
) -> Use:
    """What a function does to a session that is a default: `def load(path, sess=sess)`."""
    function = module.parents[arguments]
    named = [*arguments.posonlyargs, *arguments.args]
    if not isinstance(function, Function) or node not in arguments.defaults:
        return Use.LEND
    name = named[arguments.defaults.index(node) - len(arguments.defaults)].arg
    return _use_of_parameter(module, function, name, seen)


def _use_of_parameter(
    module: Module, function: Function, name: str, seen: frozenset[ast.AST]
) -> Use:
    if function in seen:
        return Use.LEND
    seen |= {function}
    uses = [classify(module, node, seen) for node in own_uses(function, name)]
    uses += [_use_inside(module, node, seen) for node in module.free_uses(function, name)]
    worst_use = worst(uses)
    return Use.BORROW if worst_use in (Use.TEST, Use.DRIVE) else worst_use


def _use_inside(module: Module, node: ast.Name, seen: frozenset[ast.AST]) -> Use:
    """What an inner function does to the session, which it may keep beyond the outer call."""
    found = classify(module, node, seen)
    return Use.KEEP if found in (Use.TEST, Use.DRIVE, Use.BORROW) else found


def _use_of_attribute(module: Module, target: ast.Attribute, seen: frozenset[ast.AST]) -> Use:
    """What happens to a session that an object of the program keeps on itself."""
    owner = module.class_of(target)
    if owner is None or not module.has_only_known_bases(owner):
        return Use.TAKE
    if module.program.closes(module, owner, target.attr):
        return Use.TAKE
    return (
        Use.KEEP if is_never_closed(attribute_uses(module, owner, target.attr, seen)) else Use.TAKE
    )


def returned_use(
    module: Module,
    node: ast.expr,
    seen: frozenset[ast.AST] = frozenset(),
    unseen: Use = Use.TAKE,
) -> Use:
    """What the callers of a function do to the session that it returns.

    `unseen` if no callers are found, or if some of them cannot be followed.
    """
    function = module.scope_of(node)
    if not isinstance(function, Function) or function in seen:
        return Use.TAKE
    program = module.program
    decorators = {last_name(d) for d in function.decorator_list}
    if decorators - {"property"}:
        return Use.TAKE
    uses: list[tuple[Module, ast.expr]] = [*program.all_calls_of(function)]
    if module.class_of(function) is not None:
        uses = program.mentions_of_method(function.name, is_property=bool(decorators))
    seen |= {function}
    return worst(classify(m, use, seen) for m, use in uses) if uses else unseen


def attribute_uses(
    module: Module,
    owner: ast.ClassDef,
    attribute: str,
    seen: frozenset[ast.AST] = frozenset(),
    opening: ast.Call | None = None,
) -> list[Use]:
    """Every use in this file of that attribute, on any object that may be of this class.

    Uses of another session, with which a method replaces the one of `opening`, do not count.
    """
    found: list[Use] = []
    returned = []
    for node in module.attributes.get(attribute, ()):
        if node in seen or not _may_be(module, node, owner):
            continue
        if opening is not None and _is_renewed(module, node, opening):
            continue
        if isinstance(node.ctx, ast.Load):
            if isinstance(module.parents[node], ast.Return):
                returned.append(node)
            else:
                found.append(classify(module, node, seen))
        elif isinstance(node.ctx, ast.Del):
            found.append(Use.TAKE)
    # A class that runs its session is expected to close it, even if others may get it.
    unseen = Use.BORROW if Use.DRIVE in found else Use.TAKE
    found += [returned_use(module, node, seen, unseen) for node in returned]
    for call in module.calls:
        # getattr(self, "sess").close() cannot be followed.
        if last_name(call.func) == "getattr" and len(call.args) > 1:
            name = call.args[1]
            if isinstance(name, ast.Constant) and name.value == attribute:
                found.append(Use.TAKE)
    return found


def _is_renewed(module: Module, node: ast.Attribute, opening: ast.Call) -> bool:
    """Whether the method opens another session for this attribute before this use."""
    scope = module.scope_of(node)
    if scope is module.scope_of(opening) or not isinstance(scope, Function):
        return False
    return any(
        isinstance(statement, ast.Assign)
        and statement.lineno < node.lineno
        and isinstance(statement.value, ast.Call)
        and module.opens(statement.value) is not None
        and ast.unparse(node) in map(ast.unparse, statement.targets)
        for statement in scope.body
    )


def _may_be(module: Module, node: ast.Attribute, owner: ast.ClassDef) -> bool:
    """Whether this attribute may belong to that class: not if `self` is of an unrelated class."""
    if not is_self(node.value):
        return True
    other = module.class_of(node)
    return other is None or module.program.is_related(other, owner)
