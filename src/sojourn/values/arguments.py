"""Checks of arguments: an error names the argument, what it accepts, and the value it got.

A value of the wrong type raises TypeError, an impossible value ValueError. An accepted value is
returned in its plain Python type, even if it was a numpy scalar.
"""

from __future__ import annotations

import math
import os
import re
from numbers import Integral, Real
from typing import Any

from sojourn.values.amounts import parse_bytes

_MOST_SEED = 2**64 - 1
_MOST_BYTES = 2**60  # no machine has more: a larger number is a typing error
_DEVICE = re.compile(r"auto|cpu|gpu(:[0-9]+|:(GPU-)?[0-9a-f-]+)?", re.IGNORECASE)


def text(what: str, value: Any) -> str:
    """Check a non-empty string, such as a name."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {value!r}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text, and {value!r} has half a character") from None
    return value


def flag(what: str, value: Any) -> bool:
    """Check a boolean."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be True or False, not {value!r}")
    return value


def whole(what: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Check a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{what} must be a whole number of at least {least}, not {value!r}")
    if value < least:
        raise ValueError(f"{what} must be a whole number of at least {least}, not {value!r}")
    if most is not None and int(value) > most:
        raise ValueError(f"{what} must be at most {most}, not {value!r}")
    return int(value)


def seed(value: Any, deterministic: bool = False) -> int | None:
    """Check a random seed. Deterministic ops need one: with them, TensorFlow's random ops refuse to
    run without a seed."""
    flag("deterministic", deterministic)
    if value is not None:
        if whole("a seed", value, least=0) > _MOST_SEED:
            raise ValueError(f"a seed must be below 2**64, not {value!r}")
        return int(value)
    if deterministic:
        raise ValueError("deterministic=True needs a seed: without one, every run starts elsewhere")
    return None


def seconds(what: str, value: Any) -> float:
    """Check a finite duration, which may be 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{what} must be a number of seconds, not {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} must be a number of seconds of at least 0, not {value!r}")
    return float(value)


def timeout(value: Any, what: str = "timeout") -> float | None:
    """Check a timeout; None means forever."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise TypeError(f"{what} must be a number of seconds or None, not {value!r}")
    if value < 0:
        raise ValueError(f"{what} must not be negative, got {value!r}")
    return None if value == math.inf else float(value)


def memory(what: str, value: Any) -> int:
    """Check a positive amount of memory; return it in bytes."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        value = int(value)
    try:
        count = parse_bytes(value)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    if count == 0:
        raise ValueError(f"{what} must be positive, such as '2GiB', not {value!r}")
    if count > _MOST_BYTES:
        raise ValueError(f"{what} must be an amount that a machine can have, not {value!r}")
    return count


def path(what: str, value: Any) -> str:
    """Check the path of a file or folder; return it as an absolute path."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise TypeError(f"{what} must be a path, not {value!r}")
    try:
        name = os.fsdecode(value)
        is_possible = name != "" and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        is_possible = False  # it contains a lone surrogate
    if not is_possible:
        raise ValueError(f"{what} must be the path of a file or folder, not {value!r}")
    return os.path.abspath(name)


def device(what: str, value: Any) -> str:
    """Check the form of a device name; the device need not exist here."""
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise ValueError(
            f"{what} must be 'auto', 'cpu', 'gpu', 'gpu:1' or 'gpu:GPU-<uuid>', not {value!r}"
        )
    return value
