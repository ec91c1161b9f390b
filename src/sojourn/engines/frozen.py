"""A frozen graph in a `.pb` or `.pbtxt` file, with weights as constants."""

from __future__ import annotations

from google.protobuf import text_format

from sojourn.engines import seeding
from sojourn.engines.base import Arrays
from sojourn.engines.savedmodel import refusals
from sojourn.engines.tensorflow import GraphEngine, engine_of_graph_def, v1
from sojourn.errors import ModelError
from sojourn.kinds import Load


class FrozenEngine:
    """Reads the file and returns an ordinary graph engine."""

    @staticmethod
    def load(load: Load, arrays: Arrays) -> GraphEngine:
        path = load.path
        graph_def = v1.GraphDef()
        with refusals(f"{path} is not a frozen graph"):
            with open(path, "rb") as file:
                content = file.read()
            if path.endswith("txt"):
                text_format.Parse(content.decode(), graph_def)
            else:
                graph_def.ParseFromString(content)
        del content
        if not graph_def.node:
            raise ModelError(f"{path} is not a frozen graph: it has no nodes")
        if load.seed is not None:
            seeding.seed_graph_def(graph_def, load.seed)
        with refusals(f"the graph in {path} cannot be imported"):
            return engine_of_graph_def(graph_def, load)
