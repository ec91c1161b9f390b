"""Every kind of session: how one is opened, a cheap step with its result, and one without end.

`write_files` makes the model files that some of them need. The drop-in is not among them, since it
needs TensorFlow in the client: its faults are programs of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import models
import sojourn

LONG = 1_000_000_000
Opener = Callable[[Path], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Kind:
    """One kind. What `open` gives is a session or a lease of one."""

    open: Opener
    fetch: str
    cheap: dict[str, Any]
    result: Any
    slow: dict[str, Any]

    def step(self, session: Any, **options: Any) -> None:
        """A cheap step, and its result is right."""
        assert session.run(self.fetch, self.cheap, **options) == self.result


def write_files(folder: str) -> None:
    """A SavedModel that counts, and a Keras model that adds up, one number at a time."""
    sojourn.isolated(_write)(folder)


def _write(folder: str) -> None:
    import keras
    import tensorflow as tf

    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = tf.Variable(1)

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="n")])
        def __call__(self, n: Any) -> Any:
            one = self.one.read_value()
            [total] = tf.while_loop(lambda i: i < n, lambda i: [i + one], [tf.constant(0)])
            return {"total": total}

    tf.saved_model.save(Counter(), f"{folder}/counter")
    adding = keras.layers.SimpleRNN(
        1,
        activation=None,
        use_bias=False,
        kernel_initializer="ones",
        recurrent_initializer="ones",
        name="y",
    )
    keras.Sequential([keras.Input((None, 1), name="x"), adding]).save(f"{folder}/adder.keras")


def _opened(model: Any, **options: Any) -> Opener:
    return lambda folder: sojourn.open(model, **options)


def _file(name: str, **options: Any) -> Opener:
    return lambda folder: sojourn.open(folder / name, **options)


@contextlib.contextmanager
def _lent(folder: Path) -> Iterator[Any]:
    with sojourn.open(models.counting_up) as session, session.lend() as lease:
        yield lease


@contextlib.contextmanager
def _pooled(folder: Path) -> Iterator[Any]:
    with sojourn.Pool(memory="1GiB") as pool:
        pool.register("counter", folder / "counter")
        with pool.lease("counter", timeout=60) as lease:
            yield lease


def _counting(open: Opener) -> Kind:
    return Kind(open, "total", {"n": 7}, 7, {"n": LONG})


_ONES = {"x": np.ones((1, 3, 1), np.float32)}
_MANY = {"x": np.ones((1, 3_000_000, 1), np.float32)}

KINDS = {
    "function": Kind(_opened(models.sleeper), "output", {"seconds": 0.0}, 0.0, {"seconds": 120.0}),
    "graph": _counting(_opened(models.counting_up)),
    "saved-model": _counting(_file("counter")),
    "keras": Kind(_file("adder.keras"), "y", _ONES, 3.0, _MANY),
    "untrusted": _counting(_file("counter", untrusted=True)),
    "lease": _counting(_lent),
    "pool-lease": _counting(_pooled),
}
