"""Which files belong to one program: those that import one another, directly or by others.

A folder often holds many programs. That one of them closes `self.sess` says nothing of another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from sojourn.audit.lint.kept import closed_attributes


def closed_in_programs(trees: Mapping[str, ast.Module]) -> dict[str, frozenset[str]]:
    """For each file, the attributes whose sessions a file of its program may close."""
    found: dict[str, frozenset[str]] = {}
    for program in programs(trees):
        closed = frozenset(name for file in program for name in closed_attributes(trees[file]))
        found.update(dict.fromkeys(program, closed))
    return found


def programs(trees: Mapping[str, ast.Module]) -> list[set[str]]:
    """The files in groups that no import crosses."""
    by_name: dict[str, list[str]] = {}
    for file in trees:
        by_name.setdefault(_module_name(file), []).append(file)
    group_of = {file: {file} for file in trees}
    for file, tree in trees.items():
        for name in set(_imported(tree)):
            for other in by_name.get(name, ()):
                mine, theirs = group_of[file], group_of[other]
                if mine is not theirs:
                    mine |= theirs
                    group_of.update(dict.fromkeys(theirs, mine))
    return list({id(group): group for group in group_of.values()}.values())


def _module_name(file: str) -> str:
    path = PurePath(file)
    return path.parent.name if path.stem == "__init__" else path.stem


def _imported(tree: ast.Module) -> Iterator[str]:
    """The last parts of every imported name: `pkg.agent`, `from pkg import agent` -> `agent`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
