"""Decides whether a session kept on `self` may be closed when its owner is garbage-collected.

`weakref.finalize(self, self.sess.close)` closes the session when its owner is collected (without
it, the session would be collected at the same time) or else at exit. That preserves the program's
behaviour unless other code can reach the session without holding its owner.
"""

from __future__ import annotations

import ast

from sojourn.audit.lint.module import Function, Module
from sojourn.audit.lint.uses import Use, classify

_HARMLESS = (Use.TEST, Use.DRIVE, Use.BORROW)


def dies_with_its_owner(module: Module, target: ast.expr) -> bool:
    """Whether only the object that `target` (``self.sess``) belongs to keeps the session."""
    owner = module.class_of(target)
    method = module.scope_of(target)
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
        return False
    if owner is None or not isinstance(method, Function) or method.decorator_list:
        return False
    arguments = [*method.args.posonlyargs, *method.args.args]
    if not arguments or arguments[0].arg != target.value.id:
        return False
    if not module.has_only_known_bases(owner) or _has_slots(owner):
        return False
    if not _is_made_here(module, owner):
        return False  # a library: its users, who may hold the session, cannot be seen
    uses = [n for n in module.attributes.get(target.attr, ()) if n is not target]
    return all(_is_harmless(module, use) for use in uses)


def _is_harmless(module: Module, use: ast.Attribute) -> bool:
    # `Agent().sess.run(x)` holds the session but not the agent.
    if not isinstance(use.ctx, ast.Load) or not isinstance(use.value, ast.Name):
        return False
    parent = module.parents[use]
    if isinstance(parent, ast.Attribute) and not isinstance(module.parents[parent], ast.Call):
        return parent.attr in ("graph", "graph_def")  # `step = self.sess.run` outlives the line
    return classify(module, use) in _HARMLESS


def _is_made_here(module: Module, owner: ast.ClassDef) -> bool:
    funcs = [call.func for call in module.calls]
    return any(isinstance(func, ast.Name) and func.id == owner.name for func in funcs)


def _has_slots(owner: ast.ClassDef) -> bool:
    targets = [t for node in owner.body if isinstance(node, ast.Assign) for t in node.targets]
    return any(isinstance(t, ast.Name) and t.id == "__slots__" for t in targets)
