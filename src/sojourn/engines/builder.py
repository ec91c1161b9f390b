"""A model that the user's function builds, in the process where it will run.

A builder in the manner of TensorFlow 1 adds ops to a graph and returns its inputs and outputs; one
in the manner of TensorFlow 2 runs eagerly and returns a Keras model, a `tf.function` or a plain
function. Which it is shows in the names its code uses, and otherwise by trying: if what comes of
one mode belongs to the other (or TensorFlow itself refuses), the builder is run in the other.
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

# Names that only code for graphs uses.
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
    """Have a SavedModel that is loaded in this block live as long as the block.

    Its functions do not keep its variables: of `tf.saved_model.load(path).f` they would be gone.
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
    """What the builder returned, and the graph it was run in, if it was one for graphs."""
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
            # The first attempt is the likelier one, unless it failed for its mode alone.
            raise (second if "eager" in str(error) else error) from None
        return graph, built
    if not belongs:
        graph, built, _ = modes[1](build, seed)
    return graph, built


def _in_graph(build: Callable[[], Any], seed: int | None) -> tuple[Any, Any, bool]:
    graph, built = tensorflow.build(build, seed)
    from sojourn.engines import tracing

    # A function made here may use tensors that exist in this graph only.
    eager = tracing.is_traceable(built) or (callable(built) and graph.get_operations())
    return graph, built, not eager


def _eagerly(build: Callable[[], Any], seed: int | None) -> tuple[Any, Any, bool]:
    from sojourn.engines import seeding

    if seed is not None:
        seeding.seed_process(seed)  # again: the other mode may have drawn numbers
    built = build()
    return None, built, not isinstance(built, tuple)


def _loader_of(graph: Any, built: Any, load: Load) -> Callable[[], Engine]:
    """What makes the engine of whatever was built."""
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
    """Whether it, or the module that it came with, has to do with one that is not preloaded."""
    return "tensorflow" in sys.modules or not _names_in(build).isdisjoint(_FRAMEWORKS)


def _names_in(function: Any) -> set[str]:
    """Every name that the code of a function mentions, and that of the functions inside it."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    names: set[str] = set()
    pending = [code] if isinstance(code, CodeType) else []
    while pending:
        code = pending.pop()
        names.update(code.co_names)
        pending += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return names


def _is_frameworks(error: BaseException) -> bool:
    """Whether it was raised inside a framework, perhaps because of the mode."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return str(module).partition(".")[0] in _FRAMEWORKS and "tensorflow" in sys.modules
