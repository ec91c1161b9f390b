"""Reads the linter's settings: the `[tool.sojourn.lint]` section of pyproject.toml.

Python 3.10 has no TOML reader. There, `tomli` is used if it is installed; otherwise a small reader
reads strings and lists of strings, which are all that this section contains.
"""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from sojourn.audit.codes import CODES

_SECTION = re.compile(r"^\s*\[tool\.sojourn\.lint\]\s*(?:#.*)?$")
_ALWAYS_LEFT_OUT = (".git", ".venv", "venv", ".tox", ".nox", "__pycache__", "node_modules", "build")


class SettingsError(ValueError):
    """The section names a code or a setting that does not exist."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Which codes are reported, and which files are left out. No `select` means every code."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for code in (*self.select, *self.ignore):
            if not any(known.startswith(code) for known in CODES):
                raise SettingsError(f"{code!r} is not a code (they are {', '.join(CODES)})")

    def wants(self, code: str) -> bool:
        """Whether a finding with this code is reported. `SOJ00` selects all codes that begin so."""
        chosen = not self.select or code.startswith(self.select)
        return chosen and not (self.ignore and code.startswith(self.ignore))

    def leaves_out(self, path: Path) -> bool:
        """Whether the walk skips this file or folder."""
        if path.name in _ALWAYS_LEFT_OUT:
            return True
        text = path.as_posix()
        return any(
            fnmatch(text, pattern) or fnmatch(path.name, pattern) or fnmatch(text, f"*/{pattern}")
            for pattern in (p.rstrip("/") for p in self.exclude)
        )


def read_settings(start: Path) -> Settings:
    """The settings of the nearest pyproject.toml at or above `start`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _from_table(_lint_table(file.read_text(encoding="utf-8")), file)
    return Settings()


def _from_table(table: dict[str, Any], file: Path) -> Settings:
    known = {f.name for f in fields(Settings)}
    for name, value in table.items():
        if name not in known:
            listed = ", ".join(sorted(known))
            raise SettingsError(f"{file}: unknown setting {name!r} (known: {listed})")
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise SettingsError(f"{file}: {name} must be a list of strings")
    try:
        return Settings(**{name: tuple(value) for name, value in table.items()})
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from None


def _lint_table(text: str) -> dict[str, Any]:
    for reader in ("tomllib", "tomli"):
        try:
            toml = importlib.import_module(reader)
        except ImportError:
            continue
        try:
            document = toml.loads(text)
        except toml.TOMLDecodeError as error:
            raise SettingsError(f"pyproject.toml cannot be read: {error}") from None
        table = document.get("tool", {}).get("sojourn", {}).get("lint", {})
        return table if isinstance(table, dict) else {}
    return simple_table(text)


def simple_table(text: str) -> dict[str, Any]:
    """The section as the small reader reads it: `name = "text"` and `name = ["text", ...]`."""
    table: dict[str, Any] = {}
    inside, pending = False, ""
    for line in text.splitlines():
        if not pending and line.lstrip().startswith("["):
            inside = bool(_SECTION.match(line))
            continue
        if not inside or not (line.strip() or pending):
            continue
        pending += line.split("#")[0] + "\n"
        name, equals, value = pending.partition("=")
        if not equals:
            pending = ""
            continue
        try:
            # A list of strings is written in TOML as it is in Python.
            table[name.strip()] = ast.literal_eval(value.strip())
        except (SyntaxError, ValueError):
            continue  # a list that continues on the next line
        pending = ""
    return table
