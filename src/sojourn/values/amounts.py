"""Amounts of memory and time in the form in which people write and read them."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(amount: int | str) -> int:
    """Return the number of bytes in `2048`, `"2GiB"`, `"500 MB"` or `"1.5g"`.

    >>> parse_bytes("2GiB")
    2147483648
    """
    if isinstance(amount, bool) or not isinstance(amount, int | str):
        raise ValueError(f"memory must be a number or a string like '2GiB', not {amount!r}")
    if isinstance(amount, int):
        if amount < 0:
            raise ValueError(f"an amount of memory cannot be negative: {amount}")
        return amount
    match = _AMOUNT.fullmatch(amount)
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"not an amount of memory: {amount!r} (write it like '2GiB' or '500MB')")
    try:
        return int(float(match.group(1)) * unit)
    except OverflowError:
        raise ValueError(f"not an amount that a machine can have: {amount!r}") from None


def format_bytes(count: int) -> str:
    """Return a short text for a number of bytes.

    >>> format_bytes(452_000_000)
    '431 MiB'
    """
    sign, size = ("-", -count) if count < 0 else ("", count)
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            value = size / factor
            return f"{sign}{value:.1f} {unit}" if value < 10 else f"{sign}{value:.0f} {unit}"
    return f"{sign}{size} B"


def format_seconds(seconds: float) -> str:
    """Return a short text for a duration.

    >>> format_seconds(0.0094)
    '9.4 ms'
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
