"""`engine_options=` of `sojourn.open`: options of how an engine computes, not of what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sojourn.values import arguments

_TENSORFLOW = "tensorflow"
_MOST_THREADS = 1024  # more threads than any machine has cores for are a typo or an attack
NAMES = ("threads", "jit_compile")


def checked(options: Any, engine: str, inline: bool) -> dict[str, Any]:
    """Return the options as fields of a `Load`. Raises TypeError or ValueError for invalid ones."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"engine_options must be a mapping, as {{'threads': 2}}, not {options!r}")
    for name in options:
        if name not in NAMES:
            known = " and ".join(map(repr, NAMES))
            raise ValueError(f"engine_options may have {known}, not {name!r}")
    if inline and engine == _TENSORFLOW:
        raise ValueError("engine_options are for a worker: this process has chosen its own")
    found = dict(options)
    if found.get("threads") is not None:
        found["threads"] = arguments.whole("threads", found["threads"])
        if found["threads"] > _MOST_THREADS:
            raise ValueError(f"threads must be at most {_MOST_THREADS}, not {found['threads']}")
    jit_compile = arguments.flag("jit_compile", found.get("jit_compile", False))
    if jit_compile and engine != _TENSORFLOW:
        raise ValueError(f"jit_compile is for {_TENSORFLOW}, not for {engine}")
    return found
