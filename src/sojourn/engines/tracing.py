"""Turn live Keras models and `tf.function`s into SavedModels that are never on a disk.

The call is traced once and written, with the variables and tables it uses, to TensorFlow's
in-memory file system. The caller's process sends these files to the worker, which loads and removes
them. So a live model needs neither files nor its own Python code in the worker.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from msgspec.structs import replace
from tensorflow.python.trackable.resource import CapturableResource

from sojourn.engines.base import Arrays
from sojourn.engines.savedmodel import SavedModelEngine, first_lines
from sojourn.errors import ModelError
from sojourn.kinds import Load, Packed
from sojourn.values import TensorSpec

_counter = itertools.count(1)
_PIECE = 4 * 2**20
_T = tf.types.experimental
Specs = Mapping[str, Any] | None


def is_traceable(model: Any) -> bool:
    """Whether this is a Keras model, a `tf.function` or a concrete function."""
    return is_keras_model(model) or isinstance(model, _T.GenericFunction | _T.ConcreteFunction)


def is_keras_model(model: Any) -> bool:
    """Whether this is a model of Keras 3 or of the older tf_keras."""
    return any(
        kind.__name__ == "Model" and kind.__module__.partition(".")[0] in ("keras", "tf_keras")
        for kind in type(model).__mro__
    )


class PackedEngine(SavedModelEngine):
    """A model that was sent as the files of a SavedModel."""

    keeps_start = True

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> SavedModelEngine:
        folder = _new_folder()
        try:
            assert load.packed is not None
            for name, content in zip(load.packed.files, arrays, strict=True):
                tf.io.gfile.makedirs(os.path.dirname(f"{folder}/{name}"))
                with tf.io.gfile.GFile(f"{folder}/{name}", "wb") as file:
                    file.write(content.tobytes())
            return cls._from(folder, load, load.packed)
        finally:
            _remove(folder)

    @classmethod
    def of(cls, model: Any, load: Load) -> Callable[[], SavedModelEngine]:
        """Write the files of a model in this process, and return a function that loads them.

        Call that function once, when nothing refers to the model any more: its weights are then
        only in the files.
        """
        folder = _new_folder()
        try:
            packed = _write(model, folder, load.inputs)
        except BaseException:
            _remove(folder)
            raise

        def make() -> SavedModelEngine:
            gc.collect()
            try:
                return cls._from(folder, load, packed)
            finally:
                _remove(folder)

        return make

    @classmethod
    def _from(cls, folder: str, load: Load, packed: Packed) -> SavedModelEngine:
        with _without_news():
            engine = super().load(replace(load, path=folder, signature=None, tags=None), ())
        engine.rename(packed.inputs, packed.outputs)
        return engine

    def _reset_variables(self) -> None:
        # The model's files are removed. If no snapshot exists, no value has changed yet.
        if self.variables.has_snapshot:
            self.variables.go_back()


def pack(model: Any, inputs: Specs) -> tuple[Packed, list[np.ndarray]]:
    """Return what a worker needs to load a live model, and the contents of the files."""
    folder = _new_folder()
    try:
        packed = _write(model, folder, inputs)
        files = [
            os.path.join(where, file)[len(folder) + 1 :]
            for where, _, found in tf.io.gfile.walk(folder)
            for file in found
        ]
        arrays = [_content(f"{folder}/{file}") for file in files]
        return replace(packed, files=files), arrays
    finally:
        _remove(folder)


def _write(model: Any, folder: str, inputs: Specs) -> Packed:
    """Write the files; return the names of inputs and outputs, by their names in the files."""
    try:
        function, tables = _traced(model, inputs)
        module = tf.Module()
        module.serve = function.traced
        concrete = function.traced.get_concrete_function()
        # TensorFlow saves only resources that a module owns, and a function owns none.
        module.owned = [*concrete.variables, *tables, *_owners(concrete)]
        with _without_news():
            tf.saved_model.save(module, folder, signatures=concrete)
        return Packed([], function.inputs, function.outputs)
    except ModelError:
        raise
    except (ValueError, TypeError, AttributeError, AssertionError, tf.errors.OpError) as error:
        raise ModelError(f"{_named(model)} cannot be traced: {first_lines(error)}") from error


def _traced(model: Any, inputs: Specs) -> tuple[Flat, list[Any]]:
    """Return the model as a function of flat, named tensors, and the tables that it needs."""
    from sojourn.engines import keras_model

    if is_keras_model(model):
        return keras_model.traced(model, tensor_specs(inputs)), keras_model.tables_of(model)
    concrete = _concrete(model, inputs)
    positional, keywords = concrete.structured_input_signature
    specs: dict[str, Any] = {}
    for i, spec in enumerate(tf.nest.flatten((positional, keywords))):
        if isinstance(spec, tf.TensorSpec):
            name = spec.name or f"input_{i}"
            specs[name if name not in specs else f"{name}_{i}"] = spec
    names = iter(specs)
    skeleton = tf.nest.map_structure(
        lambda spec: next(names) if isinstance(spec, tf.TensorSpec) else None,
        (positional, keywords),
    )

    def call(**given: Any) -> dict[str, Any]:
        args, kwargs = tf.nest.map_structure(
            lambda name: None if name is None else given[name], skeleton
        )
        # Arguments that are not tensors were fixed at the tracing.
        kwargs = {k: v for k, v in kwargs.items() if v is not None}
        result = concrete(*[a for a in args if a is not None], **kwargs)
        return named_outputs(result)

    return Flat(call, specs), []


def _concrete(function: Any, inputs: Specs) -> Any:
    if isinstance(function, _T.ConcreteFunction):
        return function
    if inputs:
        return function.get_concrete_function(**tensor_specs(inputs))
    if getattr(function, "input_signature", None) is not None:
        return function.get_concrete_function()
    traces = list(function._list_all_concrete_functions())
    if len(traces) == 1:
        return traces[0]
    found = f"it was called in {len(traces)} ways" if traces else "it was never called"
    raise ModelError(
        f"{_named(function)} does not say what it takes, and {found}: give inputs={{name: "
        'sojourn.TensorSpec("float32", (None, 784))}, or decorate it with an input_signature'
    )


def _owners(concrete: Any) -> list[Any]:
    """Return the objects that own the tables and similar resources that a function uses.

    The function only refers to their handles. The objects must be alive, or the handles would be
    dead, so they can be found among all objects of the garbage collector.
    """
    variables = {id(variable.handle) for variable in concrete.variables}
    handles = {
        id(external)
        for external, _ in concrete.graph.captures
        if external.dtype == tf.resource and id(external) not in variables
    }
    if not handles:
        return []
    return [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, CapturableResource) and id(thing._resource_handle) in handles
    ]


class Flat:
    """A `tf.function` of tensors in order, and the users' names of its inputs and outputs.

    In the files they are numbered, because TensorFlow does not accept all names or keep the order.
    """

    def __init__(self, call: Callable[..., dict[str, Any]], specs: Mapping[str, Any]) -> None:
        self.inputs = {f"i{n:04}": name for n, name in enumerate(specs)}
        self.outputs: dict[str, str] = {}

        def flat(*values: Any) -> dict[str, Any]:
            result = call(**dict(zip(specs, values, strict=True)))
            self.outputs = {f"o{n:04}": name for n, name in enumerate(result)}
            return dict(zip(self.outputs, map(tf.identity, result.values()), strict=True))

        signature = [
            tf.TensorSpec(spec.shape, spec.dtype, name=name)
            for name, spec in zip(self.inputs, specs.values(), strict=True)
        ]
        self.traced = tf.function(flat, input_signature=signature, autograph=False)


def named_outputs(result: Any) -> dict[str, Any]:
    """Return the result of a function as tensors by name."""
    if isinstance(result, Mapping):
        found: dict[str, Any] = {}
        for key, value in result.items():
            inner = named_outputs(value) if tf.nest.is_nested(value) else {"": value}
            found.update({f"{key}/{k}".rstrip("/"): v for k, v in inner.items()})
        return found
    items = tf.nest.flatten(result)
    names = ["output"] if len(items) == 1 else [f"output_{i}" for i in range(len(items))]
    return dict(zip(names, items, strict=True))


def tensor_specs(inputs: Specs) -> dict[str, Any]:
    """Convert the user's specs of the inputs to TensorFlow's."""
    specs = {}
    for name, spec in (inputs or {}).items():
        if not isinstance(spec, TensorSpec | tf.TensorSpec):
            raise ModelError(
                f"input {name!r} of a model like this must be a TensorSpec, not {spec!r}"
            )
        specs[name] = tf.TensorSpec(spec.shape, tf.as_dtype(spec.dtype), name=name)
    return specs


def _named(model: Any) -> str:
    name = getattr(model, "__name__", None) or getattr(model, "name", None) or repr(model)
    kind = "the Keras model" if is_keras_model(model) else "the tf.function"
    return f"{kind} {name!r}"


@contextlib.contextmanager
def _without_news() -> Iterator[None]:
    """Keep TensorFlow's messages about files out of the user's log: these are only in memory."""
    thread = threading.get_ident()

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or record.thread != thread

    loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]
    for logger in loggers:
        logger.addFilter(is_wanted)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_wanted)


def _new_folder() -> str:
    return f"ram://sojourn-{os.getpid()}-{next(_counter)}"


def _remove(folder: str) -> None:
    try:
        tf.io.gfile.rmtree(folder)
    except tf.errors.NotFoundError:
        pass  # writing failed before the first file


def _content(path: str) -> np.ndarray:
    with tf.io.gfile.GFile(path, "rb") as file:
        content = np.empty(file.size(), np.uint8)
        # Read in pieces, because TensorFlow makes two copies of what one read returns.
        for start in range(0, content.size, _PIECE):
            piece = np.frombuffer(file.read(_PIECE), np.uint8)
            content[start : start + piece.size] = piece
        return content
