"""The configuration of a server: from `serve.toml`, the environment and the command line.

Later sources win. All problems are reported at once, each with its line in the file and the setting
that was probably meant.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sojourn.errors import ModelError
from sojourn.service import folders
from sojourn.service.rules import ModelRules
from sojourn.service.settings import PREFIX, SETTINGS, Setting, Settings

_HEADER = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[^=\s]+)*)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")
_NAME = re.compile(r"[^/:\s][^/:]*")
_FILES = (
    "ready_file", "tokens", "tls_certificate", "tls_key", "tls_client_ca", "access_log", "history",
)  # fmt: skip
Path = tuple[str, ...]


class ConfigError(ValueError):
    """The configuration cannot be used. One line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Config:
    """A validated configuration."""

    settings: Settings = field(default_factory=Settings)
    models: Mapping[str, ModelRules] = field(default_factory=dict)  # the named ones
    folders: tuple[str, ...] = ()  # the models in them are served by their own names
    defaults: Mapping[str, Any] = field(default_factory=dict)  # for models found in folders
    file: str | None = None

    def entries(self) -> dict[str, ModelRules]:
        """Return every model that should be served, including those that are in the folders now."""
        found: dict[str, ModelRules] = {}
        for folder in self.folders:
            for name, path in folders.find_models(folder).items():
                if name in found:
                    raise ModelError(f"{found[name].path} and {path} would both be {name!r}")
                found[name] = ModelRules(**{**self.defaults, "path": path})
        return {**found, **self.models}


