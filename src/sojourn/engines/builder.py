"""A model that the user's function builds, in the process where it will run."""

from __future__ import annotations

from typing import Any

from sojourn.engines import frameworks
from sojourn.engines.base import Arrays, Engine
from sojourn.engines.function import FunctionEngine, unpickle
from sojourn.errors import ModelError

tensorflow: Any = None
if "tensorflow" in frameworks():
    try:
        from sojourn.engines import tensorflow
    except ModuleNotFoundError:
        pass  # plain functions need no framework


class BuilderEngine:
    """Finds the engine for whatever the builder returns."""

    @staticmethod
    def load(arguments: dict[str, Any], arrays: Arrays) -> Engine:
        build = unpickle(arguments, arrays)
        if tensorflow is None:
            graph, built = None, build()
        else:
            graph, built = tensorflow.build(build)
        if callable(built):
            return FunctionEngine(built, arguments.get("outputs"))
        if tensorflow is None:
            raise ModelError(f"TensorFlow is not loaded here, and the builder returned {built!r}")
        return tensorflow.engine_of_built(graph, built)
