"""The measured score as a table for readers, and its place in README."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from outside import Reading
from scenarios import TOLERANCE, is_nothing

COLUMNS = (
    "system",
    "standing",
    "held",
    "returned",
    "left after close",
    "after an exception",
    "after `kill -9`",
    "first open",
    "open",
    "call, 1 row",
    "call, 4096 rows",
    "close",
)
_BEGIN, _END = "<!-- score -->", "<!-- /score -->"


def markdown(score: Mapping[str, Any]) -> str:
    """Return the table with its date and versions."""
    lines = [_line(COLUMNS), _line("---" for _ in COLUMNS)]
    lines += [_line(cells) for cells in rows(score)]
    missing = [
        f"{one['name']}: not measured, {one['not_measured']}."
        for one in score["systems"]
        if "not_measured" in one
    ]
    return "\n".join([*lines, "", *missing, *([""] if missing else []), _caption(score), ""])


def rows(score: Mapping[str, Any]) -> Iterable[list[str]]:
    """Yield the cells of each system."""
    raw: dict[str, Any] = next(
        (one for one in score["systems"] if one["address"] == score["baseline"]), {}
    )
    for one in score["systems"]:
        if "not_measured" in one:
            yield [one["name"], *("not measured" for _ in COLUMNS[1:])]
            continue
        held, kept = one["held"]["memory_bytes"], one["close"]["memory_bytes"]
        yield [
            one["name"],
            _standing(_reading(one["standing"])),
            _bytes(held),
            f"{max(0.0, min(1.0, 1 - max(0, kept) / held)):.0%}" if held > 0 else "",
            left_over(_reading(one["close"])),
            left_over(_reading(one["exception"])),
            _after_kill(one["kill"]),
            _seconds(one["first_open_seconds"]),
            *(
                _compared(one, raw, what)
                for what in ("open_seconds", "call_1_seconds", "call_4096_seconds", "close_seconds")
            ),
        ]


def left_over(left: Reading) -> str:
    """Describe in words what is left."""
    if is_nothing(left):
        return "nothing"
    parts = [_bytes(left.memory_bytes)] if left.memory_bytes >= TOLERANCE else []
    for count, one, many in (
        (left.processes, "process", "processes"),
        (left.descriptors, "descriptor", "descriptors"),
        (left.ports, "port", "ports"),
        (left.shared_files, "name in /dev/shm", "names in /dev/shm"),
        (left.files, "temporary file", "temporary files"),
    ):
        if count > 0:
            parts.append(f"{count} {one if count == 1 else many}")
    return ", ".join(parts)


def _after_kill(kill: Mapping[str, Any]) -> str:
    gone = kill["gone_after_seconds"]
    left = left_over(_reading(kill))
    if left == "nothing":
        return f"nothing after {_seconds(gone)}"
    return left if gone is None else f"{left}; processes gone after {_seconds(gone)}"


def put_into(readme: Path, text: str) -> None:
    """Replace the text between the markers."""
    before, begin, rest = readme.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{readme} has no {_BEGIN} and {_END}")
    readme.write_text(f"{before}{_BEGIN}\n\n{text}\n{_END}{after}")


def _standing(standing: Reading) -> str:
    parts = [_bytes(standing.memory_bytes)]
    if standing.processes > 0:
        parts.append(f"{standing.processes} process" + "es" * (standing.processes > 1))
    if standing.ports > 0:
        parts.append(f"{standing.ports} port" + "s" * (standing.ports > 1))
    return ", ".join(parts)


def _compared(one: Mapping[str, Any], raw: Mapping[str, Any], what: str) -> str:
    if what not in one:
        return ""
    text = _seconds(one[what])
    if not raw.get(what) or one is raw:
        return text
    ratio = one[what] / raw[what]
    return f"{text} ({ratio:.2g}x)" if ratio < 10 else f"{text} ({ratio:.0f}x)"


def _caption(score: Mapping[str, Any]) -> str:
    versions: dict[str, str] = {}
    for one in score["systems"]:
        versions.update(one.get("versions", {}))
    listed = [f"{name} {version}" for name, version in sorted(versions.items())]
    compared = f" In brackets: against {score['baseline_name']}." if score["baseline_name"] else ""
    load = f" (load {score['load_before']:.1f} before)" if "load_before" in score else ""
    return (
        f"Measured {score['date']} on {score['cores']} cores{load}, without a GPU: "
        f"{', '.join([*listed, 'Python ' + score['python']])}.{compared}"
    )


def _reading(plain: Mapping[str, Any]) -> Reading:
    return Reading(**{name: plain[name] for name in Reading().to_dict()})


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bytes(amount: int) -> str:
    return f"{max(0, amount) / 2**20:.0f} MiB"


def _seconds(amount: float) -> str:
    if amount >= 1:
        return f"{amount:.1f} s"
    return f"{amount * 1e3:.0f} ms" if amount >= 0.01 else _small_seconds(amount)


def _small_seconds(amount: float) -> str:
    return f"{amount * 1e3:.1f} ms" if amount >= 1e-3 else f"{amount * 1e6:.0f} us"
