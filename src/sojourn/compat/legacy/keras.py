"""`tf.keras` for a program in graph mode.

Keras 3 works eagerly and has no sessions. TensorFlow still contains the core of the Keras of its
time (layers, models, losses, optimizers, the backend with its session). The parts that do not
depend on graphs (data sets, preprocessing, `to_categorical`) come from Keras 3.
"""

from __future__ import annotations

import importlib
import inspect
import types
from typing import Any

from sojourn.compat.legacy.namespaces import Namespace

_KEPT = "tensorflow.python.keras"
_PREPROCESSING = "keras.preprocessing"
_VERSION = "2.2.4-tf"  # the last version in TensorFlow 1
_NEW_ONLY = ("datasets", "applications")


def namespace() -> Namespace:
    """Return `tf.keras` for graph mode."""
    kept = importlib.import_module(_KEPT)
    importlib.import_module(f"{_KEPT}.callbacks")
    _let_weights_be_checkpoints(kept)
    if not hasattr(kept, "__version__"):
        # Keras's own saving code reads it.
        setattr(kept, "__version__", _VERSION)  # noqa: B010
    return Namespace(
        "tensorflow.keras",
        (kept,),
        {"__version__": _VERSION, "layers": _layers()},
        lazy={
            "optimizers": _optimizers,
            "utils": _utils,
            "backend": _backend,
            "estimator": _estimator,
            "preprocessing": _preprocessing,
            **{name: _new(name) for name in _NEW_ONLY},
        },
        shown_as="tf.keras",
    )


def _let_weights_be_checkpoints(kept: Any) -> None:
    """Repair `save_weights` and `load_weights` without a suffix, which later changes broke."""
    checkpoints = importlib.import_module("tensorflow.python.checkpoint.checkpoint")
    checkpoints.register_session_provider(kept.backend.get_session)
    model = importlib.import_module(f"{_KEPT}.engine.functional").Functional
    find = model._lookup_dependency
    if len(inspect.signature(find).parameters) == 2:
        model._lookup_dependency = lambda self, name, cached=None: find(self, name)


def _new(name: str) -> Any:
    return lambda: importlib.import_module(f"keras.{name}")


def _preprocessing() -> Namespace:
    """Return Keras 3's `preprocessing` with its hidden parts: the generators and the tokenizer."""
    here = Namespace("tensorflow.keras.preprocessing", (importlib.import_module(_PREPROCESSING),))
    for name in ("image", "sequence", "text"):
        parts = [importlib.import_module(f"keras.src.legacy.preprocessing.{name}")]
        if name != "text":
            parts.insert(0, importlib.import_module(f"{_PREPROCESSING}.{name}"))
        setattr(here, name, Namespace(f"tensorflow.{_PREPROCESSING}.{name}", parts))
    return here


def _backend() -> Namespace:
    backend = importlib.import_module(f"{_KEPT}.backend")
    here = Namespace("tensorflow.keras.backend", (backend,), shown_as="tf.keras.backend")
    here.tensorflow_backend = here  # its name in Keras before Keras was part of TensorFlow
    return here


def _estimator() -> Any:
    return importlib.import_module("sojourn.compat.legacy.estimator.keras_models")


def _layers() -> Namespace:
    from sojourn.compat.legacy.keras_layers import MISSING
    from sojourn.compat.legacy.layers import Normalizes

    kept = importlib.import_module(f"{_KEPT}.layers")
    kept_parts = importlib.import_module(_KEPT)  # initializers, regularizers, constraints
    recurrent = importlib.import_module(f"{_KEPT}.layers.recurrent")
    backend = importlib.import_module(f"{_KEPT}.backend")

    class BatchNormalization(Normalizes, kept.Layer):  # type: ignore[misc, name-defined]
        """The layer of `tf.keras`: Keras runs its updates; the learning phase sets its mode."""

        def __init__(self, *args: Any, **named: Any) -> None:
            # A loaded model gives initializers, regularizers and constraints as descriptions,
            # not as objects.
            for name, value in named.items():
                module = getattr(kept_parts, name.rpartition("_")[2] + "s", None)
                if value is not None and module is not None:
                    named[name] = module.get(value)
            super().__init__(*args, **named)

        def call(self, inputs: Any, training: Any = None) -> Any:
            return super().call(inputs, backend.learning_phase() if training is None else training)

        def get_config(self) -> Any:
            names = ("axis", "momentum", "epsilon", "center", "scale")
            return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    ours = {
        "CuDNNLSTM": _plain(recurrent.LSTM),
        "CuDNNGRU": _plain(recurrent.GRU),
        "BatchNormalization": BatchNormalization,
        **{layer.__name__: layer for layer in MISSING},
    }
    # The modules in which a loaded model finds its layers, after the program's custom objects.
    known: Any = importlib.import_module(f"{_KEPT}.layers.serialization")
    known.ALL_MODULES = (*known.ALL_MODULES, types.SimpleNamespace(**ours))
    here = Namespace(
        "tensorflow.keras.layers",
        (kept,),
        {
            "LSTM": recurrent.LSTM,
            "GRU": recurrent.GRU,
            "LSTMCell": recurrent.LSTMCell,
            "GRUCell": recurrent.GRUCell,
            **ours,
        },
        shown_as="tf.keras.layers",
    )
    here.normalization = here
    return here


def _plain(layer: Any) -> Any:
    """Return a layer that computes as the cuDNN kernels did: sigmoid gates, no hard sigmoids."""

    def __init__(self: Any, units: int, **named: Any) -> None:
        named.setdefault("recurrent_activation", "sigmoid")
        if layer.__name__ == "GRU":
            named.setdefault("reset_after", True)
        layer.__init__(self, units, **named)

    # Keras chooses by the class name how to convert weights from a file: cuDNN's are transposed.
    return type(layer.__name__, (layer,), {"__init__": __init__})


def _optimizers() -> Namespace:
    kept = importlib.import_module(f"{_KEPT}.optimizers")
    first = importlib.import_module(f"{_KEPT}.optimizer_v1")
    names = ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")
    return Namespace(
        "tensorflow.keras.optimizers",
        (kept,),
        {name: getattr(first, name) for name in names},
        shown_as="tf.keras.optimizers",
    )


def _utils() -> Namespace:
    modules = [
        importlib.import_module(f"{_KEPT}.utils.{name}")
        for name in ("generic_utils", "data_utils", "layer_utils", "io_utils")
    ]
    new = importlib.import_module("keras.utils")
    kept = importlib.import_module(f"{_KEPT}.utils")
    here = Namespace("tensorflow.keras.utils", (kept, *modules, new), shown_as="tf.keras.utils")
    here.np_utils = here
    return here
