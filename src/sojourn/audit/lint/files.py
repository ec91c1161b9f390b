"""Checks many files: selects them, collects findings, and notes files that cannot be read."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sojourn.audit.lint.check import check_module
from sojourn.audit.lint.factories import flow_problems, understood
from sojourn.audit.lint.problem import Problem
from sojourn.audit.lint.program import Program
from sojourn.audit.lint.settings import Settings
from sojourn.audit.noqa import silenced_lines
from sojourn.source import is_python_2, parse


@dataclass(frozen=True, slots=True)
class Note:
    """A file that was not checked, and why. Not a finding."""

    path: str
    line: int
    reason: str


@dataclass(slots=True)
class Outcome:
    """What one run found."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    checked: int = 0
    # By path: files with findings, and files that cause findings in others.
    sources: dict[str, bytes] = field(default_factory=dict)
    program: Program = field(default_factory=lambda: Program({}))


def check_paths(paths: Iterable[Path], settings: Settings) -> Outcome:
    """Check files, and every Python file below folders.

    Files that import one another are judged together: one may close the sessions that another
    opens, or make it open them repeatedly.
    """
    outcome = Outcome()
    sources: dict[str, bytes] = {}
    trees: dict[str, ast.Module] = {}
    for path in python_files(paths, settings):
        try:
            source = path.read_bytes()
        except OSError as error:
            outcome.notes.append(Note(str(path), 0, f"not read: {error.strerror}"))
            continue
        outcome.checked += 1
        tree = _tree(str(path), source, outcome.notes)
        if tree is not None:
            sources[str(path)], trees[str(path)] = source, tree
    outcome.program = understood(Program(trees))
    for name, source in sources.items():
        if b"noqa" in source.lower():
            outcome.program.silenced[name] = silenced_lines(source)
    for name, module in outcome.program.modules.items():
        if not is_worth_checking(sources[name]):
            continue
        wanted = [p for p in check_module(module, sources[name]) if settings.wants(p.code)]
        outcome.problems += wanted
        if wanted or flow_problems(module):
            outcome.sources[name] = sources[name]
    return outcome


def is_worth_checking(source: bytes) -> bool:
    """Whether a file can have findings at all: most files never mention a session."""
    signs = (b"ession", b"sojourn", b".eval(", b".run(", b".function(")
    return any(sign in source for sign in signs)


def _tree(path: str, source: bytes, notes: list[Note]) -> ast.Module | None:
    """The parsed tree, or None and a note if the file is not Python 3."""
    try:
        return parse(source, path)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 0
        if isinstance(error, SyntaxError) and is_python_2(error, source):
            reason = "Python 2 program, not checked: convert it first (2to3, or futurize)"
        else:
            reason = f"not Python 3, not checked: {getattr(error, 'msg', error)}"
        notes.append(Note(path, line, reason))
        return None


def python_files(paths: Iterable[Path], settings: Settings) -> Iterator[Path]:
    """The named files, and the .py files below the named folders, each once, in order."""
    seen: set[Path] = set()
    for path in paths:
        for file in _walk(path, settings) if path.is_dir() else [path]:
            if file not in seen:
                seen.add(file)
                yield file


def _walk(folder: Path, settings: Settings) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            f
            for f in folders
            if not settings.leaves_out(here / f) and not (here / f / "pyvenv.cfg").is_file()
        )
        for name in sorted(files):
            if name.endswith((".py", ".pyw")) and not settings.leaves_out(here / name):
                yield here / name
