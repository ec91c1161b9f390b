"""A TensorFlow graph as an engine: from a GraphDef, or built in this process by a function."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from msgspec.structs import replace
from tensorflow.python.framework import ops as tf_ops

from sojourn.engines import seeding
from sojourn.engines.base import Arrays, Operation
from sojourn.engines.branches import Branches
from sojourn.engines.literal import literal
from sojourn.engines.placement import Placements
from sojourn.engines.tensorflow_steps import CompiledStep, step_facts
from sojourn.engines.variables import Variables
from sojourn.errors import InputError, ModelError
from sojourn.kinds import Load
from sojourn.kinds.names import short_names
from sojourn.values import Signature, TensorSpec

v1 = tf.compat.v1


def spec_of(tensor: Any) -> TensorSpec:
    """Return the dtype and shape of a symbolic tensor."""
    shape = tensor.shape
    dims = None if shape.rank is None else tuple(shape.as_list())
    return TensorSpec(tensor.dtype.base_dtype.name, dims)


def is_operation(found: Any) -> bool:
    """Whether this is an operation, which is run for its effect and has no value."""
    return isinstance(found, tf.Operation)


class GraphEngine:
    """One graph with one TensorFlow session, and short names for some of its tensors."""

    # Whether to keep a copy of the initial values before the first change, because they cannot be
    # restored in another way.
    keeps_start = False

    def __init__(
        self,
        graph: Any,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        initializers: Sequence[str] | None = None,
        load: Load | None = None,
    ) -> None:
        self.graph = graph
        self._branches = Branches(graph)
        self._config = session_config(load)
        self.session = v1.Session(graph=graph, config=self._config)
        self.variables = Variables(graph, self.session)
        self._placements = Placements(self.session)
        self.name_tensors(inputs, outputs)
        self._initializers = [self._operation(name) for name in initializers or ()]
        self._lock = threading.Lock()
        if self._initializers:
            self.session.run(self._initializers)

    def name_tensors(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Give these tensors short names, which form the signature."""
        self._inputs = dict(inputs)
        self._outputs = dict(outputs)
        self.signature = Signature(
            {name: spec_of(t) for name, t in inputs.items()},
            {name: spec_of(t) for name, t in outputs.items() if not is_operation(t)},
        )

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> GraphEngine:
        """Load the bytes of a GraphDef."""
        graph_def = v1.GraphDef()
        graph_def.ParseFromString(arrays[0].tobytes())
        if load.seed is not None:
            seeding.seed_graph_def(graph_def, load.seed)
        return engine_of_graph_def(graph_def, load, cls)

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> CompiledStep:
        """Prepare a step that feeds and fetches tensors by their short or graph names."""
        fed = [self._tensor(name, "input", self._inputs) for name in feeds]
        fetched: list[Any] = []
        targets: list[Any] = []
        slots: list[int] = []
        for name in fetches:
            found = self._readable(self._find(name, "output", self._outputs))
            slots.append(-1 if is_operation(found) else len(fetched))
            (targets if is_operation(found) else fetched).append(found)
        facts = step_facts(self.graph, fed, fetched, targets)
        if facts.unfed:
            short = {t.op.name: name for name, t in self._inputs.items()}
            missing = ", ".join(repr(short.get(name, name)) for name in facts.unfed)
            raise InputError(f"to get {', '.join(fetches)} the input {missing} must be fed as well")
        if facts.changes_state and self.keeps_start:
            self.variables.keep()
        with self._lock:
            step = CompiledStep(
                self.session,
                fed,
                fetched,
                targets,
                facts,
                [spec_of(t) for t in fed],
                [spec_of(t) for t in fetched],
                slots,
                may_lack=self._branches.may_lack(t.op.name for t in fetched),
            )
            self._placements.watch(step, facts.ops)
            return step

    def operations(self) -> dict[str, Operation]:
        return {
            "reset": self._reset,
            "save": self._save,
            "restore": self._restore,
            "placement": self._placement,
            "convert": self._convert,
            "loops": self._loops,
        }

    def close(self) -> None:
        self.session.close()

    def _reset(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        self._reset_variables()
        return None, ()

    def _reset_variables(self) -> None:
        if self.variables.has_snapshot:
            self.variables.go_back()
        elif self._initializers:
            self._initialize_again()
        elif not self.keeps_start:
            raise ModelError("the session was opened without an initializer, so it cannot be reset")

    def _initialize_again(self) -> None:
        # Use a fresh session: in the current one, random initializers with a seed would continue
        # their streams, and tables would keep their entries.
        with v1.Session(graph=self.graph, config=self._config) as fresh:
            fresh.run(self._initializers)
            values = Variables(self.graph, fresh).read_all()
        self.variables.assign(values)

    def _save(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        with literal(arguments["prefix"]) as prefix:
            return self.variables.save(prefix), ()

    def _restore(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        if self.keeps_start:
            self.variables.keep()
        with literal(arguments["prefix"], arguments["folder"]) as prefix:
            self.variables.restore(prefix, arguments["may_lack"])
        return None, ()

    def _convert(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        from sojourn.engines import converting

        outputs = {name: t for name, t in self._outputs.items() if not is_operation(t)}
        made = converting.convert(self.session, self._inputs, outputs, arguments["to"])
        return None, [np.frombuffer(made, np.uint8)]

    def _loops(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        fetches = [t for t in self._outputs.values() if not is_operation(t)]
        return step_facts(self.graph, list(self._inputs.values()), fetches, ()).loops, ()

    def _placement(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        return self._placements.counts(), ()

    def _readable(self, found: Any) -> Any:
        """Return the tensor with the value of a variable's handle; any other tensor unchanged."""
        if is_operation(found) or found.op.type != "VarHandleOp":
            return found
        for reader in found.consumers():
            if reader.type == "ReadVariableOp" and not reader.control_inputs:
                return reader.outputs[0]
        with self._lock, self.graph.as_default():
            dtype = found.op.get_attr("dtype")
            return tf.raw_ops.ReadVariableOp(resource=found, dtype=dtype)

    def _tensor(self, name: str, role: str, short: Mapping[str, Any]) -> Any:
        found = self._find(name, role, short)
        if is_operation(found):
            raise InputError(f"{name!r} is an operation without an output; it cannot be an {role}")
        return found

    def _operation(self, name: str) -> Any:
        try:
            return self.graph.get_operation_by_name(name.partition(":")[0])
        except KeyError:
            raise ModelError(f"the graph has no operation {name!r} to initialise it") from None

    def _find(self, name: str, role: str, short: Mapping[str, Any]) -> Any:
        found = short.get(name)
        if found is not None:
            return found
        try:
            if ":" in name:
                return self.graph.get_tensor_by_name(name)
            operation = self.graph.get_operation_by_name(name)
        except (KeyError, ValueError):
            raise InputError(
                f"there is no {role} {name!r}; there are {', '.join(short) or 'none'}, and the "
                "names of the graph itself, such as 'dense/kernel:0'"
            ) from None
        return operation.outputs[0] if len(operation.outputs) == 1 else operation


def session_config(load: Load | None = None) -> Any:
    """Return the config of every session: ops without a kernel for their device run on another
    device, and GPU memory is allocated as needed, or up to a limit."""
    config = v1.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    if load is None:
        return config
    if load.gpu_bytes is not None:
        logical = config.gpu_options.experimental.virtual_devices.add()
        logical.memory_limit_mb.append(max(1, load.gpu_bytes // 2**20))
    if load.threads is not None:
        config.intra_op_parallelism_threads = load.threads
        config.inter_op_parallelism_threads = load.threads
    if load.jit_compile:
        # The first session in a process reads this flag. Without it, XLA compiles nothing on a CPU.
        os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit"
        level = v1.OptimizerOptions.ON_1
        config.graph_options.optimizer_options.global_jit_level = level
    return config


def engine_of_graph_def(
    graph_def: Any, load: Load, kind: type[GraphEngine] = GraphEngine
) -> GraphEngine:
    """Return the engine for a finished graph, with the inputs and outputs that the user names."""
    graph = v1.Graph()
    with graph.as_default():
        try:
            v1.import_graph_def(graph_def, name="")
        except (ValueError, tf.errors.OpError) as error:
            raise ModelError(f"the graph cannot be imported: {error}") from None
    inputs = named(graph, load.inputs) or placeholders(graph)
    outputs = named(graph, load.outputs) or terminal_tensors(graph)
    return kind(graph, inputs, outputs, load.initializer, load)


def build(function: Callable[[], Any], seed: int | None = None) -> tuple[Any, Any]:
    """Run a builder in a new graph; return the graph and the builder's result."""
    graph = v1.Graph()
    with graph.as_default():
        if seed is not None:
            seeding.seed_process(seed)  # again: an earlier attempt may have drawn numbers
            v1.set_random_seed(seed)
        return graph, function()


def is_graph(built: Any) -> bool:
    """Whether this is a TensorFlow graph."""
    return isinstance(built, tf.Graph)


def initializers_of(graph: Any) -> list[str]:
    """Return the names of the ops that initialise the variables and tables of a graph."""
    keys = v1.GraphKeys
    variables = {
        variable.initializer.name: None
        for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        for variable in graph.get_collection(key)
    }
    return [*variables, *(op.name for op in graph.get_collection(keys.TABLE_INITIALIZERS))]


def engine_of_graph(graph: Any, load: Load) -> GraphEngine:
    """Return the engine for a graph that was built in this process."""
    if load.seed is not None:
        graph_def = graph.as_graph_def(add_shapes=True)
        seeding.seed_graph_def(graph_def, load.seed)
        initializer = load.initializer or initializers_of(graph)
        return engine_of_graph_def(graph_def, replace(load, initializer=initializer))
    return GraphEngine(
        graph,
        named(graph, load.inputs) or placeholders(graph),
        named(graph, load.outputs) or terminal_tensors(graph),
        load.initializer or initializers_of(graph),
        load,
    )


def engine_of_built(graph: Any, built: Any, load: Load) -> GraphEngine:
    """Return the engine for a graph whose inputs and outputs a builder has returned."""
    if graph is None:
        raise ModelError(f"a builder must return a model; this one returned {built!r}")
    with graph.as_default():
        inputs, outputs = _inputs_and_outputs(built)
    initializer = load.initializer or initializers_of(graph)
    return GraphEngine(graph, inputs, outputs, initializer, load)


def _inputs_and_outputs(built: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a builder's result as two mappings from name to tensor or operation."""
    if not isinstance(built, tuple) or len(built) != 2:
        raise ModelError(
            "a builder must return its inputs and its outputs (each a tensor, a list or a "
            f"mapping from name to tensor); this one returned {built!r}"
        )
    return _by_name(built[0]), _by_name(built[1])


def _by_name(part: Any) -> dict[str, Any]:
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        items = part if isinstance(part, list | tuple) else [part]
        named = {getattr(item, "name", str(item)): item for item in items}
        part = {short: named[name] for short, name in short_names(named).items()}
    return {str(name): _fetchable(item) for name, item in part.items()}


def _fetchable(item: Any) -> Any:
    if is_operation(item):
        return item
    try:
        if isinstance(item, str | bytes):  # a name would become a constant
            raise TypeError
        return tf.convert_to_tensor(item)  # a variable becomes its value
    except (TypeError, ValueError):
        raise ModelError(f"inputs and outputs must be tensors, not {item!r}") from None


def named(graph: Any, names: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the tensors that the user names, by their short names."""
    found = {}
    for short, name in (names or {}).items():
        try:
            found[short] = tf_ops.Graph.as_graph_element(graph, name)
        except (KeyError, ValueError):
            raise ModelError(f"the graph has no {name!r}") from None
        if isinstance(found[short], tf.Operation) and len(found[short].outputs) == 1:
            found[short] = found[short].outputs[0]
    return found


def placeholders(graph: Any) -> dict[str, Any]:
    """Return the placeholders of a graph by name."""
    return {
        op.name: op.outputs[0]
        for op in graph.get_operations()
        if op.type in ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
    }


def terminal_tensors(graph: Any) -> dict[str, Any]:
    """Return the tensors that no op in the graph consumes, which are most likely its outputs."""
    return {
        op.name: op.outputs[0]
        for op in graph.get_operations()
        if len(op.outputs) == 1
        and not op.outputs[0].consumers()
        and op.outputs[0].dtype.base_dtype not in (tf.resource, tf.variant)
        and op.type not in ("Const", "VarIsInitializedOp", "Assign", "AssignVariableOp")
    }
