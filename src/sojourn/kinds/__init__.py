"""The table of all kinds of models, with one record for each kind.

`open`, `inspect`, the sandbox and the worker read the same record, so that they cannot disagree
about a model. A new kind needs a record here and a module that loads it, and if `inspect` is to
show it, a module that reads it without loading it. The table itself imports nothing: it has the
names of loaders and readers, which are imported when they are needed.
"""

from __future__ import annotations

from sojourn.kinds import marks
from sojourn.kinds.load import Load, Packed
from sojourn.kinds.record import Kind

_GRAPH = ("inputs", "outputs", "initializer")
_DEFAULT = "tensorflow"

_ALL = (
    Kind(
        "savedmodel",
        "a SavedModel",
        loader="sojourn.engines.savedmodel:SavedModelEngine",
        reader="sojourn.probes.model_files.graph_files:read_saved_model",
        options=("signature", "tags"),
        files="sojourn.kinds.belongings:whole_folder",
    ),
    Kind(
        "keras",
        "a Keras file",
        loader="sojourn.engines.keras_model:KerasFileEngine",
        reader="sojourn.probes.model_files.keras_files:read_keras_file",
        options=("inputs",),
        takes_spares=False,  # a child process reads the file; a child of a spare worker would hang
        suffixes=(".keras", ".h5", ".hdf5"),
        begins=marks.as_keras_file,
        needs_suffix=True,
    ),
    Kind(
        "weights",
        "a file of Keras weights",
        reader="sojourn.probes.model_files.keras_files:read_keras_file",
        suffixes=(".weights.h5",),
        instead="holds weights but no model; open a function that builds the model and loads "
        "them into it",
    ),
    Kind(
        "onnx",
        "an ONNX model",
        loader="sojourn.engines.onnx_model:OnnxEngine",
        reader="sojourn.probes.model_files.onnx_files:read_onnx",
        framework="onnxruntime",
        extra="onnx",
        uses_gpu=False,
        suffixes=(".onnx",),
        begins=marks.as_onnx,
        name_decides=True,
        files="sojourn.probes.model_files.onnx_files:files_of",
    ),
    Kind(
        "tflite",
        "a TensorFlow Lite model",
        loader="sojourn.engines.litert_model:LiteRtEngine",
        reader="sojourn.probes.model_files.tflite_files:read_tflite",
        options=("signature",),
        framework="ai_edge_litert",
        extra="litert",
        uses_gpu=False,
        suffixes=(".tflite",),
        begins=marks.as_tflite,
    ),
    Kind(
        "frozen",
        "a frozen graph",
        loader="sojourn.engines.frozen:FrozenEngine",
        reader="sojourn.probes.model_files.graph_files:read_frozen",
        options=_GRAPH,
        suffixes=(".pb", ".pbtxt"),
        begins=marks.as_graph,
        name_decides=True,
    ),
    Kind(
        "metagraph",
        "a checkpoint with its meta graph",
        loader="sojourn.engines.metagraph:MetaGraphEngine",
        reader="sojourn.probes.model_files.graph_files:read_checkpoint",
        options=("signature", "inputs", "outputs"),
        files="sojourn.kinds.belongings:of_checkpoint",
    ),
    Kind(
        "variables",
        "a checkpoint without its meta graph",
        reader="sojourn.probes.model_files.graph_files:read_checkpoint",
        instead="is a checkpoint without its meta graph (its .meta file is missing): it holds "
        "variables but no model; open the model and restore it",
    ),
    Kind(
        "state",
        "saved state",
        reader="sojourn.probes.model_files.graph_files:read_checkpoint",
        instead="is saved state, not a model: open the model and restore it",
    ),
    # Models that are not files: they come from the caller or from a builder.
    Kind("graph", "a graph", loader="sojourn.engines.tensorflow:GraphEngine", options=_GRAPH),
    Kind(
        "packed",
        "a Keras model or tf.function",
        loader="sojourn.engines.tracing:PackedEngine",
        options=("inputs",),
    ),
    Kind(
        "builder",
        "a builder",
        loader="sojourn.engines.builder:BuilderEngine",
        options=("signature", "tags", *_GRAPH),  # which of these apply depends on what it returns
    ),
    Kind("built", "a builder that returns inputs and outputs", options=("initializer",)),
    Kind("loaded", "a loaded SavedModel", options=("signature", "inputs")),
    Kind("function", "a plain function", options=("outputs",)),
    # One model on two engines in one worker.
    Kind(
        "by_rows",
        "a model on two engines",
        loader="sojourn.engines.combined:ByRowsEngine",
        takes_spares=False,
        uses_gpu=False,
    ),
    Kind(
        "shadowed",
        "a model that is compared with TensorFlow",
        loader="sojourn.engines.combined:ShadowedEngine",
        takes_spares=False,
        uses_gpu=False,
    ),
    Kind("calling", "an isolated call", loader="sojourn.engines.calling:CallingEngine"),
    Kind("session", "a drop-in session", loader="sojourn.engines.remote_session:SessionEngine"),
)

KINDS = {kind.name: kind for kind in _ALL}


def framework_of(load: Load) -> str:
    """Return the framework that its worker needs: TensorFlow if any part of the model needs it."""
    if not load.parts:
        return KINDS[load.kind].framework
    found = [framework_of(part) for part in load.parts]
    return _DEFAULT if _DEFAULT in found else found[0]


def engines_of(load: Load) -> str:
    """Return the names of the engines that compute, without one that only serves for comparison."""
    parts = load.parts or ()
    shown = parts[1:] if load.kind == "shadowed" else parts
    return ", ".join(engines_of(part) for part in shown) or KINDS[load.kind].engine


__all__ = ["KINDS", "Kind", "Load", "Packed", "engines_of", "framework_of"]
