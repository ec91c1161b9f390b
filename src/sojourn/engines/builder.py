"""A model that the user's function builds, in the process where it will run."""

from __future__ import annotations

import importlib.util
from typing import Any

from sojourn.engines.base import Arrays, Engine
from sojourn.engines.function import FunctionEngine, unpickle
from sojourn.errors import ModelError


class BuilderEngine:
    """Finds the engine for whatever the builder returns."""

    @staticmethod
    def load(arguments: dict[str, Any], arrays: Arrays) -> Engine:
        build = unpickle(arguments, arrays)
        if importlib.util.find_spec("tensorflow") is None:
            graph, built = None, build()
        else:
            from sojourn.engines import tensorflow

            graph, built = tensorflow.build(build)
        if callable(built):
            return FunctionEngine(built, arguments.get("outputs"))
        if graph is None:
            raise ModelError(f"TensorFlow is not installed, and the builder returned {built!r}")
        return tensorflow.engine_of_built(graph, built)
