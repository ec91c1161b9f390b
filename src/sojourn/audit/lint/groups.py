"""Which files belong together: a folder often holds many programs.

That one of them closes `self.sess` says nothing of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from sojourn.audit.lint.names import Names


def groups(files: Mapping[str, Names]) -> dict[str, int]:
    """The group of each file: no import crosses them, by the last parts of the names alone."""
    by_name: dict[str, list[str]] = {}
    for path in files:
        pure = PurePath(path)
        name = pure.parent.name if pure.stem == "__init__" else pure.stem
        by_name.setdefault(name, []).append(path)
    found = {path: {path} for path in files}
    for path, names in files.items():
        imported = [name for _, name in (*names.imports.values(), *names.star_imports)]
        for part in {part for name in imported for part in name.split(".")}:
            for other in by_name.get(part, ()):
                mine, theirs = found[path], found[other]
                if mine is not theirs:
                    mine |= theirs
                    found.update(dict.fromkeys(theirs, mine))
    return {path: id(group) for path, group in found.items()}
