"""The stable codes of findings. The audit finds them at run time, the linter in the source.

A code never changes its meaning and is never given to another finding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding: its name, its cause and its cure."""

    code: str
    title: str
    cause: str
    cure: str

    @property
    def docs(self) -> str:
        """The section of the documentation that explains this code."""
        return f"docs/codes.md#{self.code.lower()}"

    @property
    def more(self) -> str:
        """The command that prints that section, wherever sojourn is installed."""
        return f"sojourn lint --explain {self.code}"


NEVER_CLOSED = Code(
    "SOJ001",
    "session never closed",
    "The session is opened and nothing closes it on every way out.",
    "Open it in a `with` block, or close it in `finally`.",
)
USED_AFTER_CLOSE = Code(
    "SOJ002",
    "session used after close",
    "The session was closed before this use; TensorFlow raises RuntimeError here.",
    "Move the use before the close, or open a session that lives as long as it is used.",
)
SESSION_PER_CALL = Code(
    "SOJ003",
    "new session per iteration or call",
    "The same line opens a session again and again, and pays for set-up and memory each time.",
    "Open one session before the loop, or keep one and reuse it.",
)
GRAPH_GROWS = Code(
    "SOJ004",
    "graph grows from step to step",
    "A loop that runs steps also adds ops to the graph, so each step is slower and larger.",
    "Build the ops once before the loop, feed what changes, and call `graph.finalize()`.",
)
BORROWED_DEFAULT = Code(
    "SOJ005",
    "default session of another module used",
    "The code runs on whatever session happens to be the default, opened by another module.",
    "Pass the session as an argument, or lend it: `session.lend()`.",
)
OPEN_AT_EXIT = Code(
    "SOJ006",
    "session open at exit",
    "The program ended while the session was open; only the end of the process freed it.",
    "Open it in a `with` block, or close it before the program ends.",
)
MEMORY_KEPT = Code(
    "SOJ007",
    "closed but memory did not come back",
    "TensorFlow's allocator keeps the memory of a closed session until the process ends.",
    "Run it in a process of its own: `sojourn.open(...)` or `sojourn.compat.v1.Session(...)`.",
)
REPLACED = Code(
    "SOJ008",
    "session replaced without closing",
    "The name that held an open session is bound again, and the old session is left open.",
    "Close the old session first, or give each session its own `with` block.",
)
INTERACTIVE_LEFT = Code(
    "SOJ009",
    "InteractiveSession left installed",
    "InteractiveSession makes itself the default session, and nothing closes it.",
    "Use `with Session() as sess:`, or close the InteractiveSession in `finally`.",
)

CODES: Mapping[str, Code] = MappingProxyType(
    {
        code.code: code
        for code in (
            NEVER_CLOSED,
            USED_AFTER_CLOSE,
            SESSION_PER_CALL,
            GRAPH_GROWS,
            BORROWED_DEFAULT,
            OPEN_AT_EXIT,
            MEMORY_KEPT,
            REPLACED,
            INTERACTIVE_LEFT,
        )
    }
)


def page() -> str:
    """The installed page on the codes. `docs/codes.md` is the same page."""
    return files("sojourn.audit").joinpath("codes.md").read_text(encoding="utf-8")


def explain(code: str) -> str:
    """The section on one code, without its heading mark."""
    match = re.search(rf"^## {code}\n(.*?)(?=^## |\Z)", page(), re.MULTILINE | re.DOTALL)
    if match is None:
        raise KeyError(code)
    return f"{code}\n\n{match.group(1).strip()}"
