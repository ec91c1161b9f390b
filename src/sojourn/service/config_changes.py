"""Describe for people what a configuration would do, and how two configurations differ."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sojourn.errors import ModelError
from sojourn.kinds.paths import recognise
from sojourn.service import folders
from sojourn.service.config import Config
from sojourn.service.rules import ModelRules
from sojourn.service.settings import SETTINGS, Settings

_UNCHANGED = "nothing was changed: "


@dataclass(frozen=True, slots=True)
class Check:
    """What a server would do, and what would go wrong."""

    lines: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((*self.lines, *(f"wrong: {problem}" for problem in self.problems)))


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two configurations."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # that a running server applies
    need_restart: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"model {name}: new" for name in self.added]
        lines += [f"model {name}: removed" for name in self.removed]
        lines += [f"model {name}: {', '.join(what)}" for name, what in self.changed.items()]
        lines += self.settings
        lines += [f"{what}; this takes a restart" for what in self.need_restart]
        return "\n".join(lines) or "nothing has changed"


def unchanged(error: Exception) -> list[str]:
    """Return the lines that report a configuration that cannot be used."""
    return [_UNCHANGED + line for line in (str(error) or type(error).__name__).splitlines()]


def is_unchanged(told: Sequence[str]) -> bool:
    """Whether these lines report a configuration that cannot be used."""
    return bool(told) and all(line.startswith(_UNCHANGED) for line in told)


def check(config: Config) -> Check:
    """Check everything that the configuration names, without opening any model."""
    settings = config.settings
    lines = [f"listen on {settings.http} for HTTP" if settings.http else "no HTTP"]
    lines.append(f"listen on {settings.grpc} for gRPC" if settings.grpc else "no gRPC")
    lines += [f"{name} = {value}" for name, value in _unusual(settings, ("http", "grpc", "paths"))]
    problems = []
    try:
        entries = config.entries()
    except (ModelError, OSError) as error:
        entries = dict(config.models)
        problems.append(str(error))
    for name, rules in sorted(entries.items()):
        try:
            lines.append(f"model {name}: {_described(rules)}")
        except (ModelError, OSError) as error:
            problems.append(f"model {name}: {error}")
    if not entries and not problems:
        problems.append("there are no models to serve")
    for what in ("tokens", "tls_certificate", "tls_key", "tls_client_ca"):
        file = getattr(settings, what)
        if file is not None and not os.access(file, os.R_OK):
            problems.append(f"{what}: {file} cannot be read")
    for what in ("access_log", "ready_file", "history"):
        file = getattr(settings, what)
        folder = os.path.dirname(os.path.abspath(file or ""))
        if file not in (None, "-") and not os.access(folder, os.W_OK):
            problems.append(f"{what}: {folder} is no folder that can be written to")
    return Check(tuple(lines), tuple(problems))


def changes(
    before: Config,
    after: Config,
    models_before: Mapping[str, ModelRules],
    models_after: Mapping[str, ModelRules],
) -> Changes:
    """Return the differences; the models include those that were found in the folders."""
    both = models_before.keys() & models_after.keys()
    taken_over: list[str] = []
    need_restart: list[str] = []
    for setting in SETTINGS:
        if setting.section or setting.name == "paths":
            continue
        old, new = getattr(before.settings, setting.name), getattr(after.settings, setting.name)
        if old != new:
            words = f"{setting.name}: {new!r} instead of {old!r}"
            (taken_over if setting.is_live else need_restart).append(words)
    return Changes(
        tuple(sorted(models_after.keys() - both)),
        tuple(sorted(models_before.keys() - both)),
        {
            name: different
            for name in sorted(both)
            if (different := _different(models_before[name], models_after[name]))
        },
        tuple(taken_over),
        tuple(need_restart),
    )


def _different(before: ModelRules, after: ModelRules) -> tuple[str, ...]:
    found = [
        f"{name} = {getattr(after, name)!r} instead of {getattr(before, name)!r}"
        for name in ModelRules.__struct_fields__
        if getattr(before, name) != getattr(after, name)
    ]
    if before.path != after.path or not before.is_like(after):
        found.append("which opens it again")
    return tuple(found)


def _described(rules: ModelRules) -> str:
    there = folders.versions_at(rules.path)
    chosen = rules.chosen(there)
    if not chosen:
        raise ModelError(f"{rules.path} has {sorted(there)}, and {rules.choice} are wanted")
    kind = recognise(there[chosen[-1]]).model().kind
    parts = [f"{kind.what} at {rules.path}"]
    if len(chosen) > 1 or chosen[0] != 1:
        parts.append(f"version{'s' * (len(chosen) > 1)} {', '.join(map(str, chosen))}")
    missing = {name: v for name, v in rules.labels.items() if v not in chosen}
    if missing:
        raise ModelError(f"the labels {missing} are for versions that are not there")
    parts += [f"{name} {value}" for name, value in _unusual(rules, ("path", "versions"))]
    return ", ".join(parts)


def _unusual(struct: Settings | ModelRules, but: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return the settings that differ from their defaults."""
    usual = {f.name: f.default for f in msgspec.structs.fields(struct)}
    return [
        (name, value)
        for name in struct.__struct_fields__
        if name not in but and (value := getattr(struct, name)) not in (usual[name], [], {})
    ]
