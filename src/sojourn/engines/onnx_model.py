"""An ONNX model, run by ONNX Runtime on the CPU.

One session of ONNX Runtime serves all lanes: several threads may run it at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sojourn.engines.base import Arrays, EnginePlan, Operation, renamed, require_names
from sojourn.engines.converted import as_tensorflow, require_intact
from sojourn.errors import EngineError, InputError, ModelError
from sojourn.kinds import Load
from sojourn.probes.model_files.contents import mapped
from sojourn.probes.model_files.onnx_files import parse_onnx
from sojourn.values import Signature, TensorSpec

# Disable ONNX Runtime's telemetry, and the thread for it that would start at the import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime

# ONNX Runtime's types that it exchanges with numpy -> the names of their dtypes.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "string": "string",
    "bool": "bool",
    **{name: name for bits in (8, 16, 32, 64) for name in (f"int{bits}", f"uint{bits}")},
}
_UNKNOWN_OP = re.compile(
    r"(?:No Op registered for )?(?<!\S)(\S+?)(?:\(-?\d+\))? "
    r"(?:is not a registered function/op|with domain_version of)"
)
_OPSET = re.compile(r"Opset (\d+) is under development.*?for domain (\S+) is till opset (\d+)")
_IR = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")
_MISSING = re.compile(r"External data path does not exist: (\S+)")
_SOURCE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : |(?<!\S)\S*/onnxruntime_src/\S+ .*?\) "
)


class OnnxEngine:
    """One model in one session of ONNX Runtime."""

    def __init__(self, session: Any, load: Load) -> None:
        path = load.path
        self._load = load
        self._session = session
        self._inputs = _specs(session.get_inputs())
        self._outputs = _specs(session.get_outputs())
        # ONNX Runtime reports the same shape for a scalar and for any rank.
        if any(spec.shape == () for spec in (*self._inputs.values(), *self._outputs.values())):
            parsed = parse_onnx(mapped(path))
            for specs, read in ((self._inputs, parsed.inputs), (self._outputs, parsed.outputs)):
                for name, spec in specs.items():
                    if name in read and read[name].shape is None:
                        specs[name] = TensorSpec(spec.dtype, None)
        for name, spec in self._inputs.items():
            if spec.dtype.startswith("("):
                raise ModelError(f"input {name!r} of {path} takes {spec.dtype[1:-1]}, not a tensor")
        # A converted model has tensor names of its own; users see those of the original model.
        self._real_inputs, self._real_outputs = load.inputs or {}, load.outputs or {}
        self._inputs = renamed(self._inputs, load.inputs)
        self._outputs = renamed(self._outputs, load.outputs)
        tensors = {n: spec for n, spec in self._outputs.items() if not spec.dtype.startswith("(")}
        if self._outputs and not tensors:
            given = ", ".join(f"{n!r} {spec.dtype[1:-1]}" for n, spec in self._outputs.items())
            raise ModelError(f"no output of {path} is a tensor: it gives {given}")
        self.signature = Signature(self._inputs, tensors)

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> OnnxEngine:
        """Load the file `path`, and the files that it stores its weights in."""
        require_intact(load)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # everything that matters is raised
        # Set explicitly: otherwise it pins its threads to cores, which the sandbox refuses.
        options.intra_op_num_threads = load.threads or len(os.sched_getaffinity(0))
        # By default its threads spin for 15 ms, waiting for the next step. The caller needs the
        # core.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if load.is_converted:  # its threads too flush denormals to zero, like TensorFlow's
            options.add_session_config_entry("session.set_denormal_as_zero", "1")
        options.use_deterministic_compute = load.deterministic
        if load.seed is not None:
            onnxruntime.set_seed(load.seed)
        try:
            session = onnxruntime.InferenceSession(
                load.path, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:  # it has one exception type for each status code
            raise ModelError(_explained(load.path, str(error))) from None
        return cls(session, load)

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        require_names(feeds, fetches, self._inputs, self._outputs, _DTYPES.values())
        inputs = [self._inputs[name] for name in feeds]
        outputs = [self._outputs[name] for name in fetches]
        given = [str(self._real_inputs.get(name, name)) for name in feeds]
        wanted = [self._real_outputs.get(name, name) for name in fetches]
        plan = OnnxPlan(self._session, given, wanted, inputs, outputs)
        made: EnginePlan = as_tensorflow(plan, feeds, self._load)
        return made

    def operations(self) -> dict[str, Operation]:
        return {}  # it has no state that could be saved

    def close(self) -> None:
        del self._session


class OnnxPlan:
    adoptable = True  # nothing is kept from one run to the next
    prints = False
    may_wait = False
    changes_state = False

    def __init__(
        self,
        session: Any,
        feeds: list[str],
        fetches: list[str],
        inputs: list[TensorSpec],
        outputs: list[TensorSpec],
    ) -> None:
        # The inner session skips a second check that every input is fed.
        self._run = getattr(session, "_sess", session).run
        self._feeds = feeds
        self._fetches = fetches
        self.inputs = inputs
        self.outputs = outputs
        self.slots = range(len(fetches))
        self._texts = [i for i, spec in enumerate(inputs) if spec.dtype == "string"]
        self._gives_texts = any(spec.dtype == "string" for spec in outputs)

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        given = dict(zip(self._feeds, arrays, strict=True))
        for i in self._texts:
            given[self._feeds[i]] = _decoded(self._feeds[i], arrays[i])
        try:
            results: list[np.ndarray] = self._run(self._fetches, given, None)
        except MemoryError:
            raise
        except Exception as error:  # of many types, as in `load`
            raise EngineError(f"{type(error).__name__}: {_SOURCE.sub('', str(error))}") from None
        return [_encoded(result) for result in results] if self._gives_texts else results


def _specs(arguments: Iterable[Any]) -> dict[str, TensorSpec]:
    found = {}
    for argument in arguments:
        kind, _, inner = argument.type.partition("(")
        dtype = _DTYPES.get(inner[:-1], inner[:-1]) if kind == "tensor" else f"({argument.type})"
        dims = (dim if isinstance(dim, int) and dim >= 0 else None for dim in argument.shape)
        found[argument.name] = TensorSpec(dtype, tuple(dims) if kind == "tensor" else None)
    return found


def _decoded(name: str, array: np.ndarray) -> np.ndarray:
    """Decode text for ONNX Runtime, which would use the `str` of bytes objects."""
    items = array.reshape(-1).tolist()
    result = np.empty(len(items), dtype=object)
    try:
        result[:] = [item.decode() for item in items]
    except UnicodeDecodeError as error:
        raise InputError(f"input {name!r} takes text in UTF-8: {error}") from None
    return result.reshape(array.shape)


def _encoded(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "OU":
        return array
    result = np.empty(array.size, dtype=object)
    result[:] = [str(item).encode() for item in array.reshape(-1).tolist()]
    return result.reshape(array.shape)


def _explained(path: str, message: str) -> str:
    if found := _UNKNOWN_OP.search(message):
        return f"{path} has the op {found[1]}, which ONNX Runtime does not have"
    if found := _OPSET.search(message):
        return f"{path} uses opset {found[1]} of {found[2]}; ONNX Runtime has up to {found[3]}"
    if found := _IR.search(message):
        return f"{path} is of ONNX version {found[1]}; ONNX Runtime reads up to {found[2]}"
    if found := _MISSING.search(message):
        return f"{path} keeps weights in {found[1]}, which is not there"
    return f"ONNX Runtime cannot load {path}: {_SOURCE.sub('', message).strip()}"
