"""A TensorFlow Lite model, run by LiteRT on the CPU.

An interpreter serves one thread at a time: two threads at once silently get wrong results. So each
run takes a free interpreter, or makes another if none is free. All share the weights, which are in
the file. The file is kept open, because its name might lead to another model later. A model with
state has a single interpreter, because each interpreter would keep a state of its own.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from sojourn.engines.base import Arrays, EnginePlan, Operation, renamed, require_names
from sojourn.engines.converted import as_tensorflow, require_intact
from sojourn.errors import EngineError, ModelError
from sojourn.kinds import Load
from sojourn.probes.model_files.contents import mapped
from sojourn.probes.model_files.tflite_files import parse_tflite
from sojourn.values import Signature, TensorSpec
from sojourn.values.dtypes import BY_NAME, name_of

_DTYPES = (*BY_NAME, "string")
_DEFAULT = "serving_default"
_CUSTOM_OP = re.compile(r"unresolved custom op: (\w+)")
_FLEX_OP = re.compile(r"\(Flex(\w+)\) failed to prepare")
# LiteRT's error for an output without elements, for example when nothing was detected.
_EMPTY = "Invalid tensor size"
_NEW_OP = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")


class LiteRtEngine:
    """One signature of a model."""

    def __init__(self, load: Load, signature: str | None, remembers: bool) -> None:
        self._load = load
        self._file = open(load.path, "rb")
        self._key = signature
        self._threads = load.threads or len(os.sched_getaffinity(0))
        self._remembers = remembers
        self._only = threading.Lock()  # held while the only interpreter runs
        runner = self._new_runner()
        self._free = [runner]
        # A converted model has tensor names of its own; users see those of the original model.
        self.real_inputs, self.real_outputs = load.inputs or {}, load.outputs or {}
        self.signature = Signature(
            renamed(runner.inputs, load.inputs), renamed(runner.outputs, load.outputs)
        )

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> LiteRtEngine:
        """Load the file `path`."""
        require_intact(load)
        try:
            parsed = parse_tflite(mapped(load.path))
            keys = list(Interpreter(model_path=load.path).get_signature_list())
        except (ValueError, RuntimeError, ModelError) as error:
            raise ModelError(f"LiteRT cannot load {load.path}: {_reason(error)}") from None
        return cls(load, _chosen(keys, load.signature, load.path), parsed.remembers)

    def _new_runner(self) -> _Runner:
        try:
            return _Runner(_path_of(self._file), self._key, self._threads)
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"LiteRT cannot load {self._load.path}: {_reason(error)}") from None

    def take(self) -> _Runner:
        """Take an interpreter that no other thread uses until `give_back`."""
        if self._remembers:
            self._only.acquire()
            return self._free[0]
        try:
            return self._free.pop()
        except IndexError:
            return self._new_runner()

    def give_back(self, runner: _Runner) -> None:
        """Return an interpreter, so that other threads may use it."""
        if self._remembers:
            self._only.release()
        else:
            self._free.append(runner)

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        require_names(feeds, fetches, self.signature.inputs, self.signature.outputs, _DTYPES)
        made: EnginePlan = as_tensorflow(LiteRtPlan(self, feeds, fetches), feeds, self._load)
        return made

    def operations(self) -> dict[str, Operation]:
        return {}  # the model's state cannot be saved

    def close(self) -> None:
        self._free.clear()
        self._file.close()


class LiteRtPlan:
    adoptable = True  # feeds are copied into the interpreter's own tensors
    prints = False
    may_wait = False
    changes_state = False  # the model's state cannot be saved anyway

    def __init__(self, engine: LiteRtEngine, feeds: Sequence[str], fetches: Sequence[str]) -> None:
        self._engine = engine
        self._feeds = [str(engine.real_inputs.get(name, name)) for name in feeds]
        self._fetches = [engine.real_outputs.get(name, name) for name in fetches]
        self.inputs = [engine.signature.inputs[name] for name in feeds]
        self.outputs = [engine.signature.outputs[name] for name in fetches]
        self.slots = range(len(self._fetches))

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        runner = self._engine.take()
        try:
            return runner.run(self._feeds, arrays, self._fetches)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"LiteRT cannot run it: {_reason(error)}") from None
        finally:
            self._engine.give_back(runner)


class _Runner:
    """One interpreter, ready to run one signature, or the graph of a model without signatures."""

    def __init__(self, path: str, key: str | None, threads: int) -> None:
        self._interpreter = Interpreter(model_path=path, num_threads=threads)
        self._interpreter.allocate_tensors()
        inputs = {detail["name"]: detail for detail in self._interpreter.get_input_details()}
        outputs = {detail["name"]: detail for detail in self._interpreter.get_output_details()}
        if key is None and len(inputs) < len(self._interpreter.get_input_details()):
            raise ValueError(f"several of its inputs have the same name: {', '.join(inputs)}")
        self._signature = None
        if key is not None:
            signature = self._interpreter.get_signature_runner(key)
            named = signature.get_input_details(), signature.get_output_details()
            is_whole = len(self._interpreter.get_signature_list()) == 1 and _indices(
                *named
            ) == _indices(inputs, outputs)
            if not is_whole:
                self._signature = signature  # slower: it allocates at every step
            inputs, outputs = named
        # Two dicts, because an input and an output may have the same name.
        self._fed = {name: detail["index"] for name, detail in inputs.items()}
        self._fetched = {name: detail["index"] for name, detail in outputs.items()}
        self._sizes = {name: tuple(detail["shape"]) for name, detail in inputs.items()}
        self.inputs = {name: _spec(detail) for name, detail in inputs.items()}
        self.outputs = {name: _spec(detail) for name, detail in outputs.items()}

    def run(self, feeds: list[str], arrays: Arrays, fetches: list[str]) -> list[np.ndarray]:
        """Run one step; return copies of the outputs."""
        if self._signature is not None:
            try:
                results: dict[str, Any] = self._signature(**dict(zip(feeds, arrays, strict=True)))
            except ValueError as error:
                if _EMPTY not in str(error):
                    raise
                return [self._taken(name) for name in fetches]  # the step itself has run
            return [np.asarray(results[name]) for name in fetches]
        interpreter, places, sizes = self._interpreter, self._fed, self._sizes
        is_resized = False
        for name, array in zip(feeds, arrays, strict=True):
            if array.shape != sizes.get(name):
                interpreter.resize_tensor_input(places[name], array.shape)
                sizes[name] = array.shape
                is_resized = True
        if is_resized:
            try:
                interpreter.allocate_tensors()
            except BaseException:
                sizes.clear()  # the next step tries again
                raise
        for name, array in zip(feeds, arrays, strict=True):
            interpreter.set_tensor(places[name], array)
        interpreter.invoke()
        return [self._taken(name) for name in fetches]

    def _taken(self, name: str) -> np.ndarray:
        index, runner = self._fetched[name], self._signature
        try:
            subgraph = 0 if runner is None else runner._subgraph_index
            return np.asarray(self._interpreter.get_tensor(index, subgraph))
        except ValueError as error:
            if _EMPTY not in str(error):
                raise
        details = self._interpreter.get_output_details()
        if runner is not None:
            details = runner.get_output_details().values()
        detail = next(detail for detail in details if detail["index"] == index)
        return np.zeros(detail["shape"], detail["dtype"])


def _path_of(file: IO[bytes]) -> str:
    """Return a path to an open file, which may have been renamed or removed since."""
    known = f"/proc/self/fd/{file.fileno()}"
    return known if os.path.exists(known) else file.name


def _indices(inputs: dict[str, Any], outputs: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the tensor indices of the inputs and of the outputs, sorted."""
    return (
        sorted(detail["index"] for detail in inputs.values()),
        sorted(detail["index"] for detail in outputs.values()),
    )


def _spec(detail: dict[str, Any]) -> TensorSpec:
    dims = detail["shape_signature"] if len(detail["shape_signature"]) else detail["shape"]
    dtype = name_of(np.dtype(detail["dtype"])) or str(detail["dtype"])
    return TensorSpec(dtype, tuple(int(d) if d >= 0 else None for d in dims))


def _chosen(keys: list[str], wanted: str | None, path: str) -> str | None:
    if wanted is None:
        if len(keys) > 1 and _DEFAULT not in keys:
            raise ModelError(f"{path} has the signatures {keys}; choose one")
        return None if not keys else _DEFAULT if _DEFAULT in keys else keys[0]
    if wanted not in keys:
        raise ModelError(f"{path} has no signature {wanted!r}; there are {keys}")
    return wanted


def _reason(error: Exception) -> str:
    message = str(error).strip()
    if found := _CUSTOM_OP.search(message):
        return f"it has the custom op {found[1]}, which LiteRT does not have"
    if found := _FLEX_OP.search(message):
        return f"it has TensorFlow's op {found[1]}, which LiteRT does not run"
    if found := _NEW_OP.search(message):
        return f"it has version {found[2]} of the op {found[1]}, which LiteRT does not have"
    return message
