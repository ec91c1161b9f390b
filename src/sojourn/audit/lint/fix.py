"""Rewrites code so that sessions are closed, where that is safe. Keeps formatting and comments.

Needs libcst. Fixes one session at a time: each rewritten file is checked again, and a rewriting
that does not leave strictly fewer findings is dropped.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sojourn.audit.lint.check import check_module, module_of
from sojourn.audit.lint.module import Module
from sojourn.audit.lint.plan import ClosingPlan, plan_for
from sojourn.audit.lint.problem import Problem
from sojourn.audit.lint.program import Program
from sojourn.audit.lint.settings import Settings
from sojourn.errors import SojournError

FIXABLE = ("SOJ001", "SOJ008", "SOJ009")


class FixerMissing(SojournError):
    """libcst is not installed; the message says how to get it."""


@dataclass
class Fixed:
    """A file before and after."""

    before: bytes
    after: bytes
    problems: list[Problem] = field(default_factory=list)  # what was fixed

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def diff(self, path: str) -> str:
        """The change as a unified diff."""
        before, after = (text.decode("utf-8", "replace") for text in (self.before, self.after))
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), path, path
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def require_libcst() -> None:
    """Raise FixerMissing, which says what to install, before any file is changed."""
    try:
        import libcst  # noqa: F401
    except ImportError:
        raise FixerMissing(
            "--fix and --diff need libcst, which comes with the extra: pip install 'sojourn[lint]'"
        ) from None


def fix_source(
    source: bytes,
    settings: Settings | None = None,
    path: str = "",
    program: Program | None = None,
) -> Fixed:
    """Close every session of this file that can be closed without changing the file's behaviour.

    With a program, the text replaces the program's file of that path.
    """
    require_libcst()
    settings = settings or Settings()
    read = partial(module_of, path=path, program=program)
    fixed = Fixed(source, source)
    refused: set[tuple[str, str]] = set()
    while True:
        step = _one_step(fixed.after, settings, read, refused)
        if step is None:
            return fixed
        fixed.after = step.after
        fixed.problems += step.problems


def _one_step(
    source: bytes,
    settings: Settings,
    read: Callable[[bytes], Module],
    refused: set[tuple[str, str]],
) -> Fixed | None:
    from sojourn.audit.lint.rewrite import carry_out

    module = read(source)
    found = check_module(module, source, is_fixing=True)
    # From the end: code that later moves into an outer block is then already in its final form.
    for problem in sorted(found, key=lambda p: p.start, reverse=True):
        if problem.code not in FIXABLE or not settings.wants(problem.code):
            continue
        plan = plan_for(module, problem)
        if plan is None or _key(problem, plan) in refused:
            continue
        after = carry_out(source, plan)
        if after is not None and _is_better(found, after, read):
            return Fixed(source, after, [problem])
        refused.add(_key(problem, plan))
    return None


def _key(problem: Problem, plan: ClosingPlan) -> tuple[str, str]:
    return (f"{problem.code} {problem.start}", plan.form.name)


def _is_better(found: list[Problem], after: bytes, read: Callable[[bytes], Module]) -> bool:
    try:
        left = check_module(read(after), after, is_fixing=True)
    except SyntaxError:
        return False
    before = Counter(p.code for p in found)
    now = Counter(p.code for p in left)
    return now.total() < before.total() and now <= before
