"""Compare a module in memory with the text of its file.

Code is compared without line numbers: functions that are reloaded in place one by one, as by
IPython's autoreload, keep their old ones. Module constants and parameter defaults appear in no
function's code, and are compared by value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

Path = tuple[str, ...]
_LITERAL = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp),
    *(ast.unaryop, ast.operator, ast.expr_context),
)
_ABSENT = object()


def outline(code: CodeType) -> Any:
    """Return everything about code except its place in the file."""
    first, rest = code.co_consts[:1], code.co_consts[1:]
    if first and isinstance(first[0], str):
        first = (" ".join(first[0].split()),)  # docstring: ignore a method's indentation
    return (
        code.co_name,
        code.co_code,
        tuple(map(_constant, (*first, *rest))),
        *(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
    )


def place(code: CodeType) -> Any:
    """Return what code has in common with its form rewritten by a loader, such as pytest's."""
    return code.co_name, code.co_firstlineno


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return outline(value)
    if isinstance(value, frozenset):
        return frozenset(map(_constant, value))
    return repr(value)  # 1, 1.0 and True compare equal


def within(code: CodeType | None) -> Iterator[CodeType]:
    """Yield a code object and all code objects that are defined in it."""
    if code is not None:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from within(constant)


def in_memory(module: ModuleType, file: str) -> Iterator[CodeType]:
    """Yield the code of the functions and methods that a module defines."""
    for value in list(vars(module).values()):
        is_class = isinstance(value, type) and value.__module__ == module.__name__
        for member in list(vars(value).values()) if is_class else [value]:
            function = _function_behind(member)
            if function is not None and function.__code__.co_filename == file:
                yield function.__code__


def _function_behind(value: Any) -> FunctionType | None:
    """Return the innermost function of a decorated function, method or property."""
    inner = value
    while inner is not None:
        value = inner
        if isinstance(value, staticmethod | classmethod):
            inner = value.__func__
        elif isinstance(value, property):
            inner = value.fget
        else:
            try:
                inner = object.__getattribute__(value, "__dict__").get("__wrapped__")
            except Exception:  # no `__dict__`, or an object with unusual attributes
                inner = None
    return value if isinstance(value, FunctionType) else None


# -- constants and defaults --------------------------------------------------------------------


def constants(data: bytes) -> dict[Path, Any]:
    """Return the literal values in a source text: of names, also in classes, and of parameters."""
    try:
        return dict(_assigned(ast.parse(data).body, ()))
    except (SyntaxError, ValueError):
        return {}


def has(module: ModuleType, path: Path, value: Any) -> bool:
    """Whether the name at this path has the value in memory."""
    found: Any = module
    for part in path[:-1]:
        found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
    if isinstance(found, ModuleType | type):
        found = vars(found).get(path[-1], _ABSENT)
    else:
        found = getattr(_function_behind(found), path[-1], _ABSENT)
    return is_same(found, value)


def is_same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal and of the same type."""
    return type(one) is type(other) and bool(one == other) and repr(one) == repr(other)


def _assigned(body: Sequence[ast.stmt], path: Path) -> Iterator[tuple[Path, Any]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _assigned(node.body, (*path, node.name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = ast.Tuple(list(node.args.defaults), ast.Load())
            if _is_literal(given):
                yield (*path, node.name, "__defaults__"), _value(given) or None
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and _is_literal(node.value):
                    yield (*path, target.id), _value(node.value)


def _is_literal(node: ast.expr) -> bool:
    return all(isinstance(part, _LITERAL) for part in ast.walk(node))


def _value(node: ast.expr) -> Any:
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<constant>", "eval")
    try:
        return eval(code, {})
    except Exception:  # 1 / 0, say
        return _ABSENT
