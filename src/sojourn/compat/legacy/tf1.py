"""The module that a TensorFlow 1 program gets for `import tensorflow`.

It is TensorFlow's own `compat.v1` with additions over it: names from before 1.0, `layers`,
`nn.rnn_cell`, `contrib`, `keras`, flags, and the sessions chosen for the run.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from sojourn.compat.legacy import cells, flags, keras, layers, oldnames, wandering
from sojourn.compat.legacy.namespaces import Namespace, module

_CONTRIB = "sojourn.compat.legacy.contrib"


class _Version(str):
    """A version string ordered by its numbers: programs compare `tf.__version__` as text."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return _numbers(self) < _numbers(other)

    def __le__(self, other: str) -> bool:
        return _numbers(self) <= _numbers(other)

    def __gt__(self, other: str) -> bool:
        return _numbers(self) > _numbers(other)

    def __ge__(self, other: str) -> bool:
        return _numbers(self) >= _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


# The last TensorFlow 1. Programs choose between old and new names by the version.
VERSION = _Version("1.15.5")


def namespace(session: Namespace, *, as_tensorflow: bool) -> Namespace:
    """Return all of TensorFlow 1, for `import tensorflow` or else for `compat.v1`."""
    import tensorflow
    import tensorflow.compat.v1 as tf1

    here = Namespace(
        "tensorflow" if as_tensorflow else "tensorflow.compat.v1",
        (tf1,),
        {
            "Session": session.Session,
            "InteractiveSession": session.InteractiveSession,
            "layers": layers.namespace(),
            "flags": flags.namespace(tf1.flags),
            "python": importlib.import_module("tensorflow.python"),
            "__file__": tensorflow.__file__,
            **oldnames.adapters(tf1),
        },
        lazy={
            "contrib": module(_CONTRIB),
            "examples": module(f"{_CONTRIB}.examples"),
            "estimator": _estimator,
            "distribute": _distribute,
            "tpu": _tpu,
            "keras": keras.namespace,
            "core": lambda: importlib.import_module("tensorflow.core"),
            "pywrap_tensorflow": module("tensorflow.python.training.py_checkpoint_reader"),
        },
        shown_as="tf",
    )
    oldnames.add_methods(tf1)
    wandering.let_datasets()
    here.nn = _nn(tf1)
    here.app = Namespace("tensorflow.app", (tf1.app,), {"flags": here.flags})
    here.train = _train(tf1)
    here.image = Namespace("tensorflow.image", (tf1.image,), oldnames.image_adapters(tf1))
    here.test = tf1.test
    # Programs that use estimators may be written for TensorFlow 2, and seed with `set_seed`.
    here.random = Namespace("tensorflow.random", (tf1.random, tensorflow.random))
    for old, new in oldnames.RENAMED.items():
        if old not in here.__dict__:
            setattr(here, old, _at(here, new))
    if as_tensorflow:
        here.__version__ = here.VERSION = VERSION
    here.compat = Namespace("tensorflow.compat", (tf1.compat,), {"v1": here})
    return here


def tensorflow_2(session: Namespace, graph: bool) -> Namespace:
    """Return TensorFlow 2 with our `compat.v1`, and our Keras if eager execution is off."""
    import tensorflow

    first = namespace(session, as_tensorflow=False)
    first.compat = Namespace(
        "tensorflow.compat", (tensorflow.compat,), {"v1": first, "v2": tensorflow}
    )
    compat = Namespace("tensorflow.compat", (tensorflow.compat,), {"v1": first})
    names: dict[str, Any] = {
        "compat": compat,
        "python": importlib.import_module("tensorflow.python"),
    }
    here = Namespace(
        "tensorflow",
        (tensorflow,),
        {**names, "__file__": tensorflow.__file__, "__version__": tensorflow.__version__},
        # TensorFlow 2 had the estimators too, until they were removed.
        lazy={"estimator": _estimator, **({"keras": keras.namespace} if graph else {})},
        shown_as="tf",
    )
    first.__dict__["_lazy"] = {**first.__dict__["_lazy"], "keras": lambda: here.keras}
    return here


def _estimator() -> Namespace:
    from sojourn.compat.legacy import estimator

    return estimator.namespace()


def estimator_modules() -> Namespace:
    """Return the old `tensorflow.python.estimator`: one namespace for all its modules' names."""
    name = "tensorflow.python.estimator"
    return Namespace(name, (_Late(_estimator), _Late(_estimator_parts)))


def devices() -> Namespace:
    """Return the old `tensorflow.python.framework.device`, whose `DeviceSpec` is mutable."""
    import tensorflow.compat.v1 as tf1

    name = "tensorflow.python.framework.device"
    return Namespace(name, (importlib.import_module(name),), {"DeviceSpec": tf1.DeviceSpec})


def _estimator_parts() -> Namespace:
    from sojourn.compat.legacy.estimator import export, inputs, tpu

    return Namespace("tensorflow.python.estimator", (export, inputs, tpu))


class _Late:
    """A module that is made on first access to one of its names."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        made = self.__dict__.setdefault("_made", self._make())
        return getattr(made, name)


def _distribute() -> Namespace:
    from sojourn.compat.legacy import distribution

    return distribution.namespace()


def _tpu() -> Namespace:
    import tensorflow.compat.v1 as tf1

    from sojourn.compat.legacy.contrib import tpu

    return Namespace("tensorflow.tpu", (tpu, tf1.tpu), shown_as="tf.tpu")


def _at(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def _nn(tf1: Any) -> Namespace:
    unrolled = {
        "rnn": tf1.nn.static_rnn,
        "state_saving_rnn": tf1.nn.static_state_saving_rnn,
        "bidirectional_rnn": tf1.nn.static_bidirectional_rnn,
    }
    kept = importlib.import_module("tensorflow.python.ops.rnn")
    return Namespace(
        "tensorflow.nn",
        (tf1.nn,),
        {
            "rnn_cell": cells.namespace(),
            "rnn_module": Namespace("tensorflow.python.ops.rnn", (kept,), unrolled),
            **unrolled,
            **oldnames.nn_adapters(tf1),
        },
        lazy={"seq2seq": module(f"{_CONTRIB}.legacy_seq2seq")},
        shown_as="tf.nn",
    )


def _train(tf1: Any) -> Namespace:
    return Namespace(
        "tensorflow.train",
        (tf1.train,),
        {"SummaryWriter": tf1.summary.FileWriter},
        shown_as="tf.train",
    )
