"""Analysis of a program's source code without running it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator

_PYTHON_2 = re.compile(
    rb"^[ \t]*(?:print\s+[^\s(=.,)]|print\s*>>|print\s*\(.*\)\s*%|exec\s+[\"']|raise\s+[\w.]+\s*,"
    rb"|except\s+[\w.]+\s*,\s*\w+\s*:)|[^\w]0[0-7]{2,}[^\w.]|<>|\bur['\"]",
    re.MULTILINE,
)
_OLD_SYNTAX = (
    "Missing parentheses in call to",
    "multiple exception types must be parenthesized",
    "leading zeros in decimal",
    "inconsistent use of tabs",
    "invalid hexadecimal literal",
    "invalid decimal literal",
)


def is_python_2(error: SyntaxError, source: bytes) -> bool:
    """Whether a program that cannot be parsed was written for Python 2."""
    if any(words in (error.msg or "") for words in _OLD_SYNTAX):
        return True
    return bool(_PYTHON_2.search(source)) or b"\tprint" in source


def parse(source: str | bytes, path: str = "<string>") -> ast.Module:
    """Parse a program. Warnings are suppressed: old programs are full of "\\d" in plain strings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, path)


def dotted(node: ast.expr) -> str | None:
    """Return an expression like `a.b.c` as a string, None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def imported_names(tree: ast.Module, roots: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that is imported from one of these packages, with what it stands for.

    With `try: import tensorflow.compat.v1 as tf` / `except: import tensorflow as tf` the compat
    name is yielded last, because it is the one that takes effect.
    """
    found: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                if root in roots:
                    found.append((alias.asname or root, alias.name if alias.asname else root))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            if module.split(".")[0] in roots:
                found += [(a.asname or a.name, f"{module}.{a.name}") for a in node.names]
    yield from sorted(found, key=lambda pair: ".compat.v1" in pair[1])
