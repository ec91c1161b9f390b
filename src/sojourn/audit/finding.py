"""One finding: its code, its place and its cure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sojourn.audit.codes import CODES, Code
from sojourn.values import Place


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of the audit. The same line and code make one finding with a count."""

    code: str
    place: Place
    message: str
    stack: tuple[Place, ...] = ()
    bytes: int = 0
    count: int = 1
    sessions: tuple[int, ...] = ()
    at: float = 0.0
    scope: str = ""
    lines: tuple[tuple[Place, int], ...] = ()

    @property
    def about(self) -> Code:
        """The title, cause and cure that go with the code."""
        return CODES[self.code]

    @property
    def cure(self) -> str:
        """What to do about it, in one line."""
        return self.about.cure

    def __str__(self) -> str:
        return f"{self.place}: {self.code} {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "code": self.code,
            "title": self.about.title,
            "message": self.message,
            "file": self.place.file,
            "line": self.place.line,
            "function": self.place.function,
            "stack": [_place_to_dict(place) for place in self.stack],
            "bytes": self.bytes,
            "count": self.count,
            "sessions": list(self.sessions),
            "at": round(self.at, 4),
            "scope": self.scope,
            "lines": [{**_place_to_dict(place), "ops": ops} for place, ops in self.lines],
            "cause": self.about.cause,
            "cure": self.cure,
            "docs": self.about.docs,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Finding:
        """Rebuild a finding from the result of `to_dict`."""
        return cls(
            code=plain["code"],
            place=_place_from_dict(plain),
            message=plain["message"],
            stack=tuple(_place_from_dict(place) for place in plain["stack"]),
            bytes=plain["bytes"],
            count=plain["count"],
            sessions=tuple(plain["sessions"]),
            at=plain["at"],
            scope=plain["scope"],
            lines=tuple((_place_from_dict(line), line["ops"]) for line in plain["lines"]),
        )


def _place_to_dict(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "function": place.function}


def _place_from_dict(plain: Mapping[str, Any]) -> Place:
    return Place(plain["file"], plain["line"], plain["function"])
