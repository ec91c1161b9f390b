"""Follows sessions along every path through one function or module.

Paths that end in an exception do not count: an unclosed session is reported only where the
program's normal course leaves it open.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from sojourn.audit import codes
from sojourn.audit.lint.expressions import Expressions, can_catch_closed, ends_program
from sojourn.audit.lint.module import Function, Module, Scope, bound_names, declared, last_name
from sojourn.audit.lint.problem import problem_at
from sojourn.audit.lint.state import (
    CLOSED,
    OPEN,
    TAKEN,
    UNKNOWN,
    Exit,
    Jumps,
    PathState,
    Site,
    Values,
    joined,
    sites_in,
)
from sojourn.audit.lint.uses import Use, classify, is_never_closed


class Flow(Expressions):
    """The analysis of one scope. `run()` fills `problems`, `sites`, `exits` and `returned`."""

    def __init__(self, module: Module, scope: Scope) -> None:
        super().__init__(module)
        self.scope = scope
        self.jumps = Jumps()
        self.exits: list[Exit] = []
        self.returned: list[Values] = []
        self.returned_parts: list[list[Values]] = []  # of each tuple that is returned
        self.globals: set[str] = set()
        if isinstance(scope, Function):
            self.globals = declared(scope, ast.Global)
        self._captured: dict[str, bool] = {}
        self._managed: set[Site] = set()  # the `with` around this point closes them

    def run(self) -> None:
        state = PathState()
        if isinstance(self.scope, Function):
            state.names = dict.fromkeys(bound_names(self.scope), UNKNOWN)
        end = self.block(self.scope.body, state)
        self.exits = list(self.jumps.returns)
        if end.alive:
            self.exits.append(Exit(end, None))
        if isinstance(self.scope, Function) and end.alive:
            self.returned.append(UNKNOWN)

    # Statements ---------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt], state: PathState) -> PathState:
        for statement in statements:
            if not state.alive:
                break
            state = self.statement(statement, state)
        return state

    def statement(self, node: ast.stmt, state: PathState) -> PathState:
        method = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if method is not None:
            result: PathState = method(node, state)
            return result
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, state)
        return state

    def on_expr(self, node: ast.Expr, state: PathState) -> PathState:
        self.value(node.value, state)
        return state.dead() if ends_program(node.value) else state

    def on_assign(self, node: ast.Assign, state: PathState) -> PathState:
        if len(node.targets) == 1 and self._assign_pairs(node.targets[0], node.value, state):
            return state
        values = self.value(node.value, state)
        carried = self.carried_by(node.value, state)
        for target in node.targets:
            self.bind(target, values, state, carried, node.value)
        if len(node.targets) == 1 and isinstance(node.value, ast.Call):
            self._unpack_opened(node.targets[0], node.value, state)
        return state

    def _unpack_opened(self, target: ast.expr, call: ast.Call, state: PathState) -> None:
        """Bind `sess` of `sess, model = build()` if `build` opens the session that it returns."""
        among = self.module.opens_among(call)
        if among is None or not isinstance(target, ast.Tuple | ast.List):
            return
        count, place = among
        if len(target.elts) == count and not any(isinstance(t, ast.Starred) for t in target.elts):
            site = self.sites.setdefault(call, Site(call, f"{last_name(call.func)}()"))
            state.set([site], OPEN)
            self.bind(target.elts[place], frozenset({site}), state)

    def _assign_pairs(self, target: ast.expr, value: ast.expr, state: PathState) -> bool:
        """Bind the parts of `sess, model = tf.Session(), Model()` separately; True if done."""
        pair = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if not pair or len(target.elts) != len(value.elts):  # type: ignore[attr-defined]
            return False
        parts = list(zip(target.elts, value.elts, strict=True))  # type: ignore[attr-defined]
        if any(isinstance(p, ast.Starred) for both in parts for p in both):
            return False
        found = [self.value(v, state) for _, v in parts]
        for (t, v), values in zip(parts, found, strict=True):
            self.bind(t, values, state, self.carried_by(v, state), v)
        return True

    def on_annassign(self, node: ast.AnnAssign, state: PathState) -> PathState:
        if node.value is not None:
            values = self.value(node.value, state)
            carried = self.carried_by(node.value, state)
            self.bind(node.target, values, state, carried, node.value)
        return state

    def on_return(self, node: ast.Return, state: PathState) -> PathState:
        if isinstance(node.value, ast.Tuple):
            parts = [self.value(part, state) for part in node.value.elts]
            self.returned_parts.append([v if state.is_only(v, OPEN) else UNKNOWN for v in parts])
        values = self.value(node.value, state) if node.value else UNKNOWN
        self.returned.append(values if state.is_only(values, OPEN) else UNKNOWN)
        key = self.key(node.value) if node.value is not None else None
        if key is None or not (key in self.globals or key.startswith("self.")):
            self.hand_over(values, state)  # kept sessions are judged where the program gets them
        if node.value is not None:
            self.hand_over(frozenset(self.carried_by(node.value, state)), state)
        self.jumps.returns.append(Exit(state.copy(), node))
        return state.dead()

    def on_raise(self, node: ast.Raise, state: PathState) -> PathState:
        if node.exc is not None:
            self.value(node.exc, state)
        return state.dead()

    def on_break(self, _: ast.Break, state: PathState) -> PathState:
        self.jumps.breaks.append(state.copy())
        return state.dead()

    def on_continue(self, _: ast.Continue, state: PathState) -> PathState:
        self.jumps.continues.append(state.copy())
        return state.dead()

    def on_delete(self, node: ast.Delete, state: PathState) -> PathState:
        for target in node.targets:
            key = self.key(target)
            if key is not None:
                # Python finalizes the object here, and TensorFlow's finalizer closes the session.
                self.hand_over(state.names.pop(key, UNKNOWN), state)
        return state

    def on_if(self, node: ast.If, state: PathState) -> PathState:
        self.value(node.test, state)
        if isinstance(node.test, ast.Constant):  # `if False:` around disabled code
            return self.block(node.body if node.test.value else node.orelse, state)
        return self.block(node.body, state.copy()).join(self.block(node.orelse, state.copy()))

    def on_match(self, node: ast.Match, state: PathState) -> PathState:
        self.value(node.subject, state)
        ways = [self.block(case.body, state.copy()) for case in node.cases]
        return joined([*ways, state], state)

    def on_while(self, node: ast.While, state: PathState) -> PathState:
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return self._loop(node, state, forever, lambda s: self.value(node.test, s))

    def on_for(self, node: ast.For | ast.AsyncFor, state: PathState) -> PathState:
        self.value(node.iter, state)
        return self._loop(node, state, False, lambda s: self.bind(node.target, UNKNOWN, s))

    on_asyncfor = on_for

    def _loop(
        self,
        node: ast.While | ast.For | ast.AsyncFor,
        state: PathState,
        forever: bool,
        head: Callable[[PathState], object],
    ) -> PathState:
        outer, self.jumps = self.jumps, Jumps()
        breaks: list[PathState] = []
        entry = state
        # Twice: the second round starts with the sessions that the first one left open.
        for _ in range(2):
            self.jumps.breaks, self.jumps.continues = [], []
            turn = entry.copy()
            head(turn)
            end = joined([self.block(node.body, turn), *self.jumps.continues], state)
            breaks += self.jumps.breaks
            entry = entry.join(end)
        self.jumps.breaks, self.jumps.continues = [], []
        outer.absorb(self.jumps)
        self.jumps = outer
        if forever and breaks:
            return joined(breaks, state)
        return joined([self.block(node.orelse, entry), *breaks], state)

    def on_with(self, node: ast.With | ast.AsyncWith, state: PathState) -> PathState:
        outer, self.jumps = self.jumps, Jumps()
        managed: list[Site] = []
        expects_error = False
        for item in node.items:
            values = self.value(item.context_expr, state, as_context=True)
            if self.is_closing_context(item.context_expr, values):
                managed += sites_in(values)
            expects_error |= "raises" in ast.unparse(item.context_expr).lower()
            if item.optional_vars is not None:
                self.bind(item.optional_vars, values, state, value=item.context_expr)
            for site in self.carried_by(item.context_expr, state):
                self.hand_over(frozenset({site}), state)
        if expects_error:
            self.failing.add(getattr(node.body[-1], "value", None))
        self.guarded += expects_error
        around = self._managed
        self._managed = around.union(managed)
        end = self.block(node.body, state)
        self._managed = around
        self.guarded -= expects_error

        def leave(after: PathState) -> PathState:
            for site in managed:
                after.set([site], CLOSED)
            return after

        self.jumps.through(leave)
        outer.absorb(self.jumps)
        self.jumps = outer
        return leave(end)

    on_asyncwith = on_with

    def on_try(self, node: ast.Try, state: PathState) -> PathState:
        outer, self.jumps = self.jumps, Jumps()
        before = set(state.bits)
        interrupted = state.copy()
        self.guarded += can_catch_closed(node)
        for statement in node.body:
            if not state.alive:
                break
            state = self.statement(statement, state)
            interrupted = interrupted.join(state)
        self.guarded -= can_catch_closed(node)
        for site in interrupted.bits.keys() - before:
            # The exception may have been raised before the session was opened.
            interrupted.bits[site] |= TAKEN
        ways = [self.block(node.orelse, state)]
        for handler in node.handlers:
            caught = interrupted.copy()
            if handler.name:
                caught.names[handler.name] = UNKNOWN
            ways.append(self.block(handler.body, caught))
        inner, self.jumps = self.jumps, outer

        def finish(after: PathState) -> PathState:
            return self.block(node.finalbody, after) if after.alive else after

        inner.through(finish)
        outer.absorb(inner)
        end = joined(ways, state)
        if not end.alive and node.finalbody:
            # Every way raises or returns; the `finally` still runs and closes its sessions.
            self.block(node.finalbody, interrupted)
        return finish(end)

    on_trystar = on_try

    def on_functiondef(self, node: Function, state: PathState) -> PathState:
        for child in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if child is not None:
                self.hand_over(self.value(child, state), state)
        state.names[node.name] = UNKNOWN
        return state

    on_asyncfunctiondef = on_functiondef

    def on_classdef(self, node: ast.ClassDef, state: PathState) -> PathState:
        state.names[node.name] = UNKNOWN
        return state

    # Binding ------------------------------------------------------------------------------

    def bind(
        self,
        target: ast.expr,
        values: Values,
        state: PathState,
        carried: frozenset[Site] = frozenset(),
        value: ast.expr | None = None,
    ) -> None:
        key = self.key(target)
        if key is None:
            # A container, another object's attribute or an unpacking cannot be followed from here.
            if isinstance(target, ast.Subscript) and value is not None:
                self._put(value, values, state)
            elif isinstance(target, ast.Attribute) and value is not None:
                for site in sites_in(values):
                    site.elsewhere.add((target.attr, ast.unparse(target.value)))
            else:
                self.hand_over(values, state)
            parts = isinstance(target, ast.Tuple | ast.List | ast.Starred)
            if not parts:
                self.hand_over(frozenset(carried), state)
            for child in ast.iter_child_nodes(target):
                if parts and isinstance(child, ast.expr):
                    self.bind(child, UNKNOWN, state, carried)
                elif isinstance(child, ast.expr):
                    self.value(child, state)
            return
        self._replace(key, target, values, state, value)
        state.names[key] = values or UNKNOWN
        if isinstance(target, ast.Attribute):
            for site in carried:
                # An object made from a session and kept on the same `self` ends with the session.
                if site.attributes:
                    site.holders.add(target.attr)
                else:
                    self.hand_over(frozenset({site}), state)
        elif key in self.globals:
            self.hand_over(frozenset(carried), state)
        elif carried:
            state.carriers[key] = carried
        else:
            state.carriers.pop(key, None)
        for site in sites_in(values):
            if isinstance(target, ast.Attribute):
                site.attributes.add(target.attr)
            elif isinstance(self.scope, ast.ClassDef):
                site.attributes.add(key)
            elif key in self.globals:
                site.globals.add(key)
            else:
                site.names.add(key)
                if not self._captures_are_harmless(key):
                    self.hand_over(frozenset({site}), state)

    def _replace(
        self, key: str, target: ast.expr, values: Values, state: PathState, value: ast.expr | None
    ) -> None:
        old = state.names.get(key, UNKNOWN)
        if not state.is_only(old, OPEN) or set(sites_in(old)) & set(sites_in(values)):
            return
        if any(state.holders(site) != [key] or site in self._managed for site in sites_in(old)):
            return
        wrapped = value is not None and any(
            isinstance(n, ast.expr) and self.key(n) == key for n in ast.walk(value)
        )
        for site in sites_in(old):
            state.set([site], TAKEN)
        if not wrapped:
            first = min((s.call for s in sites_in(old)), key=lambda call: call.lineno)
            # Reported where the session was opened, as the audit does: that one stays open.
            detail = f"line {target.lineno} binds `{key}` again while this session is open"
            self.problems.append(problem_at(first, codes.REPLACED, detail))

    def _captures_are_harmless(self, name: str) -> bool:
        """Whether the functions inside this scope only use the session of that name.

        Then they cannot close it, no matter which code receives them.
        """
        if name not in self._captured:
            uses = [classify(self.module, node) for node in self.module.free_uses(self.scope, name)]
            self._captured[name] = is_never_closed([*uses, Use.DRIVE])
        return self._captured[name]
