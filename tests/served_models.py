"""Models in files for the tests of the server; the answers of a version show its number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import onnx_writer as onnx
from sojourn.service.inference import ModelRef

if TYPE_CHECKING:
    from sojourn.service.catalogue import Catalogue
    from sojourn.service.served import VersionState

X = np.ones((1, 4), np.float32)
M = ModelRef("m")


def times(number: int) -> bytes:
    """Return an ONNX model that adds up the values of a row, multiplied by `number`."""
    weights = onnx.weight("w", np.full((4, 1), number, np.float32))
    return onnx.model(
        [onnx.node("MatMul", ["x", "w"], ["y"])],
        [onnx.value("x", onnx.FLOAT, ["n", 4])],
        [onnx.value("y", onnx.FLOAT, ["n", 1])],
        [weights],
    )


def write_version(folder: Path, number: int, content: bytes | None = None) -> Path:
    """Write `folder/number/model.onnx` and rename it into place, so that it appears complete."""
    hidden = folder / f".{number}"
    hidden.mkdir(parents=True)
    (hidden / "model.onnx").write_bytes(times(number) if content is None else content)
    os.rename(hidden, folder / str(number))
    return folder


def save_signatures(path: str) -> None:
    """Write a SavedModel with three signatures and variables. Runs in a worker."""
    import tensorflow as tf

    class Scaler(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = tf.Variable(3.0)
            self.runs = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
        def scale(self, x: Any) -> Any:
            return {"y": x * self.factor}

        @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
        def total(self, x: Any) -> Any:
            return {"y": tf.reduce_sum(x, axis=1), "rows": tf.shape(x)[0]}

        @tf.function(input_signature=[tf.TensorSpec([], name="by")])
        def count(self, by: Any) -> Any:
            return {"runs": self.runs.assign_add(by)}

    scaler = Scaler()
    tf.saved_model.save(
        scaler,
        path,
        {"serving_default": scaler.scale, "total": scaler.total, "count": scaler.count},
    )


async def answer(catalogue: Catalogue, ref: ModelRef = M) -> float:
    """Return the answer of a version of the model `m` to a row of ones."""
    served = catalogue.resolve(ref)
    async with catalogue.session(served) as session:
        return float((await session.arun("y", {"x": X}))[0, 0])


def states(catalogue: Catalogue) -> dict[int, VersionState]:
    """Return the state of every version of the model `m`."""
    return {status.version: status.state for status in catalogue.statuses("m")}
