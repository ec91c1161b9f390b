"""The measurements: rates and times in turns, batching, starting, and models of 400 MB."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import psutil
from environments import HERE, NotMeasured
from loading import Measured, load
from running import Running, running
from systems import KSERVE, System
from workload import INPUT, X

import sojourn

PROTOCOLS = ("kserve-binary", "kserve-json", "tfserving-json", "grpc")
Progress = Callable[[str], None]


def in_turns(
    systems: Mapping[System, Running], rounds: int, seconds: float, progress: Progress
) -> dict[str, dict[str, dict[str, float]]]:
    """Return by protocol and system: p50 of one connection; rate and CPU time per request of 32."""
    found: dict[str, dict[str, dict[str, list[Measured]]]] = {}
    spent: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for protocol in PROTOCOLS:
            for system, target in systems.items():
                if protocol not in system.paths:
                    continue
                progress(f"round {number + 1} of {rounds}: {protocol}, {system.name}")
                runs = found.setdefault(protocol, {}).setdefault(
                    system.name, {"one": [], "many": []}
                )
                for key, connections in (("one", 1), ("many", 32)):
                    try:
                        before = _cpu_seconds(target.process)
                        runs[key].append(load(target, protocol, connections, seconds))
                        used = _cpu_seconds(target.process) - before
                        if key == "many":
                            count = runs[key][-1].rate * seconds
                            spent.setdefault((protocol, system.name), []).append(used / count)
                    except NotMeasured as why:
                        progress(f"not measured: {why}")
    return {
        protocol: {
            name: {
                "p50": statistics.median(run.p50 for run in runs["one"]),
                "rate": statistics.median(run.rate for run in runs["many"]),
                "cpu": statistics.median(spent[protocol, name]),
                "failed": sum(run.failed for run in runs["one"] + runs["many"]),
            }
            for name, runs in by_system.items()
            if runs["one"] and runs["many"]
        }
        for protocol, by_system in found.items()
    }


def real_client(
    systems: Mapping[System, Running], python: str, rounds: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Return by system the p50 of tritonclient over HTTP and over gRPC, in turns."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for system, target in systems.items():
            if {"kserve-binary", "grpc"} <= system.paths.keys():
                words = map(str, (target.http, target.grpc, seconds))
                told = subprocess.run(
                    [python, HERE / "peers" / "triton_client.py", *words],
                    env={**os.environ, "PYTHONPATH": str(HERE)},
                    timeout=seconds * 3 + 60,
                    capture_output=True,
                    check=True,
                )
                found.setdefault(system.name, []).append(json.loads(told.stdout))
    return {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }


def in_process(folder: str, calls: int = 2000) -> float:
    """Return the p50 of `session.run` in a program, for the same model and row."""
    times = []
    with sojourn.open(f"{folder}/softmax") as session:
        for _ in range(calls):
            began = time.perf_counter()
            session.run(None, {INPUT: X})
            times.append(time.perf_counter() - began)
    return statistics.median(times[calls // 10 :])


def batching(target: Running, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return the rate at 128 connections and the p50 of one, with and without batches, in turns."""
    runs: dict[str, list[tuple[Measured, Measured]]] = {}
    for _ in range(rounds):
        for name in ("softmax", "softmax-alone", "mlp", "mlp-alone"):
            path = KSERVE.replace("softmax", name)
            runs.setdefault(name, []).append(
                (
                    load(target, "kserve-binary", 128, seconds, path),
                    load(target, "kserve-binary", 1, seconds, path),
                )
            )
    return {
        name: {
            "rate": statistics.median(many.rate for many, _ in measured),
            "p50": statistics.median(one.p50 for _, one in measured),
        }
        for name, measured in runs.items()
    }


def starting(system: System, python: str, *arguments: str, times: int = 2) -> dict[str, float]:
    """Return the seconds until the port answers, and until the first prediction arrives."""
    ready, answered = [], []
    for _ in range(times):
        with running(system, python, *arguments) as target:
            ready.append(target.ready_seconds)
            answered.append(target.answer_seconds)
    return {"ready": statistics.median(ready), "answer": statistics.median(answered)}


def big_model(target: Running, seconds: float, rounds: int = 3) -> dict[str, Any]:
    """Measure what unloading 400 MB returns, and how loading it affects another model's p99."""
    _ask(target, "big", "load")  # everything that is imported once is imported here
    _ask(target, "big", "unload")
    before = _held_bytes(target.process)
    _ask(target, "big", "load")
    loaded = _held_bytes(target.process)
    _ask(target, "big", "unload")
    after = _held_bytes(target.process)
    alone, beside = [], []
    loads = 0
    for _ in range(rounds):
        alone.append(load(target, "kserve-binary", 4, seconds).p99)
        stop = threading.Event()

        def load_again_and_again(stop: threading.Event = stop) -> None:
            nonlocal loads
            while not stop.is_set():
                _ask(target, "big", "load")
                _ask(target, "big", "unload")
                loads += 1

        thread = threading.Thread(target=load_again_and_again)
        thread.start()
        try:
            beside.append(load(target, "kserve-binary", 4, seconds).p99)
        finally:
            stop.set()
            thread.join()
    return {
        "held_bytes": loaded - before,
        "left_bytes": after - before,
        "p99_alone": statistics.median(alone),
        "p99_beside": statistics.median(beside),
        "loads": loads,
    }


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of the server's processes, which other programs barely change."""
    used = 0.0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            used += times.user + times.system
    return used


def _ask(target: Running, model: str, what: str) -> None:
    url = f"http://127.0.0.1:{target.http}/v2/repository/models/{model}/{what}"
    with urllib.request.urlopen(urllib.request.Request(url, b""), timeout=120) as answer:
        answer.read()


def _held_bytes(process: psutil.Process) -> int:
    """Return the private memory of the server and all its processes, as the kernel counts it."""
    held = 0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            held += int(one.memory_full_info().uss)
    return held
