"""Keras models: read from `.keras` and `.h5` files, and traced for inference."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from typing import Any

import msgspec
import tensorflow as tf
from tensorflow.python.trackable.resource import CapturableResource

from sojourn.engines import disposable, tracing
from sojourn.engines.base import Arrays, Engine
from sojourn.engines.distrust import refuse_code_in_hdf5
from sojourn.errors import ModelError
from sojourn.kinds import Load, Packed


class KerasFileEngine:
    """Reads the file with Keras, and returns an engine that runs without Keras."""

    @staticmethod
    def load(load: Load, arrays: Arrays) -> Engine:
        path = load.path
        if load.untrusted:
            refuse_code_in_hdf5(path)
        if not disposable.is_possible():
            return tracing.PackedEngine.of(_model_of(path), load)()

        def pack() -> disposable.Result:
            packed, files = tracing.pack(_model_of(path), load.inputs)
            return msgspec.to_builtins(packed), files

        facts, files = disposable.do(pack, f"loading {path}")
        packed = msgspec.convert(facts, Packed)
        return tracing.PackedEngine.load(msgspec.structs.replace(load, packed=packed), files)


def _model_of(path: str) -> Any:
    if path.endswith(".keras") and not zipfile.is_zipfile(path):
        raise ModelError(f"{path} is truncated or damaged: it is not a whole .keras archive")
    try:
        # Safe mode, Keras' default today, does not run code in a file.
        return tf.keras.models.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        # A damaged archive or an unknown layer makes Keras, zipfile or h5py raise many types.
        raise ModelError(f"Keras cannot load {path}: {_reason(error, path)}") from error


def _reason(error: Exception, path: str) -> str:
    """Return the reason in Keras' error, without the configuration that it prints before.

    Keras advises arguments of its `load_model`, so the user must call that in a function of theirs.
    """
    words = str(error).strip().rpartition("Exception encountered:")[2].strip()
    if found := _UNKNOWN_CLASS.match(words):
        argument = f"custom_objects={{{found[2]!r}: {found[2]}}}"
        words = f"{found[1]}. To load it with that class,"
    elif "safe_mode" in words:
        argument = "safe_mode=False"
        words = f"{words.partition(' If you trust')[0]} If you trust it,"
    else:
        return "\n".join(words.splitlines()[:3]) or type(error).__name__
    return f"{words} open a function: lambda: keras.models.load_model({path!r}, {argument})"


_UNKNOWN_CLASS = re.compile(r"((?:Could not locate class|Unknown layer:?) '(?:\w+>)?(\w+)')")


def traced(model: Any, specs: Mapping[str, Any]) -> tracing.Flat:
    """Return the model's inference call as a function of named tensors."""
    structure = _inputs_of(model)
    if structure is None:
        if not specs:
            specs = _built_specs(model)
        return tracing.Flat(_caller(model, list(specs), None), specs)
    flat = tf.nest.flatten(structure)
    names = _names(structure, flat, "input")
    found = {
        name: tf.TensorSpec(tensor.shape, tf.as_dtype(tensor.dtype))
        for name, tensor in zip(names, flat, strict=True)
    }
    caller = _caller(model, names, structure)
    return _with_any_rows(model, caller, found) or tracing.Flat(caller, found)


def _with_any_rows(model: Any, caller: Any, specs: Mapping[str, Any]) -> tracing.Flat | None:
    """Return the model traced for any number of rows, None if that fails.

    Keras itself accepts any number of rows, whatever the model was built with: a model without an
    `Input` has the number of rows of its first data.
    """
    shapes = {name: spec.shape.as_list() for name, spec in specs.items()}
    is_fixed = any(shape and shape[0] is not None for shape in shapes.values())
    if not is_fixed or any(getattr(layer, "stateful", False) for layer in _layers(model)):
        return None
    free = {
        name: tf.TensorSpec([None, *shapes[name][1:]] if shapes[name] else [], spec.dtype)
        for name, spec in specs.items()
    }
    try:
        flat = tracing.Flat(caller, free)
        outputs = flat.traced.get_concrete_function().structured_outputs.values()
    except Exception:  # the code of a layer may need a fixed number of rows
        return None
    # If an output has another number of rows, the rows are not independent of each other.
    return flat if all(each.shape.rank and each.shape[0] is None for each in outputs) else None


def tables_of(model: Any) -> list[Any]:
    """Return the lookup tables of a model's layers."""
    return [
        thing
        for layer in _layers(model)
        for thing in vars(layer).values()
        if isinstance(thing, CapturableResource)
    ]


def _caller(model: Any, names: list[str], structure: Any) -> Any:
    output_names = _output_names(model)

    def call(**given: Any) -> dict[str, Any]:
        values = [given[name] for name in names]
        if structure is not None:
            inputs = tf.nest.pack_sequence_as(structure, values)
        else:
            inputs = values[0] if len(values) == 1 else values
        result = model(inputs, training=False)
        flat = tf.nest.flatten(result)
        if output_names is not None and len(output_names) == len(flat):
            return dict(zip(output_names, flat, strict=True))
        return tracing.named_outputs(result)

    return call


def _inputs_of(model: Any) -> Any:
    """Return the symbolic inputs in the model's own structure; None if it has none."""
    try:
        return model.input
    except (AttributeError, RuntimeError, ValueError):
        inputs = getattr(model, "inputs", None)
        if not inputs:
            return None
        return inputs[0] if len(inputs) == 1 else list(inputs)


def _output_names(model: Any) -> list[str] | None:
    try:
        structure = model.output
    except (AttributeError, RuntimeError, ValueError):
        outputs = getattr(model, "outputs", None)
        if not outputs:
            return None
        structure = list(outputs)
    return _names(structure, tf.nest.flatten(structure), "output")


def _names(structure: Any, flat: list[Any], role: str) -> list[str]:
    """Return a name for each tensor: its key in a dict, the user's name, or the layer's name."""
    if isinstance(structure, Mapping) and len(structure) == len(flat):
        return [str(key) for key in sorted(structure)]  # as tf.nest flattens it
    names: list[str] = []
    for i, tensor in enumerate(flat):
        name = str(getattr(tensor, "name", "") or f"{role}_{i}").partition("/")[0].partition(":")[0]
        history = getattr(tensor, "_keras_history", None)
        if role == "output" or name.startswith("keras_tensor"):
            layer = getattr(history, "operation", None) or getattr(history, "layer", None)
            name = str(getattr(layer, "name", name))
        names.append(name if name not in names else f"{name}_{i}")
    return names


def _built_specs(model: Any) -> dict[str, Any]:
    """Return the specs that a subclassed model, which has no symbolic inputs, was built for."""
    shapes = getattr(model, "_build_shapes_dict", None)
    if not shapes:
        raise ModelError(
            f"the Keras model {model.name!r} does not say what it takes: call it once on data, or "
            'give inputs={name: sojourn.TensorSpec("float32", (None, 784))}'
        )
    specs = {}
    for name, shape in shapes.items():
        if not isinstance(shape, tuple | list) or any(isinstance(d, tuple | list) for d in shape):
            raise ModelError(
                f"the Keras model {model.name!r} takes nested inputs; describe them by inputs="
            )
        key = "input" if len(shapes) == 1 else str(name).removesuffix("_shape")
        specs[key] = tf.TensorSpec([None, *shape[1:]], tf.as_dtype(model.input_dtype))
    return specs


def _layers(model: Any) -> list[Any]:
    flatten = getattr(model, "_flatten_layers", None)
    return list(flatten()) if flatten is not None else []
