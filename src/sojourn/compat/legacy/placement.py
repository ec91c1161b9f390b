"""Ops that request a missing device: they run on another device, and the account reports them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

_FIRST = 3


class Fallbacks:
    """The ops that requested a missing device, by device."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}

    def add(self, device: str, op: str) -> None:
        """Record that an op requested the device. The same name in another graph counts once."""
        self._names.setdefault(device, {})[op] = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            device: {"ops": len(names), "first": list(names)[:_FIRST]}
            for device, names in self._names.items()
        }

    def lines(self) -> list[str]:
        """Return a line per device, for people to read."""
        return [_line(device, list(names)) for device, names in self._names.items()]


def _line(device: str, names: list[str]) -> str:
    more = ", ..." if len(names) > _FIRST else ""
    ops = "1 op" if len(names) == 1 else f"{len(names)} ops"
    return f"  {ops} asked for {device}, which is not here: {', '.join(names[:_FIRST])}{more}"


class Watch:
    """Finds ops that request a missing device in the graph of one session as it grows."""

    def __init__(self, found: Fallbacks) -> None:
        self._found = found
        self._seen = 0
        self._present: set[tuple[str, int]] | None = None
        self._is_missing: dict[str, bool] = {}

    def look(self, session: Any, is_last: bool = False) -> None:
        """Scan if the graph is new or has doubled: all scans together cost only one or two."""
        version = session.graph.version
        if version == self._seen or (version < 2 * self._seen and not is_last):
            return
        self._seen = version
        # This is only a report: it must not fail a step, even if the session's worker is gone.
        with contextlib.suppress(Exception):
            self._note(session)

    def _note(self, session: Any) -> None:
        for op in session.graph.get_operations():
            device = op.device
            if device and device not in self._is_missing:
                self._is_missing[device] = self._lacks(device, session)
            if device and self._is_missing[device]:
                self._found.add(_short(device), op.name)

    def _lacks(self, device: str, session: Any) -> bool:
        kind, index = _parts(device)
        if kind in ("", "CPU"):
            return False
        if self._present is None:
            self._present = {_numbered(each.name) for each in session.list_devices()}
        if index is None:
            return all(kind != other for other, _ in self._present)
        return (kind, index) not in self._present


def _parts(device: str) -> tuple[str, int | None]:
    import tensorflow.compat.v1 as tf

    spec = tf.DeviceSpec.from_string(device)
    return str(spec.device_type or "").upper(), spec.device_index


def _numbered(device: str) -> tuple[str, int]:
    kind, index = _parts(device)
    return kind, index or 0


def _short(device: str) -> str:
    kind, index = _parts(device)
    return f"/{kind}" if index is None else f"/{kind}:{index}"


def softly(configure: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `configure` with soft placement added: ops fall back if their device is missing."""

    def change(config: Any) -> Any:
        import tensorflow.compat.v1 as tf

        from sojourn.compat.v1.configuration import default_config

        config = configure(config)
        config = default_config() if config is None else config
        if not isinstance(config, tf.ConfigProto):
            return config  # an invalid type: TensorFlow has a better error for it
        changed = tf.ConfigProto()
        changed.CopyFrom(config)
        changed.allow_soft_placement = True
        return changed

    return change
