"""A model that the user's function builds, in the process where it will run.

A TensorFlow 1 builder adds ops to a graph and returns its inputs and outputs; a TensorFlow 2
builder runs eagerly and returns a Keras model, a `tf.function` or a plain function. The names in
the builder's code decide which mode is tried first. If the result belongs to the other mode, or
TensorFlow itself raises, the builder is run again in the other mode.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType
from typing import Any

from msgspec.structs import replace

from sojourn.engines import base, shortage
from sojourn.engines.base import Arrays, Engine
from sojourn.engines.function import FunctionEngine, unpickle
from sojourn.engines.hooks import DEFAULT, chosen_frameworks
from sojourn.errors import ModelError
from sojourn.kinds import KINDS, Load
from sojourn.kinds.paths import recognise

tensorflow: Any = None

# Names that only TensorFlow 1 (graph) code uses.
_GRAPH_NAMES = frozenset(
    "placeholder placeholder_with_default get_variable v1 compat variable_scope Graph "
    "global_variables_initializer get_default_graph".split()
)
_FRAMEWORKS = ("tensorflow", "keras", "tf_keras", "tf_slim")


def _load_tensorflow() -> None:
    global tensorflow
    try:
        from sojourn.engines import tensorflow
    except ModuleNotFoundError:
        pass  # plain functions need no framework


if chosen_frameworks() is None or DEFAULT in (chosen_frameworks() or ()):
    _load_tensorflow()


class BuilderEngine:
    """Finds the engine for whatever the builder returns."""

    @staticmethod
    def load(load: Load, arrays: Arrays) -> Engine:
        build = unpickle(load, arrays)
        if tensorflow is None and _wants_a_framework(build):
            _load_tensorflow()
        if tensorflow is None:
            built = build()
            if callable(built):
                return _function(built, load)
            raise ModelError(f"TensorFlow is not loaded here, and the builder returned {built!r}")
        with _keeping_what_is_loaded():
            graph, built = _build(build, load.seed)
            make = _loader_of(graph, built, load)
        del graph, built  # a model that is loaded from its files need not stay beside them
        return make()


@contextlib.contextmanager
def _keeping_what_is_loaded() -> Iterator[None]:
    """Keep SavedModels that are loaded in this block alive until the end of the block.

    Their functions hold no reference to their variables: after `tf.saved_model.load(path).f` the
    variables would be garbage-collected.
    """
    from tensorflow.python.saved_model import load as loading

    loads, kept = loading.load_partial, []

    def load(*args: Any, **options: Any) -> Any:
        kept.append(loads(*args, **options))
        return kept[-1]

    loading.load_partial = load
    try:
        yield
    finally:
        loading.load_partial = loads


def _build(build: Callable[[], Any], seed: int | None) -> tuple[Any, Any]:
    """Run the builder; return the graph it ran in (None if eager) and what it returned."""
    graph_first = _names_in(build) & _GRAPH_NAMES
    modes = (_in_graph, _eagerly) if graph_first else (_eagerly, _in_graph)
    try:
        graph, built, belongs = modes[0](build, seed)
    except Exception as error:
        if not _is_frameworks(error) or shortage.is_shortage(error):
            raise
        try:
            graph, built, belongs = modes[1](build, seed)
        except Exception as second:
            # The first mode is the likelier one: raise its error, unless only the mode caused it.
            raise (second if "eager" in str(error) else error) from None
        return graph, built
    if not belongs:
        graph, built, _ = modes[1](build, seed)
    return graph, built


def _in_graph(build: Callable[[], Any], seed: int | None) -> tuple[Any, Any, bool]:
    graph, built = tensorflow.build(build, seed)
    from sojourn.engines import tracing

    # A function made in this mode may use tensors that only exist in this graph.
    eager = tracing.is_traceable(built) or (callable(built) and graph.get_operations())
    return graph, built, not eager


def _eagerly(build: Callable[[], Any], seed: int | None) -> tuple[Any, Any, bool]:
    from sojourn.engines import seeding

    if seed is not None:
        seeding.seed_process(seed)  # again: the run in the other mode may have drawn numbers
    built = build()
    return None, built, not isinstance(built, tuple)


def _loader_of(graph: Any, built: Any, load: Load) -> Callable[[], Engine]:
    """Return a function that makes the engine for whatever the builder returned."""
    from sojourn.engines import tracing

    signatures = getattr(built, "signatures", None)
    if isinstance(signatures, Mapping) and not callable(built):
        KINDS["loaded"].refuse_what_is_ignored(load)
        built = _signature(signatures, load.signature)
        load = replace(load, signature=None)
    if tracing.is_traceable(built):
        KINDS["packed"].refuse_what_is_ignored(load)
        return tracing.PackedEngine.of(built, load)
    if tensorflow.is_graph(built):
        KINDS["graph"].refuse_what_is_ignored(load)
        return partial(tensorflow.engine_of_graph, built, load)
    if isinstance(built, str | os.PathLike):
        found = recognise(os.path.abspath(os.fspath(built))).model()
        found.kind.refuse_what_is_ignored(load)
        return partial(base.load_model, replace(load, kind=found.kind.name, path=found.path), ())
    if callable(built):
        return partial(_function, built, load)
    KINDS["built"].refuse_what_is_ignored(load)
    return partial(tensorflow.engine_of_built, graph, built, load)


def _function(built: Callable[..., Any], load: Load) -> Engine:
    KINDS["function"].refuse_what_is_ignored(load)
    return FunctionEngine(built, load.outputs)


def _signature(signatures: Mapping[str, Any], wanted: str | None) -> Any:
    name = wanted or "serving_default"
    if wanted is None and len(signatures) == 1:
        name = next(iter(signatures))
    if name not in signatures:
        raise ModelError(f"the model has no signature {name!r}; there are {list(signatures)}")
    return signatures[name]


def _wants_a_framework(build: Any) -> bool:
    """Whether the builder names a framework that is not preloaded, or its module imported it."""
    return "tensorflow" in sys.modules or not _names_in(build).isdisjoint(_FRAMEWORKS)


def _names_in(function: Any) -> set[str]:
    """Return every name that the code of a function and of its inner functions mentions."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    names: set[str] = set()
    pending = [code] if isinstance(code, CodeType) else []
    while pending:
        code = pending.pop()
        names.update(code.co_names)
        pending += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return names


def _is_frameworks(error: BaseException) -> bool:
    """Whether the error was raised inside a framework, perhaps because of the mode."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return str(module).partition(".")[0] in _FRAMEWORKS and "tensorflow" in sys.modules
