"""Which versions of a model are served, and which of them a request gets. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sojourn.values import arguments

_LARGEST = 2**63 - 1  # that every protocol can say: such as the time in nanoseconds
_LATEST = re.compile(r"latest(?: ([1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy: the latest so many, exactly these, or all."""

    latest: int | None = 1
    specific: tuple[int, ...] = ()

    def among(self, there: Collection[int]) -> tuple[int, ...]:
        """The versions to serve of those that are there, the oldest first."""
        known = sorted(set(there))
        if self.specific:
            return tuple(version for version in known if version in self.specific)
        return tuple(known if self.latest is None else known[-self.latest :])

    def __str__(self) -> str:
        if self.specific:
            return "versions " + ", ".join(map(str, self.specific))
        if self.latest is None:
            return "all versions"
        return "the latest version" if self.latest == 1 else f"the latest {self.latest} versions"


def number_in(text: str) -> int | None:
    """The version that is called so; None if none can be."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))
    return int(text) if is_number and int(text) <= _LARGEST else None


def parse_choice(text: str | Collection[int]) -> Choice:
    """A policy as it is written: `"latest"`, `"latest 2"`, `"all"`, or numbers.

    >>> str(parse_choice("latest 2"))
    'the latest 2 versions'
    """
    if isinstance(text, str):
        if text == "all":
            return Choice(None)
        numbers = text.replace(",", " ").split()
        if numbers and all(number.isdecimal() for number in numbers):
            return parse_choice([int(number) for number in numbers])
        match = _LATEST.fullmatch(text)
        if match is None:
            raise ValueError(
                f"versions must be 'latest', 'latest 2', 'all' or a list of numbers, not {text!r}"
            )
        return Choice(int(match.group(1) or 1))
    if not text:
        raise ValueError("versions must name at least one")
    chosen = {arguments.whole("each of versions", version) for version in text}
    return Choice(None, tuple(sorted(chosen)))


def pick(
    available: Collection[int],
    labels: Mapping[str, int],
    version: int | None = None,
    label: str | None = None,
) -> int | None:
    """The version for a request: the one it names, by number or label, or the latest."""
    if label is not None:
        version = labels.get(label)
        if version is None:
            return None
    if version is not None:
        return version if version in available else None
    return max(available, default=None)


def moved(
    before: Mapping[str, int], wanted: Mapping[str, int], available: Collection[int]
) -> dict[str, int]:
    """The versions that labels stand for: one moves when the version it is meant for can serve, or
    the one before cannot any more."""
    return {
        label: version
        if version in available or before.get(label) not in available
        else before[label]
        for label, version in wanted.items()
    }


def to_retire(
    served: Collection[int], wanted: Collection[int], available: Collection[int]
) -> tuple[int, ...]:
    """Which versions go: those that are not wanted, once everything that is wanted can serve.

    As long as a new version is missing, or has failed, the old ones stay.
    """
    if not set(wanted) <= set(available):
        return ()
    return tuple(sorted(set(served) - set(wanted)))
