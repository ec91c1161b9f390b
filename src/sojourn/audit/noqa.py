"""Reads `# noqa` comments, which silence every code or the codes that they name."""

from __future__ import annotations

import io
import linecache
import re
import tokenize
from collections.abc import Iterable

from sojourn.audit.codes import INTERACTIVE_LEFT, NEVER_CLOSED, OPEN_AT_EXIT, REPLACED
from sojourn.audit.finding import Finding

_NOQA = re.compile(r"#\s*noqa\b(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?", re.I)
# Which of these codes an unclosed session gets depends on how the run ended; a comment that names
# one of the codes covers all of them.
_UNCLOSED = frozenset(c.code for c in (NEVER_CLOSED, OPEN_AT_EXIT, REPLACED, INTERACTIVE_LEFT))


def silenced_codes(comment: str) -> frozenset[str] | None:
    """The codes that a comment silences (none named: all), or None if it silences nothing."""
    match = _NOQA.search(comment)
    if match is None:
        return None
    return frozenset(re.findall(r"[A-Z]+[0-9]+", (match["codes"] or "").upper()))


def silenced_lines(source: str | bytes) -> dict[int, frozenset[str]]:
    """The lines with such a comment and the codes that each silences. Strings do not count."""
    data = source.encode() if isinstance(source, str) else source
    silenced: dict[int, frozenset[str]] = {}
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            codes = silenced_codes(token.string) if token.type == tokenize.COMMENT else None
            if codes is not None:
                silenced[token.start[0]] = codes
    except (tokenize.TokenError, SyntaxError):
        pass  # the source has parsed, so the part that the tokenizer rejects has no such comment
    return silenced


def heard(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that their line does not silence."""
    return [f for f in findings if not is_silenced(f.code, _line_of(f))]


def is_silenced(code: str, line: str) -> bool:
    """Whether a comment on `line` silences `code`."""
    codes = silenced_codes(line)
    if codes is None:
        return False
    return not codes or code in codes or (code in _UNCLOSED and bool(codes & _UNCLOSED))


def _line_of(finding: Finding) -> str:
    return linecache.getline(finding.place.file, finding.place.line)
