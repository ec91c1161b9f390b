"""What the configuration of a Keras model says. It is read, not obeyed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sojourn.probes.model_files.ops import READS, RUNS_CODE
from sojourn.probes.model_files.summary import Finding
from sojourn.values import TensorSpec

_OWN_MODULES = ("keras", "tf_keras", "tensorflow", "keras_hub", "keras_nlp", "keras_cv")
# What models are made of in Keras itself. The rest of it opens, loads and downloads things.
_FOR_MODELS = frozenset(
    "activations constraints distribution dtype_policies engine initializers layers losses metrics "
    "mixed_precision models ops optimizers quantizers random regularizers".split()
)
_ON_THE_WAY = ("keras", "src", "api", "python", "_tf_keras", "legacy", "experimental", "_v1", "_v2")
_NO_MODEL_HAS = frozenset(
    "deserialize_keras_object enable_unsafe_deserialization get_file load_img load_model "
    "load_weights model_from_config model_from_json model_from_yaml save_img save_model "
    "save_weights".split()
)
_READS_VOCABULARY = ("StringLookup", "IntegerLookup", "TextVectorization")
_CARRIES = {
    "Lambda": (RUNS_CODE, "Python code stored in the model"),
    "__lambda__": (RUNS_CODE, "Python code stored in the model"),
    "TFSMLayer": (RUNS_CODE, "loads a SavedModel from elsewhere"),
    "TorchModuleWrapper": (RUNS_CODE, "a pickled PyTorch module"),
    "JaxLayer": (RUNS_CODE, "a Python function of JAX"),
    "FlaxLayer": (RUNS_CODE, "a Python class of Flax"),
}
# Layers of older models that call whatever function of TensorFlow they name.
_CALLS_BY_NAME = ("TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer")
_REACHES_OUT = re.compile(
    r"(^|\.)(io|raw_ops|saved_model|summary|train|data|lookup|experimental|load_library|"
    r"load_op_library|py_func\w*|py_function|numpy_function|print|debugging|distribute|test)(\.|$)"
)


@dataclass(slots=True)
class KerasConfig:
    """The layers, the inputs, and what reaches out of the model."""

    layers: Counter[str] = field(default_factory=Counter)
    inputs: dict[str, TensorSpec] = field(default_factory=dict)
    findings: Counter[Finding] = field(default_factory=Counter)

    def counted(self) -> tuple[Finding, ...]:
        return tuple(
            Finding(f.severity, f.what, f.name, f.where, f.detail, count)
            for f, count in self.findings.items()
        )


def walk(config: Any) -> KerasConfig:
    """Look at every object of a configuration. A loop, as it may be nested without end."""
    found = KerasConfig()
    pending: list[tuple[str, Any]] = [("layer", config)]
    while pending:
        key, value = pending.pop()
        if isinstance(value, list):
            pending += [(key, item) for item in reversed(value)]
        elif isinstance(value, dict):
            if isinstance(value.get("class_name"), str):
                is_layer = key in ("layer", "layers")
                _look_at(found, value["class_name"], value, is_layer)
            pending += reversed(value.items())
    return found


def _look_at(found: KerasConfig, name: str, value: Mapping[str, Any], is_layer: bool) -> None:
    inner = value.get("config")
    config: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    if is_layer:
        found.layers[name[:200]] += 1
        if name == "InputLayer":
            _note_input(found, config)
    for finding in _judge(name, value, config):
        found.findings[finding] += 1


def _judge(name: str, value: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Finding]:
    module, registered = value.get("module"), value.get("registered_name")
    registered = registered if isinstance(registered, str) else ""
    named = value.get("config")
    plain_name = name.rsplit(">", 1)[-1]
    if plain_name in _CARRIES:
        what, detail = _CARRIES[plain_name]
        if isinstance(config.get("filepath"), str):
            detail += f", {config['filepath'][:200]}"
        yield Finding("danger", what, name[:200], detail=detail)
    elif plain_name in _NO_MODEL_HAS or (isinstance(named, str) and named in _NO_MODEL_HAS):
        called = plain_name if plain_name in _NO_MODEL_HAS else named
        yield Finding("danger", RUNS_CODE, name[:200], detail=f"calls {called}")
    elif plain_name in _CALLS_BY_NAME:
        called = str(config.get("function") or config.get("node_def") or "")
        if _REACHES_OUT.search(called) or plain_name == "TensorFlowOpLayer":
            yield Finding("danger", RUNS_CODE, name[:200], detail=f"calls {called[:200]}")
    elif isinstance(module, str) and module == "builtins":
        detail = f"a function that you must supply: {named}" if isinstance(named, str) else ""
        yield Finding("note", "custom object", name, detail=detail[:200])
    elif isinstance(module, str) and module.split(".", 1)[0] not in _OWN_MODULES:
        # Also where a name is registered: Keras imports the module when it knows no such name.
        registration = f", registered as {registered}" if registered else ""
        detail = f"imports {module}{registration}"[:200]
        yield Finding("danger", "custom object", name, detail=detail)
    elif isinstance(module, str) and not _is_for_models(module):
        # Helpers that download and unpack files were used as layers by attackers.
        yield Finding("danger", RUNS_CODE, name, detail=f"a helper of {module[:200]}")
    elif module is None and ">" in (known_as := registered or name):
        # HDF5 files name no module at all: the class is the registered name.
        detail = f"a class that you must supply: {known_as[:200]}"
        yield Finding("note", "custom object", name[:200], detail=detail)
    if name in _READS_VOCABULARY and isinstance(config.get("vocabulary"), str):
        yield Finding("danger", READS, name, detail=f"vocabulary is {config['vocabulary'][:200]}")


def _is_for_models(module: str) -> bool:
    root, *rest = module.split(".")
    if root not in ("keras", "tf_keras", "tensorflow"):  # libraries of whole models
        return "utils" not in rest
    below = [part for part in rest if part not in _ON_THE_WAY]
    # Keras itself has models at its top, TensorFlow has everything there.
    return below[0] in _FOR_MODELS if below else root != "tensorflow" or "keras" in rest


def _note_input(found: KerasConfig, config: Mapping[str, Any]) -> None:
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    dtype = config.get("dtype")
    if isinstance(dtype, dict):  # a policy, which has the dtype as its name
        inner = dtype.get("config")
        dtype = inner.get("name") if isinstance(inner, dict) else None
    if isinstance(shape, list) and all(d is None or isinstance(d, int) for d in shape):
        name = str(config.get("name", "input"))[:200]
        spec = TensorSpec(dtype if isinstance(dtype, str) else "unknown", tuple(shape))
        found.inputs[name] = spec
