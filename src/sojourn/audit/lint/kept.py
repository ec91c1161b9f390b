"""Finds the sessions that stay open: at the end of a path, on self, in a class, in a global."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sojourn.audit import codes
from sojourn.audit.lint.flow import Flow
from sojourn.audit.lint.module import CLOSING, Function, Module, last_name, own_nodes, own_uses
from sojourn.audit.lint.names import is_interactive
from sojourn.audit.lint.problem import Problem, problem_at
from sojourn.audit.lint.program import asked_once
from sojourn.audit.lint.state import CLOSED, LENT, OPEN, TAKEN, Site
from sojourn.audit.lint.uses import (
    Use,
    attribute_uses,
    classify,
    is_ending,
    is_never_closed,
    returned_use,
)

_CLOSERS = frozenset({"closing", "ExitStack", "enter_context", "clear_session"})
# Names of things that many programs close and that are no sessions.
_OTHERS = re.compile(
    "^(f|fp|fh|fd|fin|fout|plt|cap|db|out|im|img|q|open|pbar|bar|zf|tar)$"
    "|file|writer|env|conn|sock|pool|cursor|log|csv|image|video|stream|queue|figure|handle"
)


def unclosed(module: Module, flow: Flow) -> Iterator[Problem]:
    """The sessions of one scope that nothing closes."""
    for site in flow.sites.values():
        detail = _why_open(module, flow, site)
        if detail is not None:
            code = codes.INTERACTIVE_LEFT if is_interactive(site.kind) else codes.NEVER_CLOSED
            yield problem_at(site.call, code, detail)


def _why_open(module: Module, flow: Flow, site: Site) -> str | None:
    if site.is_stored and not site.is_given_away and not site.ever & CLOSED:
        is_lost = _is_used_here(module, flow) and not _may_be_closed(module)
        return "put away, and nothing in this program closes it" if is_lost else None
    if site.attributes or site.globals or site.elsewhere:
        return _why_kept_open(module, site)
    if isinstance(flow.scope, ast.Module):
        elsewhere = [u for n in site.names for u in module.program.mentions_of(module, n)]
        if not is_never_closed([*(classify(*use) for use in elsewhere), Use.DRIVE]):
            return None
    name = f"`{min(site.names)}`" if site.names else "it"
    if not site.ever & (CLOSED | TAKEN | LENT):
        return f"nothing closes {name}" if site.names else "it has no name to close it by"
    for way_out in flow.exits:
        # Lent on one path and used by its owner on another: it still belongs to the owner.
        if way_out.state.bits.get(site, 0) & ~LENT == OPEN:
            if not site.ever & (CLOSED | TAKEN):
                return f"nothing closes {name}"
            if way_out.statement is not None:
                return f"line {way_out.statement.lineno} returns without closing {name}"
            return f"{name} is closed on some ways out only"
    return None


def _is_used_here(module: Module, flow: Flow) -> bool:
    """Whether all code that may get the sessions that this scope stores can be seen."""
    scope = flow.scope
    if not isinstance(scope, Function) or scope in module.program.openings:
        return isinstance(scope, ast.Module)
    returns = any(isinstance(n, ast.Return) and n.value for n in own_nodes(scope))
    owner = module.class_of(scope)
    if owner is None:
        return not scope.decorator_list and bool(module.program.all_calls_of(scope))
    is_called = not returns or bool(module.program.calls_named(scope.name))
    return is_called and module.has_only_known_bases(owner)


@asked_once
def _may_be_closed(module: Module) -> bool:
    """Whether any code of the program closes something that may be a session."""
    return any(_closes_something(m) for m in module.program.together_with(module))


def _closes_something(module: Module) -> bool:
    if any(last_name(call.func) in _CLOSERS for call in module.calls):
        return True
    for name in CLOSING:
        for node in module.attributes.get(name, ()):
            closed = node.value.func if isinstance(node.value, ast.Call) else node.value
            if not _OTHERS.search(last_name(closed).lower() or "_"):
                return True
    items = [n.context_expr for n in module.parents if isinstance(n, ast.withitem)]
    return any(isinstance(i, ast.Name | ast.Attribute | ast.Subscript) for i in items)


def _why_kept_open(module: Module, site: Site) -> str | None:
    if site.ever & (CLOSED | TAKEN):
        return None
    for attribute in sorted(site.attributes):
        owner = module.class_of(site.call)
        if owner is None or not module.has_only_known_bases(owner):
            return None
        if module.program.closes(module, owner, attribute):
            return None
        uses = attribute_uses(module, owner, attribute, opening=site.call)
        if not is_never_closed(uses if site.is_lent else [*uses, Use.DRIVE]):
            return None
    if any(_is_ended(module, holder) for holder in site.holders):
        return None
    for name in sorted(site.globals):
        if not is_never_closed([*_global_uses(module, name), Use.DRIVE]):
            return None
    for name, owner_text in sorted(site.elsewhere):
        if not is_never_closed([*_uses_anywhere(module, name, owner_text), Use.DRIVE]):
            return None
        return f"kept as `{owner_text}.{name}`, which nothing here closes"
    if site.attributes:
        return f"kept as `self.{min(site.attributes)}`, which nothing here closes"
    return f"kept in the global `{min(site.globals)}`, which nothing here closes"


def _uses_anywhere(module: Module, attribute: str, owner: str) -> Iterator[Use]:
    """Every use in the program of an attribute of that name, and CLOSE if its object is ended."""
    for other in module.program.modules.values():
        for node in other.attributes.get(attribute, ()):
            if isinstance(node.ctx, ast.Load):
                yield classify(other, node)
        if any(last_name(node.value) == attribute for node in other.attributes.get("close", ())):
            yield Use.CLOSE  # `config.sess = tf.Session()`, which config closes
    for name, nodes in module.attributes.items():
        if is_ending(name) and any(ast.unparse(node.value) == owner for node in nodes):
            yield Use.CLOSE


def _is_ended(module: Module, holder: str) -> bool:
    """Whether code ends the object in that attribute, which may close its session as well."""
    for node in module.attributes.get(holder, ()):
        parent = module.parents[node]
        if isinstance(parent, ast.withitem):
            return True
        if isinstance(parent, ast.Attribute) and is_ending(parent.attr):
            return True
    return False


def _global_uses(module: Module, name: str) -> Iterator[Use]:
    for use in (*own_uses(module.tree, name), *module.free_uses(module.tree, name)):
        is_returned = isinstance(module.parents[use], ast.Return)
        yield returned_use(module, use) if is_returned else classify(module, use)
    for other, node in module.program.mentions_of(module, name):
        yield classify(other, node)
