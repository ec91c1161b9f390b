"""Follows sessions that are kept in a list or a dict of the same file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sojourn.audit.lint.module import Function, Module, is_self, last_name, own_uses
from sojourn.audit.lint.uses import Use, classify, worst

_PUTTING = frozenset({"append", "add", "insert", "setdefault"})
_GIVING = frozenset({"get", "pop", "popleft", "popitem"})
_VIEWS = frozenset({"values", "items", "copy"})
_LOOKING = frozenset({"len", "print", "bool", "keys", "index", "sort", "sorted"})
_WRAPPING = frozenset({"zip", "enumerate", "list", "tuple", "reversed"})
_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)


def use_in_container(module: Module, opening: ast.expr) -> Use:
    """What happens to a session that is put straight into a list or dict that can be followed."""
    holder = _holder_of(module, opening)
    if holder is None:
        return Use.TAKE
    return worst(_use_of_holder(module, use) for use in _uses_of(module, holder))


def is_collected(module: Module, opening: ast.Call) -> bool:
    """Whether a session is one of several that are kept together in a container."""
    is_listed = isinstance(module.parents[opening], ast.ListComp | ast.DictComp)
    return is_listed or _holder_of(module, opening) is not None


def _holder_of(module: Module, node: ast.expr) -> ast.expr | None:
    """The name or attribute of self whose list or dict this expression goes into."""
    parent = module.parents[node]
    if isinstance(parent, _DISPLAYS):
        node, parent = parent, module.parents[parent]
        if isinstance(node, ast.Tuple):
            return None
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.value if parent.func.attr in _PUTTING else None
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or parent.value is not node:
        return None
    target = parent.targets[0]
    if isinstance(target, ast.Subscript) and not isinstance(node, _DISPLAYS):
        return target.value
    return target if isinstance(node, _DISPLAYS) else None


def _uses_of(module: Module, holder: ast.expr) -> Iterator[ast.expr | None]:
    """Every load of the container; None for a possible load that cannot be seen."""
    if isinstance(holder, ast.Attribute) and is_self(holder.value):
        owner = module.class_of(holder)
        if owner is None or not module.has_only_known_bases(owner):
            yield None
            return
        others = [m for m in module.program.modules.values() if m is not module]
        if any(holder.attr in m.attributes for m in others):
            yield None
        yield from (n for n in module.attributes[holder.attr] if isinstance(n.ctx, ast.Load))
    elif isinstance(holder, ast.Name):
        home = module.home_of(holder)
        values = module.bindings.get((home, holder.id), [])
        if not values or not all(_is_new(v) for v in values):
            yield None  # a parameter, or a result of another function
        if home is module.tree and any(True for _ in module.program.mentions_of(module, holder.id)):
            yield None
        yield from own_uses(home, holder.id)
        yield from module.free_uses(home, holder.id)
    else:
        yield None


def _is_new(value: ast.expr | None) -> bool:
    """Whether this creates a container: `[]`, `{}`, `dict()`."""
    if isinstance(value, ast.Call):
        return last_name(value.func) in ("list", "dict", "OrderedDict", "defaultdict", "deque")
    if isinstance(value, ast.BinOp):
        return isinstance(value.left, ast.List)  # [None] * 3
    return isinstance(value, _DISPLAYS)


def _use_of_holder(module: Module, node: ast.expr | None, held: ast.expr | None = None) -> Use:
    """What one mention of the container `held`, or of a view of it, does to its sessions."""
    if node is None:
        return Use.TAKE
    held = held or node
    parent = module.parents[node]
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return _use_of_item(module, parent) if isinstance(parent.ctx, ast.Load) else Use.TEST
    if isinstance(parent, ast.Compare | ast.If | ast.While | ast.UnaryOp | ast.FormattedValue):
        return Use.TEST
    if isinstance(parent, ast.For | ast.comprehension) and parent.iter is node:
        return _use_of_turns(module, parent, held)
    if isinstance(parent, ast.Attribute):
        call = module.parents[parent]
        if not isinstance(call, ast.Call) or call.func is not parent:
            return Use.TAKE
        if parent.attr in _PUTTING or parent.attr in _LOOKING:
            return Use.TEST
        if parent.attr in _GIVING:
            return _use_of_item(module, call)
        return _use_of_holder(module, call, held) if parent.attr in _VIEWS else Use.TAKE
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        if parent.func.id in _LOOKING:
            return Use.TEST
        return _use_of_holder(module, parent, held) if parent.func.id in _WRAPPING else Use.TAKE
    return Use.TAKE


def _use_of_turns(module: Module, loop: ast.For | ast.comprehension, held: ast.expr) -> Use:
    """What a loop over the container does to the sessions in it."""
    items = _items(loop.target, loop.iter, held)
    names = [n.id for n in ast.walk(items) if isinstance(n, ast.Name)]
    scope = module.scope_of(loop)
    uses = [u for name in names for u in own_uses(scope, name)]
    if isinstance(scope, Function) and any(True for n in names for _ in module.free_uses(scope, n)):
        return Use.TAKE
    return worst(_use_of_item(module, use) for use in uses)


def _use_of_item(module: Module, node: ast.expr) -> Use:
    """What is done to one session; passing it to a function does not change its owner."""
    parent = module.parents[node]
    is_named = isinstance(parent, ast.Call) and bool(last_name(parent.func))
    use = classify(module, node)
    return Use.BORROW if use is Use.LEND and is_named else use


def _items(target: ast.expr, source: ast.expr, held: ast.expr) -> ast.expr:
    """The part of a loop's target that gets the container's items, without indices and others."""
    if not isinstance(source, ast.Call) or not isinstance(target, ast.Tuple | ast.List):
        return target
    name = last_name(source.func)
    parts = source.args if name == "zip" else []
    if name == "enumerate":
        parts = [ast.Constant(0), *source.args]
    elif name == "items" and isinstance(source.func, ast.Attribute):
        parts = [ast.Constant(0), source.func.value]
    for part, given in zip(target.elts, parts, strict=False):
        if held in ast.walk(given):
            return _items(part, given, held)
    return target
