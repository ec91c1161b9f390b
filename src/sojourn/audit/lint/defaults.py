"""Finds code that runs on whatever session is the default, in a program that installs none.

The default session then belongs to other code, which may close or replace it at any time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sojourn.audit import codes
from sojourn.audit.lint.definitions import is_none
from sojourn.audit.lint.module import Function, Module, is_self, last_name, own_nodes, own_uses
from sojourn.audit.lint.names import is_interactive
from sojourn.audit.lint.problem import Problem, problem_at
from sojourn.audit.lint.program import asked_once
from sojourn.audit.lint.repeats import is_eager
from sojourn.audit.lint.steps import can_run, is_step, looks_like_session
from sojourn.source import dotted

_ASKING = "tensorflow.get_default_session"
_RUNNING = frozenset({"run", "partial_run", "make_callable"})
_NAMES = (ast.Name, ast.Attribute)
_LOOKING = frozenset({"print", "isinstance", "hasattr", "type", "id", "repr", "str", "bool"})
_RECKONING = (ast.BinOp, ast.Compare, ast.Subscript)  # operations on numbers
_READING = frozenset({"print", "float", "int", "array", "asarray", "mean", "argmax", "format"})


def borrowed(module: Module) -> Iterator[Problem]:
    """The uses of a default session that no file of this program installed."""
    calls = [call for call in module.calls if _asks(module, call) or _runs_by_default(module, call)]
    if not calls or module.is_test:
        return
    others = [m for m in module.program.together_with(module) if m is not module]
    if _installs_default(module) or any(map(_lends_default, others)):
        return
    blocks = list(_blocks_with_default(module))
    theirs = [(other, list(_blocks_with_default(other))) for other in others]
    if any(_leads_to(other, found, module) for other, found in theirs if found):
        return
    ours = _reached(module, [*blocks, *(block for _, found in theirs for block in found)])
    for call in calls:
        scope = module.scope_of(call)
        if not isinstance(scope, Function) or scope.name.startswith("test"):
            continue
        if _may_be_inside(module, call, scope, blocks, ours):
            continue
        if _is_called_by_relatives(module, scope):
            continue
        asks = _asks(module, call)
        if (asks and not _is_run(module, call)) or is_eager(module, call):
            continue
        verb = "is" if asks else "runs on"
        detail = (
            f"`{ast.unparse(call.func)}()` {verb} whatever session is the default when "
            f"`{scope.name}` is called"
        )
        yield problem_at(call, codes.BORROWED_DEFAULT, detail)


def _reached(module: Module, blocks: list[ast.AST]) -> set[str]:
    """Every name that code in these blocks may reach."""
    nodes = (n for block in blocks for n in ast.walk(block) if isinstance(n, _NAMES))
    return module.program.reachable({last_name(n) for n in nodes})


def _leads_to(user: Module, blocks: list[ast.AST], module: Module) -> bool:
    """Whether a file that uses this one makes a session the default while it does so."""
    if module not in module.program.imported_by(user):
        return False
    defined = {*module.functions, *module.methods, *module.classes}
    return bool(defined & _reached(module, blocks))


def _asks(module: Module, call: ast.Call) -> bool:
    """Whether this calls `tf.get_default_session()`, or a function that returns nothing else."""
    if module.names.meaning(call.func) == _ASKING:
        return True
    if "session" not in last_name(call.func).lower():
        return False
    found = module.program.definition(module, call.func)
    if found is None or not isinstance(found.node, Function) or found.node.decorator_list:
        return False
    returned = [n.value for n in own_nodes(found.node) if isinstance(n, ast.Return)]
    values = [v for r in returned if r for v in (found.module.values_of(r) or [r])]
    return bool(values) and all(
        isinstance(v, ast.Call) and found.module.names.meaning(v.func) == _ASKING for v in values
    )


def _runs_by_default(module: Module, call: ast.Call) -> bool:
    """Whether no session is named, as in `loss.eval(feed_dict=...)`, `self.weights.eval()`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("eval", "run"):
        return False
    if call.keywords:
        return not call.args and {keyword.arg for keyword in call.keywords} == {"feed_dict"}
    if any(looks_like_session(argument) or module.is_session(argument) for argument in call.args):
        return False  # `variable.eval(sess)`
    if can_run(module, call.func.value):
        return len(call.args) <= 1  # the feeds
    is_bare = call.func.attr == "eval" and not call.args
    return is_bare and _is_data(module, call) and is_step(module, call)


def _is_data(module: Module, call: ast.Call) -> bool:
    """Whether the result is surely numbers, and not a model in evaluation mode."""
    parent = module.parents[call]
    if isinstance(parent, ast.Call):
        root = (dotted(parent.func) or "").split(".")[0]
        reads = last_name(parent.func) in _READING or module.names.foreign.get(root) == "numpy"
        return call in parent.args and reads
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        uses = list(own_uses(module.scope_of(call), parent.targets[0].id))
        if any(isinstance(module.parents[use], _RECKONING) for use in uses):
            return True  # `weights[weights < 0.1] = 0`
        return any(_is_fed_back(module, use, call) for use in uses)
    return isinstance(parent, (*_RECKONING, ast.Attribute, ast.FormattedValue))


