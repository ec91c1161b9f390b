"""Evaluates expressions: which sessions they yield, and what they do to sessions."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod

from sojourn.audit import codes
from sojourn.audit.lint.containers import use_in_container
from sojourn.audit.lint.module import CLOSING, Module, is_self, last_name
from sojourn.audit.lint.problem import Problem, problem_at
from sojourn.audit.lint.state import (
    CLOSED,
    LENT,
    NOTHING,
    OPEN,
    TAKEN,
    UNKNOWN,
    PathState,
    Site,
    Values,
    sites_in,
)
from sojourn.audit.lint.uses import (
    Use,
    argument_use,
    classify,
    is_ending,
    is_for_a_thread,
    use_by_thread,
    worst,
)

# These raise RuntimeError on a closed session.
_NEEDING = frozenset({"save", "restore"})  # a saver's methods need an open session
_RUNNING = frozenset({"run", "partial_run", "partial_run_setup", "make_callable", "list_devices"})
_DISPLAYS = (ast.Dict, ast.List, ast.Tuple)
_PASSING = (Use.TEST, Use.DRIVE, Use.BORROW)  # uses that leave nothing behind when they return
_ENDINGS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort"})
_CATCHES_CLOSED = frozenset({"RuntimeError", "Exception", "BaseException"})


class Expressions(ABC):
    """Evaluates the expressions of one scope over a state, and collects the problems."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.problems: list[Problem] = []
        self.sites: dict[ast.Call, Site] = {}
        self.lendings: dict[ast.expr, frozenset[Site]] = {}  # by the call
        self.failing: set[ast.expr | None] = set()  # expressions expected to fail
        self.guarded = 0  # inside a `try` or `with raises` that expects a closed session

    def key(self, node: ast.expr) -> str | None:
        """The key of a plain name or an attribute of self in a state; None for anything else."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return f"self.{node.attr}" if node.value.id == "self" else None
        return None

    def hand_over(
        self, values: Values | frozenset[Site], state: PathState, is_stored: bool = False
    ) -> None:
        """Mark these sessions as owned by other code, which receives or stores them."""
        for site in values:
            if site is not None:
                state.set([site], TAKEN)
                site.is_stored |= is_stored
                site.is_given_away |= not is_stored

    def carried_by(self, node: ast.expr, state: PathState) -> frozenset[Site]:
        """The lent sessions that the value of this expression still holds."""
        found: set[Site] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in state.carriers:
                found |= state.carriers[part.id] if not self._gives_data(part) else frozenset()
            if isinstance(part, ast.Call) and part in self.lendings:
                found |= self.lendings[part]
        return frozenset(found)

    def _gives_data(self, name: ast.Name) -> bool:
        """Whether only a result of the holder is passed on: `step(1.0)`, `play(agent)`."""
        is_given = isinstance(self.module.parents[name], ast.Call | ast.keyword)
        return is_given and classify(self.module, name) in _PASSING

    def value(self, node: ast.expr, state: PathState, as_context: bool = False) -> Values:
        """The sessions this expression may evaluate to; its effects are applied to `state`."""
        if isinstance(node, ast.Name | ast.Attribute):
            key = self.key(node)
            if key is not None and key in state.names:
                return state.names[key]
            if isinstance(node, ast.Attribute):
                self._attribute(node, state)
            return UNKNOWN
        if isinstance(node, ast.Call):
            return self._call(node, state, as_context)
        if isinstance(node, ast.NamedExpr):
            values = self.value(node.value, state)
            self.bind(node.target, values, state)
            return values
        if isinstance(node, ast.IfExp):
            self.value(node.test, state)
            ways = [node.body, node.orelse]
            if isinstance(node.test, ast.Constant):
                ways = [node.body if node.test.value else node.orelse]
            return frozenset(v for way in ways for v in self.value(way, state))
        if isinstance(node, ast.BoolOp):
            found = NOTHING
            for part in node.values:
                found |= self.value(part, state)
            return found
        if isinstance(node, ast.Await | ast.Starred):
            return self.value(node.value, state)
        if isinstance(node, ast.Lambda):
            self._capture(node, state)
            return UNKNOWN
        if isinstance(node, ast.Compare | ast.JoinedStr | ast.FormattedValue | ast.UnaryOp):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child, state)
            return UNKNOWN
        # All other expressions pass their sessions on: containers, yield, comprehensions.
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._put(child, self.value(child, state), state)
            elif isinstance(child, ast.comprehension):
                self.value(child.iter, state)
                for test in child.ifs:
                    self.value(test, state)
        return UNKNOWN

    @abstractmethod
    def bind(self, target: ast.expr, values: Values, state: PathState) -> None:
        """Bind these values to a name, an attribute or the parts of a target."""

    def _put(self, node: ast.expr, values: Values, state: PathState) -> None:
        """Record sessions that go out of sight, or into a list or dict that only keeps them."""
        if not sites_in(values):
            return
        if is_for_a_thread(self.module, self.module.parents[node]):
            use = use_by_thread(self.module, node)
            if use is Use.LEND:
                self._lend(sites_in(values), state, "")
            elif use is Use.KEEP:
                _keep(values)
            else:
                self.hand_over(values, state)
        elif use_in_container(self.module, node) in (Use.TAKE, Use.CLOSE, Use.LEND):
            parent = self.module.parents[node]
            targets = parent.targets if isinstance(parent, ast.Assign) else []
            is_item = any(isinstance(target, ast.Subscript) for target in targets)
            self.hand_over(values, state, is_item or isinstance(parent, _DISPLAYS))
        else:
            _keep(values)

    def _capture(self, node: ast.Lambda, state: PathState) -> None:
        """Hand over a lambda's sessions, except those that it only uses and so cannot close."""
        names = [n for n in ast.walk(node.body) if isinstance(n, ast.Name) and n.id in state.names]
        for name in {n.id for n in names}:
            if worst(classify(self.module, n) for n in names if n.id == name) not in _PASSING:
                self.hand_over(state.names[name], state)

    def _attribute(self, node: ast.Attribute, state: PathState) -> None:
        values = self.value(node.value, state)
        if node.attr in CLOSING:  # `atexit.register(sess.close)`
            self.hand_over(values, state)
        elif node.attr in _RUNNING:
            _keep(values)  # `return sess.run`

    def _call(self, node: ast.Call, state: PathState, as_context: bool) -> Values:
        func = node.func
        if isinstance(func, ast.Attribute):
            owner = self.value(func.value, state)
            if sites_in(owner):
                return self._method(node, func, owner, state)
            self._carrier_method(func, state)
        elif not isinstance(func, ast.Name):
            self.value(func, state)
        kind = self.module.opens(node)
        wraps = (self.module.names.meaning(func) or "").endswith("DebugWrapperSession")
        arguments = [(a, a) for a in node.args] + [(k, k.value) for k in node.keywords]
        lent: set[Site] = set()
        passed: Values = NOTHING
        for argument, expression in arguments:
            values = self.value(expression, state)
            if sites_in(values):
                passed |= values
                if not wraps:
                    lent |= self._pass(node, argument, expression, values, state)
        if lent:
            self.lendings[node] = frozenset(lent)
        self._forget_self(node, state)
        if kind is not None:
            site = self.sites.setdefault(node, Site(node, kind))
            state.set([site], TAKEN if node in self.failing else OPEN)
            return frozenset({site})
        if wraps or (as_context and last_name(func) == "closing"):
            return passed or UNKNOWN
        if self.module.names.meaning(func) == "tensorflow.get_default_session":
            # The default may be any session that is open here, and is often fetched to close it.
            return frozenset({None, *(site for site, bits in state.bits.items() if bits & OPEN)})
        return UNKNOWN

    def _method(
        self, node: ast.Call, func: ast.Attribute, owner: Values, state: PathState
    ) -> Values:
        for child in (*node.args, *(k.value for k in node.keywords)):
            self.hand_over(self.value(child, state), state)
        if func.attr in CLOSING:
            state.set(sites_in(owner), CLOSED)
            return UNKNOWN
        if func.attr in _RUNNING:
            self._used(node, func.value, owner, state)
            if func.attr == "make_callable":
                _keep(owner)
        self._go_on(owner, state)
        return owner if func.attr in ("__enter__", "as_default") else UNKNOWN

    def _carrier_method(self, func: ast.Attribute, state: PathState) -> None:
        if isinstance(func.value, ast.Name) and is_ending(func.attr):
            for site in state.carriers.get(func.value.id, ()):
                state.set([site], TAKEN)

    def _pass(
        self,
        node: ast.Call,
        argument: ast.expr | ast.keyword,
        expression: ast.expr,
        values: Values,
        state: PathState,
    ) -> set[Site]:
        if isinstance(expression, ast.Starred):
            self.hand_over(values, state)
            return set()
        use = argument_use(self.module, node, argument)
        if use is Use.TAKE:
            self._put(expression, values, state)
        elif use is Use.CLOSE:
            self.hand_over(values, state)
        elif use is Use.LEND:
            return self._lend(sites_in(values), state, last_name(node.func))
        else:
            by_name = isinstance(argument, ast.keyword) and argument.arg in ("session", "sess")
            if by_name or last_name(node.func) in _NEEDING:
                self._used(node, expression, values, state)
            if use is Use.KEEP:
                _keep(values)
            self._go_on(values, state)
        return set()

    def _go_on(self, values: Values, state: PathState) -> None:
        """Return lent sessions to their owner, who uses them again."""
        for site in sites_in(values):
            if state.bits[site] & LENT:
                state.set([site], OPEN)

    def _lend(self, sites: list[Site], state: PathState, by: str) -> set[Site]:
        """Lend these sessions to code that cannot be seen.

        A function uses a session that it receives, and a class keeps it: the code that opened it
        still owns it. Only a thread or a callee without a name (`by`) may take it permanently.
        """
        for site in sites:
            site.is_lent = True
            if state.bits[site] == OPEN and not by:
                state.set([site], LENT)
        return set(sites)

    def _used(self, node: ast.expr, what: ast.expr, values: Values, state: PathState) -> None:
        if self.guarded or not state.is_only(values, CLOSED):
            return
        detail = f"`{ast.unparse(what)}` is closed here"
        self.problems.append(problem_at(node, codes.USED_AFTER_CLOSE, detail))

    def _forget_self(self, node: ast.Call, state: PathState) -> None:
        """Forget the sessions on self if a method of self runs: it may replace or close them."""
        func = node.func
        on_self = isinstance(func, ast.Attribute) and is_self(func.value)
        if on_self or any(is_self(a) for a in node.args):
            for key in [k for k in state.names if k.startswith("self.")]:
                del state.names[key]

    def is_closing_context(self, node: ast.expr, values: Values) -> bool:
        """Whether leaving `with node:` closes the session, which `as_default()` does not."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr != "as_default" and bool(sites_in(values))
        return bool(sites_in(values))


def _keep(values: Values) -> None:
    """Mark sessions that other code keeps using but cannot close."""
    for site in sites_in(values):
        site.is_lent = True


def can_catch_closed(node: ast.Try) -> bool:
    """Whether a `try` may exist to catch the error of a closed session."""
    for handler in node.handlers:
        types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(t is None or last_name(t) in _CATCHES_CLOSED for t in types):
            return True
    return False


def ends_program(node: ast.expr) -> bool:
    """Whether nothing after this expression statement runs."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in _ENDINGS
