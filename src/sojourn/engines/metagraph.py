"""A TensorFlow 1 checkpoint with its meta graph: `model.ckpt-100.meta` and its data files."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

from sojourn.engines import seeding
from sojourn.engines.base import Arrays
from sojourn.engines.savedmodel import FiledEngine, chosen_signature, refusals, tensors_of
from sojourn.engines.tensorflow import named, placeholders, terminal_tensors, v1
from sojourn.kinds import Load


class MetaGraphEngine(FiledEngine):
    """The graph of a meta file with the variables of its checkpoint."""

    _saver: Any = None

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> MetaGraphEngine:
        """Load the checkpoint with the prefix `path`, as `Saver.save` returned it."""
        prefix = load.path
        # Read the binary form only, as inspection does. TensorFlow's own reader falls back to the
        # text format, so that it could see another graph than inspection in the same file.
        with refusals(f"{prefix}.meta is not a meta graph"), open(prefix + ".meta", "rb") as file:
            meta_graph = MetaGraphDef.FromString(file.read())
        if load.seed is not None:
            seeding.seed_graph_def(meta_graph.graph_def, load.seed)
        graph = v1.Graph()
        with graph.as_default(), refusals(f"the graph in {prefix}.meta cannot be imported"):
            saver = v1.train.import_meta_graph(meta_graph)
            saver = saver or v1.train.Saver()
        inputs = named(graph, load.inputs)
        outputs = named(graph, load.outputs)
        if meta_graph.signature_def and not (inputs and outputs):
            chosen = chosen_signature(meta_graph.signature_def, load.signature, prefix)
            inputs = inputs or tensors_of(graph, chosen.inputs)
            outputs = outputs or tensors_of(graph, chosen.outputs)
        inputs = inputs or _without_saver(placeholders(graph))
        outputs = outputs or _without_saver(terminal_tensors(graph))
        engine = cls(graph, inputs, outputs, None, load)
        engine._saver, engine._path = saver, prefix
        with refusals(f"the variables of {prefix} cannot be loaded"):
            engine._fill()
        return engine

    def _fill(self) -> None:
        with self.graph.as_default():
            self._saver.restore(self.session, self._path)
        tables = self.graph.get_collection(v1.GraphKeys.TABLE_INITIALIZERS)
        if tables:
            self.session.run(tables)


def _without_saver(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors without those that the saver added to the graph."""
    return {
        name: tensor
        for name, tensor in tensors.items()
        if not name.startswith("save/") and not name.startswith("save_")
    }
