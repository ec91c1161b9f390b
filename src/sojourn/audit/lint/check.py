"""One file: every rule, with the lines left out that ask for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from sojourn.audit.lint.defaults import borrowed
from sojourn.audit.lint.flow import Flow
from sojourn.audit.lint.kept import unclosed
from sojourn.audit.lint.loops import Loops
from sojourn.audit.lint.module import Module, Scope
from sojourn.audit.lint.problem import Problem, in_characters, lines_of
from sojourn.audit.lint.program import Program
from sojourn.audit.lint.state import Values
from sojourn.audit.noqa import silenced_lines
from sojourn.source import parse


def check_source(
    source: str | bytes, path: str = "<string>", program: Program | None = None
) -> list[Problem]:
    """The findings in one file's text, in order. Raises SyntaxError for what is not Python 3.

    With a program, the text is judged as that file of it.
    """
    return check_module(module_of(source, path, program), source)


def module_of(
    source: str | bytes, path: str = "<string>", program: Program | None = None
) -> Module:
    """The text as a file, alone or in place of that file of a program."""
    tree = parse(source, path)
    whole = program.with_file(path, tree) if program is not None else Program({path: tree})
    return understood(whole).modules[path]


def check_module(module: Module, source: str | bytes) -> list[Problem]:
    """The findings in one file of a program."""
    found = {*Loops(module).problems(), *borrowed(module), *_flow_problems(module)}
    if found:
        silenced = silenced_lines(source)
        found = {p for p in found if not _is_silenced(p, silenced)}
    lines = lines_of(source) if found else []
    return sorted(in_characters(replace(p, path=module.path), lines) for p in found)


def understood(program: Program) -> Program:
    """The program with its factories: functions that always return a session they opened."""
    for _ in range(2):  # a factory may call another
        for module in program.modules.values():
            for function in _scopes_with_sessions(module):
                if isinstance(function, ast.FunctionDef) and not function.decorator_list:
                    _note_factory(program, module, function)
    return program


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
    elif len(flow.returned_parts) == len(flow.returned) == 1:
        parts = flow.returned_parts[0]
        places = [place for place, values in enumerate(parts) if is_own(values)]
        if len(places) == 1:
            program.tuple_factories[function] = len(parts), places[0]


def _scopes_with_sessions(module: Module) -> list[Scope]:
    """The functions, classes and perhaps the module that open a session themselves."""
    calls = [c for c in module.calls if module.opens(c) or module.opens_among(c)]
    return list(dict.fromkeys(module.scope_of(c) for c in calls))


def _flow_problems(module: Module) -> Iterator[Problem]:
    for scope in _scopes_with_sessions(module):
        flow = Flow(module, scope)
        flow.run()
        yield from flow.problems
        yield from unclosed(module, flow)


def _is_silenced(problem: Problem, silenced: dict[int, frozenset[str]]) -> bool:
    for line in range(problem.line, problem.end_line + 1):
        codes = silenced.get(line)
        if codes is not None and (not codes or problem.code in codes):
            return True
    return False
