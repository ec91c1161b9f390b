"""Findings that the source itself silences: `# noqa` and `# noqa: SOJ001`."""

from __future__ import annotations

import linecache
from collections.abc import Iterable

from sojourn.audit.codes import INTERACTIVE_LEFT, NEVER_CLOSED, OPEN_AT_EXIT, REPLACED
from sojourn.audit.finding import Finding
from sojourn.audit.noqa import silenced_codes

# Which of these an open session gets depends on how the run ended; one comment covers them all.
_UNCLOSED = frozenset(c.code for c in (NEVER_CLOSED, OPEN_AT_EXIT, REPLACED, INTERACTIVE_LEFT))


def heard(findings: Iterable[Finding]) -> list[Finding]:
    """The findings whose line does not silence them."""
    return [f for f in findings if not is_silenced(f.code, _line_of(f))]


def is_silenced(code: str, line: str) -> bool:
    """Whether a comment on `line` silences `code`."""
    codes = silenced_codes(line)
    if codes is None:
        return False
    return not codes or code in codes or (code in _UNCLOSED and bool(codes & _UNCLOSED))


def _line_of(finding: Finding) -> str:
    return linecache.getline(finding.place.file, finding.place.line)
