"""Prints findings for people, programs, GitHub and code-scanning services."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sojourn._version import __version__
from sojourn.audit.codes import CODES
from sojourn.audit.lint.files import Outcome
from sojourn.audit.lint.problem import Problem, lines_of

Style = Callable[[str, str], str]  # (text, colour) -> text


def as_text(outcome: Outcome, style: Style = lambda text, _: text) -> str:
    """Each finding with its line, a caret below it, and the cure; notes and a count at the end."""
    parts = [_one_text(p, outcome.sources.get(p.path, b""), style) for p in outcome.problems]
    for note in outcome.notes:
        place = f"{note.path}:{note.line}" if note.line else note.path
        parts.append(f"{style(place, 'bold')}: {style('note', 'cyan')} {note.reason}\n")
    parts.append(_summary(outcome))
    return "\n".join(parts)


def _one_text(problem: Problem, source: bytes, style: Style) -> str:
    place = f"{problem.path}:{problem.line}:{problem.column}"
    head = f"{style(place, 'bold')}: {style(problem.code, 'red')} {problem.message}"
    return "\n".join([head, *_excerpt(problem, source, style), f"  = {problem.about.cure}", ""])


def _excerpt(problem: Problem, source: bytes, style: Style) -> list[str]:
    lines = lines_of(source)
    if not 0 < problem.line <= len(lines):
        return []
    text = lines[problem.line - 1]
    end = problem.end_column - 1 if problem.end_line == problem.line else len(text)
    width = max(end - problem.column + 1, 1)
    # A tab must stay a tab for the caret to line up.
    pad = "".join(c if c == "\t" else " " for c in text[: problem.column - 1])
    number = str(problem.line)
    return [
        f"{number} | {text}",
        f"{' ' * len(number)} | {pad}{style('^' * width, 'red')}",
    ]


def _summary(outcome: Outcome) -> str:
    count = len(outcome.problems)
    found = "no findings" if not count else f"{count} finding{'s' * (count != 1)}"
    text = f"{found} in {outcome.checked} file{'s' * (outcome.checked != 1)}"
    if outcome.notes:
        text += f", {len(outcome.notes)} not checked"
    return text


def as_json(outcome: Outcome, diffs: Mapping[str, str] | None = None) -> str:
    """One object: `findings`, `notes`, `files`, and `diffs` by path if given."""
    document: dict[str, Any] = {
        "findings": [_plain(p) for p in outcome.problems],
        "notes": [{"path": n.path, "line": n.line, "reason": n.reason} for n in outcome.notes],
        "files": outcome.checked,
    }
    if diffs is not None:
        document["diffs"] = [{"path": path, "diff": diff} for path, diff in diffs.items()]
    return json.dumps(document, indent=2)


def _plain(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "path": problem.path,
        "line": problem.line,
        "column": problem.column,
        "end_line": problem.end_line,
        "end_column": problem.end_column,
        "message": problem.message,
        "cause": problem.about.cause,
        "cure": problem.about.cure,
        "docs": problem.about.docs,
    }


def as_github(outcome: Outcome) -> str:
    """Workflow commands, which GitHub shows on the lines of a pull request."""
    lines = []
    for p in outcome.problems:
        where = f"file={_property(p.path)},line={p.line},endLine={p.end_line},col={p.column}"
        text = _data(f"{p.message}. {p.about.cure}")
        lines.append(f"::error {where},title={p.code}::{text}")
    for note in outcome.notes:
        where = f"file={_property(note.path)},line={max(note.line, 1)}"
        lines.append(f"::notice {where},title=not checked::{_data(note.reason)}")
    return "\n".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(outcome: Outcome) -> str:
    """SARIF 2.1.0, for code scanning."""
    order = list(CODES)
    run = {
        "tool": {
            "driver": {
                "name": "sojourn",
                "version": __version__,
                "rules": [_rule(code) for code in order],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [
            {
                "ruleId": p.code,
                "ruleIndex": order.index(p.code),
                "level": "warning",
                "message": {"text": f"{p.message}. {p.about.cure}"},
                "locations": [_location(p)],
            }
            for p in outcome.problems
        ],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": f"{n.path}:{n.line}: {n.reason}"}}
                    for n in outcome.notes
                ],
            }
        ],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2)


def _rule(code: str) -> dict[str, Any]:
    about = CODES[code]
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in about.title.split()),
        "shortDescription": {"text": about.title},
        "fullDescription": {"text": about.cause},
        "help": {"text": f"{about.cure} More: {about.more}."},
    }


def _location(problem: Problem) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": Path(problem.path).as_posix()},
            "region": {
                "startLine": problem.line,
                "startColumn": problem.column,
                "endLine": problem.end_line,
                "endColumn": problem.end_column,
            },
        }
    }


FORMATS: dict[str, Callable[[Outcome], str]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
    "sarif": as_sarif,
}
