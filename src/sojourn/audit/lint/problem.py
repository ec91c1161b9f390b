"""One finding in the source: a code, a place and a detailed message."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sojourn.audit.codes import CODES, Code


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A finding. Lines and columns count from 1, as editors do."""

    path: str
    line: int
    column: int
    code: str
    detail: str
    end_line: int
    end_column: int
    start: tuple[int, int] = (0, 0)  # line and column as the parser counts them, in bytes

    @property
    def about(self) -> Code:
        """The code's title, cause and cure."""
        return CODES[self.code]

    @property
    def message(self) -> str:
        """The title and the detail in one line."""
        return f"{self.about.title}: {self.detail}" if self.detail else self.about.title


def problem_at(node: ast.expr | ast.stmt, code: Code, detail: str) -> Problem:
    """A finding at a node of the tree."""
    return Problem(
        "",
        node.lineno,
        node.col_offset + 1,
        code.code,
        detail,
        node.end_lineno or node.lineno,
        (node.end_col_offset or node.col_offset) + 1,
        (node.lineno, node.col_offset + 1),
    )


def is_silenced(problem: Problem, silenced: Mapping[int, frozenset[str]]) -> bool:
    """Whether a comment in one of the finding's lines suppresses it."""
    for line in range(problem.line, problem.end_line + 1):
        codes = silenced.get(line)
        if codes is not None and (not codes or problem.code in codes):
            return True
    return False


def lines_of(source: str | bytes) -> list[str]:
    """The lines of a file as the parser counts them."""
    if isinstance(source, bytes):
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        source = source.decode(encoding, "replace")
    return re.split(r"\r\n|\r|\n", source)


def in_characters(problem: Problem, lines: list[str]) -> Problem:
    """The same finding with columns in characters; the parser counts bytes of UTF-8."""

    def counted(line: int, column: int) -> int:
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return len(text.encode("utf-8", "replace")[: column - 1].decode("utf-8", "replace")) + 1

    return replace(
        problem,
        column=counted(problem.line, problem.column),
        end_column=counted(problem.end_line, problem.end_column),
    )