def read_config(
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Return the configuration from all three sources. Flags are keyed by setting name; None means
    not given. Raises ConfigError with all problems."""
    environment = os.environ if environment is None else environment
    reader = _Reader(file)
    if file is not None:
        reader.read_file()
    for setting in SETTINGS:
        text = environment.get(setting.variable)
        if text is not None:
            reader.put(setting, _parsed(setting, text), setting.variable)
        value = (flags or {}).get(setting.name)
        if value is not None and value != ():
            reader.put(setting, value, setting.flag)
    reader.know_variables(environment)
    return reader.finish()


class _Reader:
    """Collects values and the problems with them."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._problems: list[tuple[int, str]] = []
        self._lines: dict[Path, int] = {}
        self._sources: dict[Path, str] = {}  # of values that are not from the file
        self._values: dict[str, Any] = {}
        self._defaults: dict[str, Any] = {}
        self._models: dict[str, dict[str, Any]] = {}

    # -- sources ----------------------------------------------------------------------------------

    def read_file(self) -> None:
        assert self._file is not None
        try:
            with open(self._file, encoding="utf-8-sig") as opened:  # some editors write a BOM
                text = opened.read()
            content = _toml().loads(text)
        except OSError as error:
            raise ConfigError([f"{self._file}: {error.strerror or error}"]) from None
        except ValueError as error:  # of TOML or of UTF-8
            match = re.search(r"\(at line (\d+), column \d+\)", str(error))
            where = f"{self._file}:{match[1]}" if match else self._file
            words = str(error) if match is None else str(error)[: match.start()].strip()
            raise ConfigError([f"{where}: {words[:1].lower()}{words[1:]}"]) from None
        self._lines = _find_lines(text)
        self._defaults = self._table(content.pop("defaults", {}), ("defaults",))
        models = self._table(content.pop("models", {}), ("models",))
        for name, own in models.items():
            table = self._table(own, ("models", name))
            if isinstance(own, dict):
                self._models[name] = table
        self._values = content
        here = os.path.dirname(os.path.abspath(self._file))
        _resolve_paths(here, self._values, self._models)

    def put(self, setting: Setting, value: Any, source: str) -> None:
        """Set a value from the environment or the command line, overriding the one before."""
        values = self._defaults if setting.section else self._values
        values[setting.name] = list(value) if setting.is_list else value
        self._sources[(*filter(None, [setting.section]), setting.name)] = source

    def know_variables(self, environment: Mapping[str, str]) -> None:
        """Report variables with our prefix that no setting has: such a typo would go unnoticed."""
        known = {setting.variable for setting in SETTINGS} | _OTHER_VARIABLES
        for name in environment:
            is_ours = name.startswith(PREFIX) and not _OF_KUBERNETES.fullmatch(name)
            if is_ours and name not in known:
                self._add((), f"{name}: no such setting{_nearest(name, known)}", source="")

    # -- the result -------------------------------------------------------------------------------

    def finish(self) -> Config:
        settings = self._built(Settings, self._values, ())
        plain = self._built(ModelRules, self._defaults, ("defaults",))
        if "path" in self._defaults:
            self._add(("defaults", "path"), "a path is for one model")
        models: dict[str, ModelRules] = {}
        found_in: list[str] = []
        for given in settings.paths if settings is not None else ():
            name, equals, path = given.partition("=")
            if equals and not os.path.exists(given):
                self._models.setdefault(name, {})["path"] = os.path.abspath(path)
            else:
                found_in.append(os.path.abspath(given))
        for name, own in self._models.items():
            if not (_NAME.fullmatch(name) and folders.is_name(name)):
                words = f"a model's name must be text without / or :, not {name!r}"
                self._add(("models", name, ""), words)
            if not own.get("path"):
                self._add(("models", name, ""), "a model needs a path")
            usual = {} if plain is None else self._defaults
            rules = self._built(ModelRules, own, ("models", name), usual)
            if rules is not None:
                models[name] = rules
        if self._problems or settings is None or plain is None:
            raise ConfigError([text for _, text in sorted(self._problems)])
        return Config(settings, models, tuple(found_in), dict(self._defaults), self._file)

    def _built(
        self,
        struct: type[Any],
        values: Mapping[str, Any],
        where: Path,
        defaults: Mapping[str, Any] | None = None,
    ) -> Any:
        """Build a struct from these values; None, with the problems recorded, if some are wrong.
        Wrong values are left out so that they do not hide other problems."""
        fields = {found.name: found for found in msgspec.structs.fields(struct)}
        before = len(self._problems)
        left: dict[str, Any] = {}
        for name, value in values.items():
            path = (*where, name)
            if name not in fields:
                known = fields if where else (*fields, "models", "defaults")
                self._add(path, f"no such setting: {name!r}{_nearest(name, known)}")
                continue
            try:
                msgspec.convert(value, fields[name].type)
            except msgspec.ValidationError as error:
                self._add(path, f"{name}: {_plain(error)}")
            else:
                left[name] = value
        while True:
            try:
                built = msgspec.convert({**(defaults or {}), **left}, struct)
            except msgspec.ValidationError as error:
                words = _plain(error)
                named = next((word for word in re.findall(r"\w+", words) if word in left), None)
                self._add(where if named is None else (*where, named), words)
                if named is None:
                    return None
                del left[named]
            else:
                return built if len(self._problems) == before else None

    def _table(self, value: Any, where: Path) -> dict[str, Any]:
        if isinstance(value, dict):
            return dict(value)
        self._add(where, f"must be a table, [{'.'.join(where)}]")
        return {}

    def _add(self, where: Path, words: str, source: str | None = None) -> None:
        source = self._sources.get(where) if source is None else source
        section = ".".join(where[:-1]) if len(where) > 1 else ""
        words = f"{section}: {words}" if section and source is None else words
        if source is not None:
            self._problems.append((0, f"{source}: {words}" if source else words))
            return
        path = where
        while path and path not in self._lines:
            path = path[:-1]
        line = self._lines.get(path, 0)
        self._problems.append((line, f"{self._file}:{line}: {words}" if line else words))


# Kubernetes sets variables like these in the pods of a namespace with a service called
# "sojourn-serve". The server also has variables that are not settings: the path of the file, and
# secrets.
_OF_KUBERNETES = re.compile(PREFIX + r"(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\w+)")
_OTHER_VARIABLES = {PREFIX + name for name in ("CONFIG", "INFER_TOKENS", "ADMIN_TOKENS")}


def _parsed(setting: Setting, text: str) -> Any:
    """Parse the text of an environment variable."""
    if setting.is_list:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.convert(text, setting.type, strict=False)
    except msgspec.ValidationError:
        return text  # reported later, with all other problems


def _resolve_paths(here: str, values: dict[str, Any], models: Mapping[str, dict[str, Any]]) -> None:
    """Resolve the paths of a file relative to the file."""
    for name in _FILES:
        if isinstance(values.get(name), str) and values[name] != "-":
            values[name] = os.path.join(here, values[name])
    if isinstance(values.get("paths"), list):
        values["paths"] = [
            _below(here, given) if isinstance(given, str) else given for given in values["paths"]
        ]
    for own in models.values():
        if isinstance(own.get("path"), str) and own["path"]:
            own["path"] = os.path.join(here, own["path"])


def _below(here: str, given: str) -> str:
    whole = os.path.join(here, given)
    name, equals, path = given.partition("=")
    return f"{name}={os.path.join(here, path)}" if equals and not os.path.exists(whole) else whole


def _find_lines(text: str) -> dict[Path, int]:
    """Return the line of each table and key, as far as it can be found line by line."""
    found: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        key = None if header else _KEY.match(line)
        if header:
            table = path = _parts(header[1])
        elif key:
            path = (*table, *_parts(key[1]))
        else:
            continue
        for end in range(1, len(path) + 1):  # [models.a] also begins `models`
            found.setdefault(path[:end], number)
    return found


def _parts(dotted: str) -> Path:
    return tuple(next(filter(None, groups), "") for groups in _PART.findall(dotted))


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _plain(error: msgspec.ValidationError) -> str:
    words = str(error).split(" - at `$", 1)[0]
    expected = re.fullmatch(r"Expected `(.+)`, got `(.+)`", words)
    return f"must be {expected[1]}, not {expected[2]}" if expected else words


def _toml() -> Any:
    try:
        return importlib.import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.10
        return importlib.import_module("tomli")
