"""Applies every rule to one file and leaves out the lines that suppress findings."""

from __future__ import annotations

from dataclasses import replace

from sojourn.audit.lint.defaults import borrowed
from sojourn.audit.lint.factories import at_their_openings, flow_problems, understood
from sojourn.audit.lint.loops import Loops
from sojourn.audit.lint.module import Module
from sojourn.audit.lint.problem import Problem, in_characters, is_silenced, lines_of
from sojourn.audit.lint.program import Program
from sojourn.audit.noqa import silenced_lines
from sojourn.source import parse


def check_source(
    source: str | bytes, path: str = "<string>", program: Program | None = None
) -> list[Problem]:
    """The findings in one file's text, in order. Raises SyntaxError if the text is not Python 3.

    With a program, the text replaces the program's file of that path.
    """
    return check_module(module_of(source, path, program), source)


def module_of(
    source: str | bytes, path: str = "<string>", program: Program | None = None
) -> Module:
    """The text as a module: alone, or in place of the program's file of that path."""
    tree = parse(source, path)
    whole = program.with_file(path, tree) if program is not None else Program({path: tree})
    whole.silenced[path] = silenced_lines(source)
    return understood(whole).modules[path]


def check_module(module: Module, source: str | bytes, *, is_fixing: bool = False) -> list[Problem]:
    """The findings in one file of a program; `is_fixing` puts each where the fix changes code."""
    found = {*Loops(module).problems(), *borrowed(module), *flow_problems(module)}
    silenced = module.program.silenced.get(module.path, {})
    found = {p for p in found if not is_silenced(p, silenced)}
    if not is_fixing:
        found = at_their_openings(module, found)
        found = {p for p in found if not is_silenced(p, silenced)}
    lines = lines_of(source) if found else []
    return sorted(in_characters(replace(p, path=module.path), lines) for p in found)
