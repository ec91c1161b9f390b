"""Choose which versions of a model are served, and which one a request gets. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sojourn.values import arguments

_LARGEST = 2**63 - 1  # fits every protocol; enough for a time in nanoseconds
_LATEST = re.compile(r"latest(?: ([1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class Choice:
    """A version policy: the latest N, specific ones, or all."""

    latest: int | None = 1
    specific: tuple[int, ...] = ()

    def among(self, there: Collection[int]) -> tuple[int, ...]:
        """Return the versions to serve among those that exist, oldest first."""
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
    """Return the version number in this text; None if it is not one."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST))
    return int(text) if is_number and int(text) <= _LARGEST else None


def parse_choice(text: str | Collection[int]) -> Choice:
    """Parse a version policy: `"latest"`, `"latest 2"`, `"all"`, or numbers.

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
    """Return the version for a request: the one it names, by number or label, or the latest."""
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
    """Return the versions that labels refer to: a label moves once its new version can serve, or
    the previous one no longer can."""
    return {
        label: version
        if version in available or before.get(label) not in available
        else before[label]
        for label, version in wanted.items()
    }


def to_retire(
    served: Collection[int], wanted: Collection[int], available: Collection[int]
) -> tuple[int, ...]:
    """Return the versions to retire: the unwanted ones, once all wanted ones can serve.

    As long as a wanted version is missing or has failed, the old versions stay.
    """
    if not set(wanted) <= set(available):
        return ()
    return tuple(sorted(set(served) - set(wanted)))
