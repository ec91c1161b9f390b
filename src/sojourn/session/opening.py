"""`sojourn.open`: from what the user has to a session that is ready."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np

from sojourn.errors import ModelError
from sojourn.probes.platform import require_process_isolation
from sojourn.session.backend import Backend, InlineBackend
from sojourn.session.session import Session
from sojourn.session.states import Input
from sojourn.session.stay import Stay
from sojourn.values import caller, parse_bytes

_counter = itertools.count(1)
Names = Sequence[str] | Mapping[str, str] | None


def open(
    model: Any,
    *,
    name: str | None = None,
    isolation: str = "process",
    device: str = "auto",
    memory: int | str | None = None,
    initializer: str | None = None,
    inputs: Names = None,
    outputs: Names = None,
) -> Session:
    """Open a session on a model. It lives until it is closed; use it in a `with` block.

    `model` is a `tf.Graph`, or a function that builds the graph inside the worker and returns its
    inputs and outputs (or returns a plain function to run there). `initializer` names the op of a
    graph that initialises its variables. `isolation` is `"process"` (a worker of its own, whose
    end gives everything back) or `"inline"` (in this process; TensorFlow keeps the memory).
    `memory`, such as `"2GiB"`, is the most the worker may allocate.
    """
    if isolation not in ("process", "inline"):
        raise ValueError(f'isolation is "process" or "inline", not {isolation!r}')
    arguments, arrays = _described(model, isolation == "inline")
    arguments["initializer"] = initializer
    arguments["inputs"] = _mapping(inputs)
    arguments["outputs"] = _mapping(outputs)
    limit = None if memory is None else parse_bytes(memory)
    stay = Stay(name or _name_for(model), isolation, "cpu", caller())
    backend: Backend
    try:
        if isolation == "inline":
            backend = InlineBackend(os.getpid(), arguments["kind"])
        else:
            require_process_isolation()
            from sojourn.session.isolation import WorkerBackend

            backend = WorkerBackend(stay.name, memory_bytes=limit)
    except BaseException:
        stay.lifecycle.happened(Input.OPEN_FAILED, stay.owner)
        raise
    stay.start(backend)
    stay.load(arguments, arrays)
    return Session(stay)


def _described(model: Any, inline: bool) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What the engine is told, and the arrays that go with it."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(model, tensorflow.Graph):
        graph_def = model.as_graph_def(add_shapes=True)
        return {"kind": "graph"}, [np.frombuffer(graph_def.SerializeToString(), np.uint8)]
    if callable(model):
        if inline:
            return {"kind": "builder", "object": model}, []
        try:
            pickled = cloudpickle.dumps(model)
        except Exception as error:
            raise ModelError(f"{model!r} cannot be sent to a worker: {error}") from error
        return {"kind": "builder"}, [np.frombuffer(pickled, np.uint8)]
    raise ModelError(
        f"a model is a tf.Graph or a function that builds one, not a {type(model).__name__}"
    )


def _mapping(names: Names) -> dict[str, str] | None:
    if names is None or isinstance(names, Mapping):
        return dict(names) if names is not None else None
    if isinstance(names, str):
        return {names.partition(":")[0]: names}
    return {name.partition(":")[0]: name for name in names}


def _name_for(model: Any) -> str:
    base = getattr(model, "__name__", None) or type(model).__name__.lower()
    return f"{re.sub(r'[^a-zA-Z0-9_.-]', '', str(base)) or 'session'}-{next(_counter)}"
