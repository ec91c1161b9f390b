"""A SavedModel of TensorFlow 1 or 2, loaded into a graph with a session.

It is not loaded by `tf.saved_model.load`: calling a signature that way costs hundreds of
microseconds, where a compiled step on the same graph costs about ten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.text_format import ParseError
from tensorflow.python.framework import errors_impl
from tensorflow.python.saved_model import loader_impl

from sojourn.engines import seeding
from sojourn.engines.base import Arrays, Operation
from sojourn.engines.recorded import recorded_feeds
from sojourn.engines.tensorflow import GraphEngine, v1
from sojourn.errors import CheckpointError, ModelError
from sojourn.kinds import Load

_DEFAULT = "serving_default"
_HIDDEN = ("__saved_model_init_op", "__saved_model_train_op")


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn errors from reading files and importing graphs into ModelError."""
    try:
        yield
    except (ValueError, TypeError, KeyError, OSError, RuntimeError) as error:
        raise ModelError(f"{what}: {first_lines(error)}") from error
    except (errors_impl.OpError, DecodeError, ParseError, EOFError) as error:
        raise ModelError(f"{what}: {first_lines(error)}") from error


def first_lines(error: BaseException) -> str:
    """Return the first lines of an error, without the stack that TensorFlow appends."""
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    return "\n".join(str(text).strip().splitlines()[:3])


class FiledEngine(GraphEngine):
    """A graph whose variables come from files, which are read again to reset it."""

    _path = ""

    def _fill(self) -> None:
        raise NotImplementedError

    def _reset_variables(self) -> None:
        try:
            self._fill()
        except (errors_impl.OpError, ValueError) as error:
            raise CheckpointError(
                f"the files that the model was loaded from, {self._path}, are gone or damaged, so "
                f"it cannot be reset: {first_lines(error)}"
            ) from None


class SavedModelEngine(FiledEngine):
    """One signature of a SavedModel."""

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> SavedModelEngine:
        """Load the folder `path`."""
        path = load.path
        with refusals(f"the SavedModel {path} cannot be read"):
            loader = loader_impl.SavedModelLoader(path)
        tags = _chosen_tags(loader, load.tags, path)
        meta_graph = loader.get_meta_graph_def_from_tags(tags)
        if load.seed is not None:
            seeding.seed_graph_def(meta_graph.graph_def, load.seed)
        chosen = chosen_signature(meta_graph.signature_def, load.signature, path)
        graph = v1.Graph()
        with refusals(f"the graph of the SavedModel {path} cannot be imported"):
            saver, _ = loader.load_graph(graph, tags)
            inputs = tensors_of(graph, chosen.inputs)
            outputs = tensors_of(graph, chosen.outputs)
        engine = cls(graph, inputs, outputs, None, load)
        engine._loader, engine._saver, engine._tags = loader, saver, tags
        with refusals(f"the variables of the SavedModel {path} cannot be loaded"):
            engine._fill()
        engine._path = path
        return engine

    _loader: Any
    _saver: Any
    _tags: Any

    def operations(self) -> dict[str, Operation]:
        return {**super().operations(), "recorded": self._recorded}

    def _recorded(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        """Return the feeds recorded beside the model: the names of each, then all arrays."""
        found = recorded_feeds(self._path, self.signature.inputs)
        return [list(feeds) for feeds in found], [a for feeds in found for a in feeds.values()]

    def rename(self, inputs: dict[str, str], outputs: dict[str, str]) -> None:
        """Give the inputs and outputs new names (old -> new), in the order of the arguments."""
        self.name_tensors(
            {new: self._inputs[old] for old, new in inputs.items()},
            {new: self._outputs[old] for old, new in outputs.items()},
        )

    def _fill(self) -> None:
        with self.graph.as_default():
            self._loader.restore_variables(self.session, self._saver)
            self._loader.run_init_ops(self.session, self._tags)


def _chosen_tags(loader: Any, wanted: list[str] | None, path: str) -> list[str]:
    sets = [list(m.meta_info_def.tags) for m in loader.saved_model.meta_graphs]
    if not sets:
        raise ModelError(f"the SavedModel {path} is empty: it holds no graph")
    if wanted is None:
        if len(sets) == 1:
            return sets[0]
        wanted = ["serve"]
    if set(wanted) not in [set(tags) for tags in sets]:
        raise ModelError(f"the SavedModel {path} has no graph tagged {wanted}; there are {sets}")
    return wanted


def chosen_signature(signatures: Any, wanted: str | None, path: str) -> Any:
    names = [name for name in signatures if name not in _HIDDEN]
    if not names:
        raise ModelError(
            f"the SavedModel {path} has no signatures, so nothing says what it takes; open a "
            "function that returns one of its functions, as in lambda: tf.saved_model.load(path).f"
        )
    if wanted is None:
        if _DEFAULT not in names and len(names) > 1:
            raise ModelError(f"the SavedModel {path} has the signatures {names}; choose one")
        wanted = _DEFAULT if _DEFAULT in names else names[0]
    if wanted not in names:
        raise ModelError(f"the SavedModel {path} has no signature {wanted!r}; there are {names}")
    return signatures[wanted]


def tensors_of(graph: Any, infos: Any) -> dict[str, Any]:
    """Return tensors by name in TensorFlow's order, sparse and ragged ones as their parts."""
    found: dict[str, Any] = {}
    for key in sorted(infos):
        info = infos[key]
        kind = info.WhichOneof("encoding")
        if kind == "name":
            found[key] = graph.get_tensor_by_name(info.name)
        elif kind == "coo_sparse":
            parts = info.coo_sparse
            found[f"{key}/indices"] = graph.get_tensor_by_name(parts.indices_tensor_name)
            found[f"{key}/values"] = graph.get_tensor_by_name(parts.values_tensor_name)
            found[f"{key}/dense_shape"] = graph.get_tensor_by_name(parts.dense_shape_tensor_name)
        else:
            for i, part in enumerate(info.composite_tensor.components):
                found[f"{key}/{i}"] = graph.get_tensor_by_name(part.name)
    return found
