"""The figures as tables, and the bars that they must meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

OURS = "sojourn"
_TITLES = {
    "kserve-binary": "HTTP, KServe binary",
    "kserve-json": "HTTP, KServe JSON",
    "tfserving-json": "HTTP, TensorFlow Serving JSON",
    "grpc": "gRPC, KServe",
}


def markdown(score: Mapping[str, Any]) -> str:
    """Return every system by protocol, then the bars."""
    titles = ("protocol", "system", "p50 of one connection", "requests/s of 32", "CPU a request")
    lines = [_line(titles), _rule(len(titles))]
    for protocol, by_system in score["protocols"].items():
        for name, one in by_system.items():
            failed = f" ({one['failed']} failed)" if one["failed"] else ""
            rate = f"{one['rate']:,.0f}{failed}"
            cells = (_TITLES[protocol], name, _time(one["p50"]), rate, _time(one["cpu"]))
            lines.append(_line(cells))
    if starts := score.get("starts"):
        titles = ("start of", "until its port answers", "until the first prediction")
        lines += ["", _line(titles), _rule(len(titles))]
        for name, one in starts.items():
            lines.append(_line((name, _time(one["ready"]), _time(one["answer"]))))
    if clients := score.get("tritonclient"):
        titles = ("tritonclient, p50 with", "HTTP", "gRPC")
        lines += ["", _line(titles), _rule(len(titles))]
        for name, one in clients.items():
            lines.append(_line((name, _time(one["http"]), _time(one["grpc"]))))
    lines += ["", _line(("bar", "measured", "wanted", "")), _rule(4)]
    for what, measured, wanted, is_least in bars(score):
        is_met = measured >= wanted if is_least else measured <= wanted
        word = "at least" if is_least else "at most"
        lines.append(
            _line((what, f"{measured:.2f}", f"{word} {wanted}", "met" if is_met else "not met"))
        )
    missing = [f"{name}: not measured, {why}." for name, why in score["not_measured"].items()]
    return "\n".join([*lines, "", *missing, *([""] if missing else []), _caption(score), ""])


def bars(score: Mapping[str, Any]) -> Iterable[tuple[str, float, float, bool]]:
    """Yield each promise: a name, the ratio, the bar, and whether the bar is a minimum."""
    found = score["protocols"]
    ours = {protocol: by_system.get(OURS) for protocol, by_system in found.items()}
    binary = ours.get("kserve-binary")
    if binary and "in_process_p50" in score:
        ratio = binary["p50"] / score["in_process_p50"]
        yield "HTTP, KServe binary, p50 by that of `session.run`", ratio, 5, False
    for protocol, most, least in (
        ("kserve-binary", 0.15, 6.0),
        ("kserve-json", None, 4.0),
        ("tfserving-json", None, 15.0),
        ("grpc", 0.65, 1.3),
    ):
        one, peers = ours.get(protocol), _peers(found.get(protocol, {}))
        if one is None or not peers:
            continue
        if most is not None:
            best = min(peer["p50"] for peer in peers)
            yield f"{_TITLES[protocol]}, p50 by the best peer's", one["p50"] / best, most, False
        best = max(peer["rate"] for peer in peers)
        yield f"{_TITLES[protocol]}, rate by the best peer's", one["rate"] / best, least, True
    clients = score.get("tritonclient", {})
    if OURS in clients and (peers := _peers(clients)):
        for key, title, most in (("http", "HTTP", 0.2), ("grpc", "gRPC", 0.4)):
            ratio = clients[OURS][key] / min(peer[key] for peer in peers)
            yield f"tritonclient, {title}, p50 by the best peer's", ratio, most, False
    if batched := score.get("batching"):
        for name, least in (("softmax", 3.0), ("mlp", 10.0)):
            alone = batched[f"{name}-alone"]
            ratio = batched[name]["rate"] / alone["rate"]
            yield f"batching, {name}: rate of 128 by one request a step", ratio, least, True
            ratio = batched[name]["p50"] / alone["p50"]
            yield f"batching, {name}: p50 of one by one request a step", ratio, 1.1, False
    starts = score.get("starts", {})
    peers = _peers(starts)
    if OURS in starts and peers:
        ratio = starts[OURS]["ready"] / min(peer["ready"] for peer in peers)
        yield "start of 20 models, nothing loaded, by the fastest peer's", ratio, 0.5, False
    if big := score.get("big_model"):
        share = 1 - max(0, big["left_bytes"]) / big["held_bytes"]
        yield "unload of 400 MB: share that is back", share, 0.99, True
        ratio = big["p99_beside"] / big["p99_alone"]
        yield "p99 while another model of 400 MB is loaded, by alone", ratio, 1.5, False


def _peers(by_system: Mapping[str, Any]) -> list[Mapping[str, float]]:
    return [one for name, one in by_system.items() if name != OURS]


def _caption(score: Mapping[str, Any]) -> str:
    busy = score["load_before"] > score["cores"] / 2
    return (
        ("**The machine was busy: these figures decide nothing.** " if busy else "")
        + f"{score['date']}, Python {score['python']}, {score['cores']} cores, load before "
        f"{score['load_before']:.1f}; medians of {score['rounds']} rounds of "
        f"{score['seconds']:g} s, all systems in turns, the same bodies, by wrk and h2load."
    )


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e6:,.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(count: int) -> str:
    return _line(["---"] * count)
