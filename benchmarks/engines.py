"""How other engines do with many kinds of models: which convert, which agree, how fast each is.

`python benchmarks/engines.py [NAME ...]` prints the table of docs/engines.md. Each model is tried
as `engine="fastest"` does it; then the resulting session is compared with TensorFlow once more, on
inputs that the proof has not seen. If a model is refused, the table says why. Weights are random,
so that nothing is downloaded. Ratios are the time of a step divided by that of an isolated session
of TensorFlow.

`python benchmarks/engines.py --bars [NAME ...]` compares isolated sessions of the fastest engine
with the raw `Session.run` of this process, in turns; ratios are those of the fastest steps.
`--keep FOLDER` before the names keeps the exported and converted models there, so that another run
only measures.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from statistics import median
from typing import Any

from engine_models import MODELS

import sojourn
from sojourn.bench.harness import in_turns
from sojourn.engines.agreement import difference
from sojourn.session.conversion.cache import FOLDER
from sojourn.session.conversion.inputs import made
from sojourn.session.opening import Blueprint
from sojourn.values import caller, format_bytes

_UNSEEN = 5
_TOLERANCE = 1e-3  # for inputs that were not part of the proof
_BARS = {
    "dense 784x10": (1, 64, 4096),
    "small conv": (1,),
    "MobileNetV2": (1, 8),
    "EfficientNetB0": (1,),
    "ResNet50": (1,),
    "LSTM(128) x 50": (1, 8),
    "transformer 4 x 256": (1,),
}
_BAR_ROUNDS = 20


def table(names: list[str]) -> None:
    print("| model | TensorFlow | ONNX Runtime | LiteRT | runs on |")
    print("| --- | --- | --- | --- | --- |")
    for name in names or MODELS:
        started = time.monotonic()
        try:
            row = _row(name)
        except Exception as error:
            row = f"{type(error).__name__}: {error}"
        print(f"| {name} | {row} |", flush=True)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _row(name: str) -> str:
    blueprint = Blueprint(MODELS[name], engine="fastest", seed=1)
    examined = blueprint.examine(caller())
    cells = [format_bytes(examined.held_bytes)]
    for one in examined.candidates:
        ratios = " / ".join(f"{ratio:.2f}" for ratio in one.ratios.values())
        held = format_bytes(one.held_bytes)
        refused = one.refusal[:120].replace("|", "/")
        cells.append(f"refused: {refused}" if refused else f"{ratios}; {one.worst:.0e}; {held}")
    with blueprint.open(caller()) as session:
        engine = session.engine.partition(":")[0]
        if engine != "tensorflow":
            with sojourn.open(MODELS[name], seed=1) as reference:
                engine += f", {_compared(reference, session)}"
    return " | ".join([*cells, engine])


def _compared(reference: Any, session: Any) -> str:
    """Return how much the two sessions differ on inputs that are new to both."""
    worst = 0.0
    for number in range(_UNSEEN):
        feeds = made(reference.signature, 1 + 2 * number, seed=1000 + number)
        expected = reference.run(None, feeds)
        differs, wrong = difference(expected, session.run(None, feeds))
        worst = max(worst, differs)
        if wrong or differs > _TOLERANCE:
            return f"WRONG: {wrong or f'differs by {differs:.0e}'}"
    return f"{worst:.0e}"


def bars(names: list[str], folder: str) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    for name in names or _BARS:
        path = os.path.join(folder, name.replace(" ", "-"))
        if not os.path.isdir(path):
            sojourn.isolated(_export)(name, path)
        graph = v1.Graph()
        with graph.as_default(), v1.Session(graph=graph) as raw:
            loaded = v1.saved_model.load(raw, ["serve"], path)
            with sojourn.open(path, engine="fastest") as session:
                print(f"{name}: {session.engine}")
                for batch in _BARS[name]:
                    _bar(raw, loaded.signature_def["serving_default"], session, batch)


def _bar(raw: Any, signature: Any, session: Any, batch: int) -> None:
    feeds = made(session.signature, batch, seed=batch)
    given = {signature.inputs[key].name: array for key, array in feeds.items()}
    fetches = {key: info.name for key, info in signature.outputs.items()}
    placed = {key: sojourn.empty_like(array) for key, array in feeds.items()}
    for key, array in feeds.items():
        placed[key][...] = array
    ways = {
        "raw": lambda: raw.run(fetches, given),
        "isolated": lambda: session.run(None, feeds),
        "placed": lambda: session.run(None, placed),
    }
    seconds = min(in_turns({"raw": ways["raw"]}, rounds=5, warm_up=1)["raw"])
    calls = max(3, min(50, int(0.05 / seconds)))
    taken = in_turns(ways, rounds=_BAR_ROUNDS, calls=calls, warm_up=5)
    for way in ("isolated", "placed"):
        least = min(taken[way]) / min(taken["raw"])
        usual = median(taken[way]) / median(taken["raw"])
        print(f"  batch {batch}, {way}: {least:.2f} (median {usual:.2f})", flush=True)


def _export(name: str, path: str) -> None:
    MODELS[name]().export(path, verbose=False)


def main(arguments: list[str]) -> None:
    has_bars = arguments[:1] == ["--bars"]
    names = arguments[has_bars:]
    with contextlib.ExitStack() as until_end:
        if names[:1] == ["--keep"]:
            folder, names = names[1], names[2:]
        else:
            folder = until_end.enter_context(tempfile.TemporaryDirectory())
        os.environ[FOLDER] = os.path.join(folder, "converted")
        if has_bars:
            bars(names, folder)
        else:
            table(names)


if __name__ == "__main__":
    main(sys.argv[1:])
