"""One finding in the source: a code, a place and what exactly is wrong there."""

from __future__ import annotations

import ast
from dataclasses import dataclass

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
    opened: tuple[int, int] = (0, 0)  # line and column of the call that opened the session

    @property
    def about(self) -> Code:
        """The code's title, cause and cure."""
        return CODES[self.code]

    @property
    def message(self) -> str:
        """The title and the detail in one line."""
        return f"{self.about.title}: {self.detail}" if self.detail else self.about.title


def problem_at(
    node: ast.expr | ast.stmt, code: Code, detail: str, opener: ast.Call | None = None
) -> Problem:
    """A finding at a node of the tree, about the session that `opener` opened."""
    opened = opener if opener is not None else node
    return Problem(
        "",
        node.lineno,
        node.col_offset + 1,
        code.code,
        detail,
        node.end_lineno or node.lineno,
        (node.end_col_offset or node.col_offset) + 1,
        (opened.lineno, opened.col_offset + 1),
    )
