"""What a `# noqa` comment silences: every code, or the codes it names."""

from __future__ import annotations

import io
import re
import tokenize

_NOQA = re.compile(r"#\s*noqa\b(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?", re.I)


def silenced_codes(comment: str) -> frozenset[str] | None:
    """The codes that a comment silences (none named: all), or None if it silences nothing."""
    match = _NOQA.search(comment)
    if match is None:
        return None
    return frozenset(re.findall(r"[A-Z]+[0-9]+", (match["codes"] or "").upper()))


def silenced_lines(source: str | bytes) -> dict[int, frozenset[str]]:
    """The lines with such a comment, and what each silences. A string that says noqa is none."""
    data = source.encode() if isinstance(source, str) else source
    silenced: dict[int, frozenset[str]] = {}
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            codes = silenced_codes(token.string) if token.type == tokenize.COMMENT else None
            if codes is not None:
                silenced[token.start[0]] = codes
    except (tokenize.TokenError, SyntaxError):
        pass  # it parsed, so whatever the tokenizer dislikes holds no comment that matters
    return silenced
