"""One file: every rule, with the lines left out that ask for it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import replace

from sojourn.audit.lint.flow import Flow
from sojourn.audit.lint.kept import unclosed
from sojourn.audit.lint.loops import Loops
from sojourn.audit.lint.module import Module, Scope
from sojourn.audit.lint.problem import Problem, in_characters, lines_of

_NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?", re.IGNORECASE)


def check_source(
    source: str | bytes,
    path: str = "<string>",
    closed_elsewhere: frozenset[str] = frozenset(),
    honour_noqa: bool = True,
) -> list[Problem]:
    """The findings in one file's text, in order. Raises SyntaxError for what is not Python 3."""
    return check_tree(ast.parse(source, path), source, path, closed_elsewhere, honour_noqa)


def check_tree(
    tree: ast.Module,
    source: str | bytes,
    path: str,
    closed_elsewhere: frozenset[str] = frozenset(),
    honour_noqa: bool = True,
) -> list[Problem]:
    """The findings in a parsed file."""
    module = understood(tree)
    found = {*Loops(module).problems(), *_flow_problems(module, closed_elsewhere)}
    if honour_noqa and found:
        silenced = _silenced_lines(source)
        found = {p for p in found if not _is_silenced(p, silenced)}
    lines = lines_of(source) if found else []
    return sorted(in_characters(replace(p, path=path), lines) for p in found)


def understood(tree: ast.Module) -> Module:
    """The file with its factories: functions that always return a session they opened."""
    module = Module(tree)
    found = set()
    for function in _scopes_with_sessions(module):
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            continue
        if module.functions.get(function.name) is not function:
            continue
        if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)):
            continue
        flow = Flow(module, function)
        flow.run()
        own = {s for s in flow.sites.values() if not s.globals and not s.attributes}
        if flow.returned and all(v and None not in v and own >= v for v in flow.returned):
            found.add(function.name)
    module.factories = found
    return module


def _scopes_with_sessions(module: Module) -> list[Scope]:
    """The functions, classes and perhaps the module that open a session themselves."""
    calls = [n for n in ast.walk(module.tree) if isinstance(n, ast.Call) and module.opens(n)]
    return list(dict.fromkeys(module.scope_of(call) for call in calls))


def _flow_problems(module: Module, closed_elsewhere: frozenset[str]) -> Iterator[Problem]:
    for scope in _scopes_with_sessions(module):
        flow = Flow(module, scope)
        flow.run()
        yield from flow.problems
        yield from unclosed(module, flow, closed_elsewhere)


def _is_silenced(problem: Problem, silenced: dict[int, frozenset[str]]) -> bool:
    for line in range(problem.line, problem.end_line + 1):
        codes = silenced.get(line)
        if codes is not None and (not codes or problem.code in codes):
            return True
    return False


def _silenced_lines(source: str | bytes) -> dict[int, frozenset[str]]:
    """The lines with a `# noqa`, and the codes it names (none: all)."""
    data = source.encode() if isinstance(source, str) else source
    silenced: dict[int, frozenset[str]] = {}
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            match = _NOQA.search(token.string) if token.type == tokenize.COMMENT else None
            if match is not None:
                named = re.findall(r"[A-Z]+[0-9]+", (match.group("codes") or "").upper())
                silenced[token.start[0]] = frozenset(named)
    except (tokenize.TokenError, SyntaxError):
        pass  # it parsed, so whatever the tokenizer dislikes holds no comment that matters
    return silenced
