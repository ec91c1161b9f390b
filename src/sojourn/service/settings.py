"""All settings of a server in one table: type, default, flag, environment variable and help.

`Settings` is the top level of `serve.toml`; its `[defaults]` and `[models.NAME]` are `ModelRules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from sojourn.service.addresses import parsed
from sojourn.service.rules import ModelRules, parse_duration
from sojourn.values import arguments

PREFIX = "SOJOURN_SERVE_"
_LEVELS = ("debug", "info", "warning", "error")
# What a running server applies when its configuration is reloaded. The rest needs a restart.
_LIVE = frozenset({"paths", "models", "defaults", "watch", "grace", "tokens", "log_level"})
# The settings of `[defaults]` that also have a flag.
_DEFAULTS = (
    "load", "keep_alive", "versions", "warm_up", "engine", "device", "copies", "untrusted",
    "timeout", "load_timeout", "max_batch", "max_queue",
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a server, except for its models."""

    paths: Annotated[list[str], Meta(description="models, folders of models, or name=path")] = []
    http: Annotated[str, Meta(description="address for HTTP; port 0 picks one, '' is none")] = (
        "127.0.0.1:8501"
    )
    grpc: Annotated[str, Meta(description="address for gRPC; port 0 picks one, '' is none")] = (
        "127.0.0.1:8500"
    )
    admin: Annotated[
        str, Meta(description="where models are loaded and unloaded: 'on', 'off' or an address")
    ] = "on"
    memory: Annotated[
        int | str | None, Meta(description="what all models together may hold, such as 8GiB")
    ] = None
    cluster: Annotated[
        str | None, Meta(description="serve on every node of a Ray cluster: its address, or auto")
    ] = None
    max_sessions: Annotated[int | None, Meta(description="the most copies of models at a time")] = (
        None
    )
    devices: Annotated[list[str], Meta(description="devices to fill evenly, such as gpu:0")] = []
    spares: Annotated[int, Meta(description="workers kept ready, so that models open faster")] = 0
    watch: Annotated[
        float | str, Meta(description="how often folders are looked at for changes; 0: never")
    ] = 2.0
    grace: Annotated[
        float | str, Meta(description="for requests under way when the server stops")
    ] = 30.0
    ready_file: Annotated[
        str | None, Meta(description="written as JSON, with the addresses, once it answers")
    ] = None
    tokens: Annotated[str | None, Meta(description="file of bearer tokens and their roles")] = None
    tls_certificate: Annotated[str | None, Meta(description="certificate chain, PEM")] = None
    tls_key: Annotated[str | None, Meta(description="its private key, PEM")] = None
    tls_client_ca: Annotated[
        str | None, Meta(description="clients must have a certificate signed by this one, PEM")
    ] = None
    max_body: Annotated[int | str, Meta(description="the largest body, also unpacked")] = "256MiB"
    max_connections: Annotated[
        int, Meta(description="the most connections at a time, of HTTP and of gRPC each")
    ] = 4096
    access_log: Annotated[
        str | None, Meta(description="a line of JSON for each request: a file, or - for stdout")
    ] = None
    log_level: Annotated[str, Meta(description="debug, info, warning or error")] = "info"
    trace: Annotated[bool, Meta(description="OpenTelemetry spans for requests and models")] = False
    page: Annotated[bool, Meta(description="the page for people at /")] = True
    page_hosts: Annotated[
        list[str], Meta(description="names by which browsers may ask for the page")
    ] = []
    history: Annotated[
        str | None, Meta(description="a file that keeps over a restart what the page shows")
    ] = None

    def __post_init__(self) -> None:
        for what in ("http", "grpc"):
            if getattr(self, what):
                _address(what, getattr(self, what))
        if self.admin not in ("on", "off"):
            _address("admin", self.admin)
        listened: dict[tuple[str, int], str] = {}
        for what in ("http", "grpc", "admin"):
            if getattr(self, what) not in ("", "on", "off"):
                where = parsed(getattr(self, what))
                if where[1] and listened.setdefault(where, what) != what:
                    raise ValueError(f"{what} must not be at the address of {listened[where]}")
        if self.memory is not None:
            arguments.memory("memory", self.memory)
        arguments.memory("max_body", self.max_body)
        if self.max_sessions is not None:
            arguments.whole("max_sessions", self.max_sessions)
        arguments.whole("spares", self.spares, 0)
        arguments.whole("max_connections", self.max_connections)
        for device in self.devices:
            arguments.device("each of devices", device)
        for what in ("watch", "grace"):
            if parse_duration(what, getattr(self, what)) < 0:
                raise ValueError(f"{what} must not be negative, not {getattr(self, what)!r}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key must be given together")
        if self.tls_client_ca is not None and self.tls_key is None:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key")
        if self.log_level not in _LEVELS:
            raise ValueError(
                f"log_level must be one of {', '.join(_LEVELS)}, not {self.log_level!r}"
            )

    @property
    def watch_seconds(self) -> float:
        return parse_duration("watch", self.watch)

    @property
    def grace_seconds(self) -> float:
        return parse_duration("grace", self.grace)

    @property
    def max_body_bytes(self) -> int:
        return arguments.memory("max_body", self.max_body)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, for a command line, the environment and the documentation."""

    name: str
    type: Any
    default: Any
    help: str
    section: str = ""  # "defaults": for every model that does not override it
    is_live: bool = False  # whether a reload applies it to a running server

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The setting's environment variable."""
        return PREFIX + self.name.upper()

    @property
    def key(self) -> str:
        """The setting's key in the file."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def is_switch(self) -> bool:
        return self.type is bool

    @property
    def is_list(self) -> bool:
        return getattr(self.type, "__origin__", None) is list


def _address(what: str, value: str) -> None:
    try:
        parsed(value)
    except ValueError as error:
        raise ValueError(f"{what} {error}") from None


def _settings(
    struct: type[msgspec.Struct], section: str, names: tuple[str, ...] | None = None
) -> list[Setting]:
    helps, types = _helps(struct), get_type_hints(struct)
    found = {}
    for field in msgspec.structs.fields(struct):
        made = field.default_factory() if callable(field.default_factory) else field.default
        found[field.name] = Setting(
            field.name,
            types[field.name],
            made,
            helps.get(field.name, ""),
            section,
            (section or field.name) in _LIVE,
        )
    return [found[name] for name in names or found]


def _helps(struct: type[msgspec.Struct]) -> dict[str, str]:
    hints = get_type_hints(struct, include_extras=True)
    return {
        name: meta.description or ""
        for name, hint in hints.items()
        for meta in getattr(hint, "__metadata__", ())
    }


# The one table behind flags, environment variables and the keys of the file.
SETTINGS: tuple[Setting, ...] = (
    *_settings(Settings, ""),
    *_settings(ModelRules, "defaults", _DEFAULTS),
)