def _is_fed_back(module: Module, use: ast.Name, call: ast.Call) -> bool:
    """Whether the result feeds its tensor: `state = m.start.eval()`, then `{m.start: state}`."""
    fed = module.parents[use]
    if not isinstance(fed, ast.Dict) or use not in fed.values:
        return False
    key = fed.keys[fed.values.index(use)]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call
    return key is not None and ast.unparse(key) == ast.unparse(owner)


def _is_run(module: Module, node: ast.expr) -> bool:
    """Whether the value of this expression runs a step, here or where it is passed to."""
    parent = module.parents[node]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _RUNNING and isinstance(module.parents[parent], ast.Call)
    if isinstance(parent, ast.keyword):
        return True
    if isinstance(parent, ast.Call):
        return last_name(parent.func) not in _LOOKING
    if isinstance(parent, ast.withitem):
        return True
    if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
        target = parent.targets[0]
        values = module.values_of(target)
        if sum(not is_none(v) for v in values) > 1:
            return False  # a session that the caller may give, or one of its own
        if isinstance(target, ast.Name):
            return any(_is_run(module, use) for use in own_uses(module.scope_of(node), target.id))
        if isinstance(target, ast.Attribute) and is_self(target.value):
            uses = module.attributes.get(target.attr, ())
            return any(isinstance(u.ctx, ast.Load) and _is_run(module, u) for u in uses)
    return False


def _installs_default(module: Module) -> bool:
    """Whether this file installs a default session without the limits of a `with` block."""
    names = {last_name(call.func) for call in module.calls}
    return bool(names & {"__enter__", "set_session", "enter_context"}) or _lends_default(module)


@asked_once
def _lends_default(module: Module) -> bool:
    """Whether this file surely installs a default session, also for its program's other files."""
    return not module.is_test and any(_is_installation(module, call) for call in module.calls)


def _is_installation(module: Module, call: ast.Call) -> bool:
    parent = module.parents[call]
    if is_interactive(module.opens(call) or ""):
        return not isinstance(parent, ast.Return)
    if not isinstance(call.func, ast.Attribute) or isinstance(parent, ast.withitem):
        return False
    if call.func.attr == "__enter__":
        return _may_enter_session(module, call.func.value)
    return call.func.attr == "as_default" and "graph" not in ast.unparse(call).lower()


def _blocks_with_default(module: Module) -> Iterator[ast.AST]:
    """The `with` blocks in which a session may be the default for code of this file.

    Blocks of context managers that only yield are left out: their code runs in the callers' blocks.
    """
    for item in [n for n in module.parents if isinstance(n, ast.withitem)]:
        block = module.parents[item]
        if _may_enter_session(module, item.context_expr) and not _only_yields(block):
            yield block


def _may_be_inside(
    module: Module, call: ast.Call, scope: Function, blocks: list[ast.AST], ours: set[str]
) -> bool:
    """Whether a default session of this program may be in force at the call."""
    owner = module.class_of(scope)
    called = owner.name if owner is not None and scope.name.startswith("__") else scope.name
    if called in ours:
        return True  # a block of the program leads here
    is_script = any(not isinstance(module.scope_of(block), Function) for block in blocks)
    if blocks and (is_script or owner is not None) and not module.program.mentions(called):
        return True  # no caller can be seen, and it may be in a block of this file
    node: ast.AST = call
    while node is not scope:
        child, node = node, module.parents[node]
        if isinstance(node, ast.If | ast.IfExp) and child is not node.test:
            asked = [n for n in ast.walk(node.test) if isinstance(n, ast.Call)]
            if any(_asks(module, n) for n in asked):
                return True  # the code has checked first that a default session exists
        items = node.items if isinstance(node, ast.With | ast.AsyncWith) else []
        if any(_may_enter_session(module, item.context_expr) for item in items):
            return True
    return False


def _is_called_by_relatives(module: Module, scope: Function) -> bool:
    """Whether a related class in another file calls this method inside its session's block."""
    owner = module.class_of(scope)
    if owner is None:
        return False
    for other in module.program.modules.values():
        if other is module or scope.name not in other.attributes:
            continue
        for block in _blocks_with_default(other):
            by = other.class_of(block)
            called = by is not None and module.program.is_related(by, owner)
            if called and any(last_name(n) == scope.name for n in ast.walk(block)):  # type: ignore[arg-type]
                return True
    return False


def _may_enter_session(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        if last_name(node.func) == "as_default" and isinstance(node.func, ast.Attribute):
            return "graph" not in ast.unparse(node.func.value).lower()
        if module.names.meaning(node.func) == _ASKING:
            return False
        return "sess" in last_name(node.func).lower() or module.opens(node) is not None
    return looks_like_session(node)


def _only_yields(node: ast.AST) -> bool:
    if isinstance(node, ast.With | ast.AsyncWith):
        return len(node.body) == 1 and _only_yields(node.body[0])
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)
