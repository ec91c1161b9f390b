"""Every kind of model under 16 memory limits, from 32 MiB to twice what it needs.

    python benchmarks/memory_grid.py [--output grid.json] [CASE ...]

Each session ends in one of two ways: it works, or BudgetExceeded says that memory= was reached. For
each limit a mark is printed: `+` it worked, `o` refused while opening, `s` in a step, `r` in a
reset or restore, `f` in a function; a capital letter if the worker ended. `!` is anything else,
above all a signal. Exits with 1 if any `!` occurred, or if a refusal came 2 seconds later than the
whole session takes without a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import sojourn
from sojourn import events

MIB = 2**20
SIDE = 4096  # a float32 matrix of this side takes 64 MiB
SMALL = 1024  # number of tensors of 128 KiB
LIMITS = 16
SECONDS = 2.0
ROW = np.ones((1, SIDE), np.float32)

Stage = Iterator[str]


def large_tensor() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [], name="x")
    matrix = tf.fill([SIDE, SIDE], x)
    return {"x": x}, {"y": tf.reduce_sum(tf.concat([matrix, matrix], 0))}


def small_tensors() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [], name="x")

    def more(i: Any, kept: Any) -> Any:
        return i + 1, kept.write(i, tf.fill([32 * 1024], x + tf.cast(i, tf.float32)))

    kept = tf.TensorArray(tf.float32, SMALL)
    _, kept = tf.while_loop(lambda i, _: i < SMALL, more, (0, kept))
    return {"x": x}, {"y": kept.read(SMALL - 1)[0]}


def variable() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [], name="x")
    w = v1.get_variable("w", [SIDE, SIDE], initializer=v1.random_uniform_initializer())
    return {"x": x}, {"y": v1.assign_add(w, tf.fill([SIDE, SIDE], x))[0, 0]}


def fed() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [SIDE, SIDE], name="x")
    return {"x": x}, {"y": tf.reduce_sum(tf.concat([x, x], 0))}


def keras_model() -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((SIDE,)), layers.Dense(SIDE, use_bias=False)])


def run_with(model: Any, feed: Any) -> Callable[[int | None], Stage]:
    def stay(limit: int | None) -> Stage:
        yield "o"
        with sojourn.open(model, memory=limit) as session:
            yield "s"
            name = next(iter(session.signature.inputs))
            for _ in range(3):
                session.run(None, {name: feed})

    return stay


def reset(limit: int | None) -> Stage:
    yield "o"
    with sojourn.open(variable, memory=limit) as session:
        yield "s"
        session.run("y", {"x": 1})
        yield "r"
        session.reset()


def restore(folder: str) -> Callable[[int | None], Stage]:
    def stay(limit: int | None) -> Stage:
        yield "o"
        with sojourn.open(variable, memory=limit) as session:
            yield "r"
            session.restore(folder)

    return stay


def function(work: Callable[[], Any]) -> Callable[[int | None], Stage]:
    def stay(limit: int | None) -> Stage:
        yield "f"
        sojourn.isolated(memory=limit)(work)()

    return stay


def in_numpy() -> float:
    return float(np.sqrt(np.ones((SIDE, SIDE), np.float32)).sum())


def in_tensorflow() -> float:
    import tensorflow as tf

    return float(tf.reduce_sum(tf.sqrt(tf.ones([SIDE, SIDE]) * 2)))


def cases(folder: str) -> dict[str, Callable[[int | None], Stage]]:
    """Return the cases. Another process writes the models: this one loads no TensorFlow."""
    keras, saved, state = (os.path.join(folder, n) for n in ("m.keras", "saved", "state"))
    script = (
        f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); "
        "from memory_grid import keras_model; m = keras_model(); "
        f"m.save({keras!r}); m.export({saved!r})"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    with sojourn.open(variable) as session:
        session.save(state)
    one = np.float32(1)
    return {
        "1024 small tensors": run_with(small_tensors, one),
        "one large tensor": run_with(large_tensor, one),
        "64 MiB fed": run_with(fed, np.ones((SIDE, SIDE), np.float32)),
        "Keras builder": run_with(keras_model, ROW),
        ".keras file": run_with(keras, ROW),
        "SavedModel": run_with(saved, ROW),
        "TF1 variable": run_with(variable, one),
        "reset": reset,
        "restore": restore(state),
        "isolated numpy": function(in_numpy),
        "isolated TensorFlow": function(in_tensorflow),
    }


def outcome(stay: Callable[[int | None], Stage], limit: int | None) -> dict[str, Any]:
    """Run one session; return how it ended: a mark, seconds, and the message."""
    ends: list[str] = []
    stop = events.subscribe(
        lambda event: (
            ends.append(str(event.detail.get("how"))) if event.kind == "worker.died" else None
        )
    )
    stage, began = "", time.monotonic()
    mark, said, steps = "+", "", stay(limit)
    try:
        for now in steps:
            stage, began = now, time.monotonic()
    except sojourn.BudgetExceeded as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        mark = stage.upper() if isinstance(error, sojourn.SessionBroken) else stage
        if "was reached" not in said or any("killed" in how for how in ends):
            mark = "!"
    except Exception as error:
        mark, said = "!", f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        seconds = time.monotonic() - began
        steps.close()  # type: ignore[attr-defined]
        stop()
    return {"mark": mark, "seconds": round(seconds, 2), "said": said, "died": ends}


def need(stay: Callable[[int | None], Stage]) -> tuple[int, float]:
    """Return the most memory that it holds without a limit, by its receipt, and its seconds."""
    peaks = [64 * MIB]

    def note(event: events.Event) -> None:
        if event.kind == "session.receipt":
            peaks.append(event.detail["receipt"]["peak_bytes"])

    stop = events.subscribe(note)
    began = time.monotonic()
    try:
        for _ in stay(None):
            pass
    finally:
        stop()
    return max(peaks), time.monotonic() - began


def main() -> int:
    """Run the grid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", help="only these")
    parser.add_argument("--output", help="write every cell to this file, as JSON")
    options = parser.parse_args()
    grid: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, stay in cases(folder).items():
            if options.case and name not in options.case:
                continue
            peak, usual = need(stay)
            most = 2 * peak
            limits = [32 * MIB + i * (most - 32 * MIB) // (LIMITS - 1) for i in range(LIMITS)]
            cells = {limit // MIB: outcome(stay, limit) for limit in limits}
            for cell in cells.values():
                cell["late"] = bool(cell["said"]) and cell["seconds"] > usual + SECONDS
            grid[name] = cells
            marks = "".join(cell["mark"] for cell in cells.values())
            slowest = max((c["seconds"] for c in cells.values() if c["said"]), default=0.0)
            print(f"{name:20} 32 to {most // MIB:4} MiB  {marks}  {slowest:.1f} s", flush=True)
    if options.output:
        with open(options.output, "w") as file:
            json.dump(grid, file, indent=1)
    every = [cell for cells in grid.values() for cell in cells.values()]
    wrong = [cell for cell in every if cell["mark"] == "!" or cell["late"]]
    for cell in wrong:
        print(f"wrong: {cell}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
