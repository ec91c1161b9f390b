"""Finds functions that open and return a session, and where such a session is reported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from sojourn.audit import codes
from sojourn.audit.lint.definitions import Definition
from sojourn.audit.lint.flow import Flow
from sojourn.audit.lint.kept import unclosed
from sojourn.audit.lint.module import Function, Module, Scope
from sojourn.audit.lint.names import is_interactive
from sojourn.audit.lint.problem import Problem, is_silenced, problem_at
from sojourn.audit.lint.program import Program
from sojourn.audit.lint.repeats import function_around, gives
from sojourn.audit.lint.state import Site, Values


def understood(program: Program) -> Program:
    """Note the program's factories: functions that always return a session that they opened."""
    for _ in range(2):  # a factory may call another
        for module in program.modules.values():
            for function in _scopes_with_sessions(module):
                if isinstance(function, ast.FunctionDef) and not function.decorator_list:
                    _note_factory(program, module, function)
    return program


def _scopes_with_sessions(module: Module) -> list[Scope]:
    """The scopes (functions, classes, the module) that open a session themselves."""
    calls = [c for c in module.calls if module.opens(c) or module.opens_among(c)]
    return list(dict.fromkeys(module.scope_of(c) for c in calls))


def _note_factory(program: Program, module: Module, function: ast.FunctionDef) -> None:
    if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)):
        return
    flow = Flow(module, function)
    flow.run()
    own = {s for s in flow.sites.values() if not s.globals and not s.attributes}

    def is_own(values: Values) -> bool:
        return bool(values) and None not in values and own >= values

    if flow.returned and all(map(is_own, flow.returned)):
        program.factories.add(function)
        program.factory_names.add(function.name)
        program.openings[function] = _calls({s for values in flow.returned for s in values})
    elif len(flow.returned_parts) == len(flow.returned) == 1:
        parts = flow.returned_parts[0]
        places = [place for place, values in enumerate(parts) if is_own(values)]
        if len(places) == 1:
            program.tuple_factories[function] = len(parts), places[0]
            program.openings[function] = _calls(parts[places[0]])


def _calls(sites: Iterable[Site | None]) -> list[ast.Call]:
    calls = [site.call for site in sites if site is not None]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def flow_problems(module: Module) -> frozenset[Problem]:
    """The problems of a file's sessions, each at the call that opens a session or gets it."""
    known = module.program.flow_problems
    if module.path not in known:
        known[module.path] = frozenset(_followed(module))
    return known[module.path]


def _followed(module: Module) -> Iterator[Problem]:
    for scope in _scopes_with_sessions(module):
        flow = Flow(module, scope)
        flow.run()
        yield from flow.problems
        yield from unclosed(module, flow)


def at_their_openings(module: Module, found: set[Problem]) -> set[Problem]:
    """The findings, with the sessions of factories reported where the factory opens them.

    Only if every call of the factory leaves its session open: if one closes it, the other calls
    are at fault, and the findings stay there.
    """
    calls = {_place(call): call for call in module.calls}
    reported = set(found)
    for problem in found:
        factory = _factory_of(module, calls.get(problem.start))
        if problem.code == codes.NEVER_CLOSED.code and factory and _losses(factory, module, found):
            reported.remove(problem)
    for function in filter(module.parents.__contains__, module.program.openings):
        assert isinstance(function, Function)
        losses = _losses(Definition(module, function), module, found)
        reported |= set(_at_opening(module, function, losses)) if losses else set()
    return reported


def _factory_of(module: Module, call: ast.Call | None) -> Definition | None:
    """The factory that opens the session that this call returns."""
    if call is None or module.names.session_class(call) is not None:
        return None
    found = module.program.definition(module, call.func)
    return found if found is not None and found.node in module.program.openings else None


def _losses(
    factory: Definition, module: Module, found: set[Problem]
) -> list[tuple[Module, ast.Call]]:
    """Every call of a factory, if each leaves its session open; else an empty list.

    `found` holds the findings of `module`. A silenced finding does not count.
    """
    program = module.program
    openings = program.openings[factory.node]
    if any(factory.module.names.session_class(opening) is None for opening in openings):
        return []  # this factory calls another one
    assert isinstance(factory.node, Function)
    calls = program.all_calls_of(factory.node)
    for user, call in calls:
        problems = found if user is module else flow_problems(user)
        silenced = program.silenced.get(user.path, {})
        if not any(_is_loss(p, call) and not is_silenced(p, silenced) for p in problems):
            return []
    return calls


def _is_loss(problem: Problem, call: ast.Call) -> bool:
    return problem.start == _place(call) and problem.code == codes.NEVER_CLOSED.code


def _at_opening(
    module: Module, factory: Function, losses: list[tuple[Module, ast.Call]]
) -> Iterator[Problem]:
    by_file: dict[str, list[str]] = {}
    for user, call in losses:
        file = "" if user is module else f" of {PurePath(user.path).name}"
        by_file.setdefault(file, []).append(str(call.lineno))
    places = [f"line{'s' * (len(n) > 1)} {', '.join(n)}{file}" for file, n in by_file.items()]
    detail = f"`{factory.name}` returns it to {' and '.join(places)}, where nothing closes it"
    for opening in module.program.openings[factory]:
        asked: dict[str, bool] = {}
        function_around(module, opening, asked)
        if not any(all(gives(*loss, factory, *one) for one in asked.items()) for loss in losses):
            continue  # an opening under `if interactive:`, and no call sets that
        kind = module.names.session_class(opening) or ""
        code = codes.INTERACTIVE_LEFT if is_interactive(kind) else codes.NEVER_CLOSED
        yield problem_at(opening, code, detail)


def _place(call: ast.Call) -> tuple[int, int]:
    return call.lineno, call.col_offset + 1
