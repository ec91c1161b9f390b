"""TensorFlow Serving's REST API: predict by rows or columns, status and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import numpy as np

from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.handler import Handler
from sojourn.service.http import json_arrays
from sojourn.service.http.json_numbers import fractions, in_few_digits
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.router import Router
from sojourn.service.inference import Inference, ModelRef, keep_alive_of
from sojourn.service.served import VersionStatus
from sojourn.service.versions import number_in
from sojourn.values import Signature, TensorSpec
from sojourn.values.dtypes import BY_NAME, STRING

_MODELS = (
    "/v1/models/{name}",
    "/v1/models/{name}/versions/{version}",
    "/v1/models/{name}/labels/{label}",
)
_DTYPES = {
    "bool": "DT_BOOL",
    "string": "DT_STRING",
    "float16": "DT_HALF",
    "bfloat16": "DT_BFLOAT16",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "complex64": "DT_COMPLEX64",
    "complex128": "DT_COMPLEX128",
    **{
        f"{kind}int{n}": f"DT_{kind.upper()}INT{n}"
        for kind in ("", "u", "q", "qu")
        for n in (8, 16, 32, 64)
    },
}


class _Predict(msgspec.Struct, gc=False):
    signature_name: str = ""
    instances: msgspec.Raw = msgspec.Raw()
    inputs: msgspec.Raw = msgspec.Raw()
    keep_alive: float | str | None = None  # not in TensorFlow Serving; the same as in Ollama


_predicts = msgspec.json.Decoder(_Predict)


class TfServing:
    """Translates between HTTP and the handler, which does the work."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for model in _MODELS:
            router.add("POST", f"{model}:predict", self.predict, summary="Run a model")
            router.add("POST", f"{model}:classify", self.classify, summary="Label examples")
            router.add("POST", f"{model}:regress", self.regress, summary="Value examples")
            router.add("GET", model, self.status, summary="Where a model's versions stand")
            router.add("GET", f"{model}/metadata", self.metadata, summary="A model's signatures")

    # -- predict ---------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        ref = ref_of(request)
        self._handler.catalogue.resolve(ref)  # a missing model is reported before body errors
        asked = _parsed(request.body)
        signature_name = asked.signature_name or None
        call, deadline = await self._handler.signature(ref, signature_name)
        signature = call.spec
        in_rows = bool(asked.instances)
        if in_rows:
            inputs = _from_rows(asked.instances, signature)
        else:
            inputs = _from_columns(asked.inputs, signature)
        answer = await self._handler.infer(
            Inference(
                ref,
                inputs,
                signature=signature_name,
                deadline=deadline,
                request_id=request.request_id,
                keep_alive=keep_alive_of(asked.keep_alive),
            )
        )
        outputs = answer.outputs
        told = {"predictions": _as_rows(outputs)} if in_rows else {"outputs": _as_columns(outputs)}
        is_plain = all(map(json_arrays.is_plain, outputs.values()))
        return Response(200, json_arrays.encoded(told, is_plain))

    async def classify(self, request: Request) -> Response:
        from sojourn.service.http.tfexamples import answer_classify

        return await answer_classify(self._handler, request)

    async def regress(self, request: Request) -> Response:
        from sojourn.service.http.tfexamples import answer_regress

        return await answer_regress(self._handler, request)

    # -- status and metadata ---------------------------------------------------------------------

    async def status(self, request: Request) -> Response:
        ref = ref_of(request)
        try:
            found = self._handler.statuses(ref.name)
        except Refused as refused:
            if refused.status is not Status.NOT_FOUND:
                raise
            found = ()
        chosen = [
            status
            for status in found
            if ref.version in (None, status.version)
            and (ref.label is None or ref.label in status.labels)
        ]
        if not chosen:
            version = "" if ref.version is None else f"version {ref.version} of "
            raise Refused(
                Status.NOT_FOUND, f"Could not find {version or 'any versions of '}model {ref.name}"
            )
        told = [_status(status) for status in sorted(chosen, key=lambda s: -s.version)]
        return json_response({"model_version_status": told})

    async def metadata(self, request: Request) -> Response:
        found = await self._handler.metadata(ref_of(request))
        signatures = {
            name: {
                "inputs": _infos(call.spec.inputs, call.input_tensors),
                "outputs": _infos(call.spec.outputs, call.output_tensors),
                "method_name": call.method,
            }
            for name, call in found.signatures.items()
        }
        spec = {"name": found.name, "signature_name": "", "version": str(found.version)}
        return json_response(
            {
                "model_spec": spec,
                "metadata": {"signature_def": {"signature_def": signatures}},
            }
        )


def ref_of(request: Request) -> ModelRef:
    """The model that the path names."""
    name, version = request.parts["name"], request.parts.get("version")
    if version is None:
        return ModelRef(name, label=request.parts.get("label"))
    number = number_in(version)
    if number is None:
        raise invalid(f"Failed to convert version: {version[:40]} to numeric.")
    return ModelRef(name, number)


# -- requests ------------------------------------------------------------------------------------


def _parsed(body: bytes) -> _Predict:
    try:
        asked = _predicts.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(f"JSON Parse Error: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # NaN and Infinity, which standard JSON lacks, need another parser.
        values = json_arrays.parsed(body)
        if not isinstance(values, dict):
            raise invalid("the body must be a JSON object") from None
        asked = _Predict(str(values.get("signature_name", "")))
        asked.keep_alive = keep_alive_of(values.get("keep_alive"))
        asked.instances, asked.inputs = (
            cast(msgspec.Raw, json_arrays.Parsed(values[name])) if name in values else msgspec.Raw()
            for name in ("instances", "inputs")
        )
    if bool(asked.instances) == bool(asked.inputs):
        raise invalid(
            "Not expecting values for both 'instances' and 'inputs'"
            if asked.instances
            else "Missing 'inputs' or 'instances' key"
        )
    return asked


def _from_rows(raw: msgspec.Raw, signature: Signature) -> dict[str, np.ndarray]:
    """Read `instances`: a list with, for each row, one value or one object of values by name."""
    if len(signature.inputs) == 1:
        ((name, spec),) = signature.inputs.items()
        array = _numbers(raw, spec)
        if array is not None:
            return {name: array}
    rows = json_arrays.parsed(raw)
    if not isinstance(rows, list) or not rows:
        raise invalid("'instances' must be a list with at least one element")
    if not _is_named(rows[0]):
        name = _only_input(signature)
        return {name: _array(rows, signature.inputs[name], name)}
    names = rows[0].keys()
    for number, row in enumerate(rows):
        if not _is_named(row) or row.keys() != names:
            raise invalid(f"instance {number} does not have the same names as the first")
    return {
        name: _array([row[name] for row in rows], _spec(signature, name), name) for name in names
    }


def _from_columns(raw: msgspec.Raw, signature: Signature) -> dict[str, np.ndarray]:
    """Read `inputs`: the value of the only input, or an object of values by name."""
    if len(signature.inputs) == 1:
        ((name, spec),) = signature.inputs.items()
        array = _numbers(raw, spec)
        if array is not None:
            return {name: array}
    values = json_arrays.parsed(raw)
    if not _is_named(values):
        name = _only_input(signature)
        return {name: _array(values, signature.inputs[name], name)}
    return {name: _array(value, _spec(signature, name), name) for name, value in values.items()}


def _numbers(raw: msgspec.Raw, spec: TensorSpec) -> np.ndarray | None:
    """The fast path for lists of floating-point numbers; None for other values or shapes."""
    dtype = BY_NAME.get(spec.dtype)
    rank = len(spec.shape or ())
    if dtype is None or dtype.kind != "f" or not rank:
        return None
    array = fractions(raw, dtype, rank) if type(raw) is msgspec.Raw else None
    return array if array is not None and len(array) else None


def _array(values: Any, spec: TensorSpec, name: str) -> np.ndarray:
    if spec.dtype == STRING:
        return json_arrays.as_array(values, np.dtype(object), name)
    dtype = BY_NAME.get(spec.dtype)
    if dtype is None:  # a Python function, which takes any dtype
        return json_arrays.as_anything(values, name)
    return json_arrays.as_array(values, dtype, name)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() != {"b64"}


def _only_input(signature: Signature) -> str:
    if len(signature.inputs) != 1:
        names = ", ".join(map(repr, signature.inputs))
        raise invalid(f"the model has the inputs {names}: values must be given by name")
    return next(iter(signature.inputs))


def _spec(signature: Signature, name: str) -> TensorSpec:
    spec = signature.inputs.get(name)
    if spec is None:
        raise invalid(f"there is no input {name[:80]!r}: the model is {signature}")
    return spec


# -- responses -----------------------------------------------------------------------------------


def _as_rows(outputs: Mapping[str, np.ndarray]) -> list[Any]:
    rows = {len(array) if array.ndim else -1 for array in outputs.values()}
    if len(rows) != 1 or -1 in rows:
        shapes = ", ".join(f"{name}: {list(array.shape)}" for name, array in outputs.items())
        raise invalid(f"the outputs have no common number of rows ({shapes}): ask by 'inputs'")
    columns = {name: _listed(name, array) for name, array in outputs.items()}
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _as_columns(outputs: Mapping[str, np.ndarray]) -> Any:
    columns = {name: _listed(name, array) for name, array in outputs.items()}
    return next(iter(columns.values())) if len(columns) == 1 else columns


def _listed(name: str, array: np.ndarray) -> Any:
    if array.dtype == np.float32:
        return in_few_digits(array).tolist()
    return json_arrays.listed(array, as_base64=name.endswith("_bytes"))


def _status(status: VersionStatus) -> dict[str, Any]:
    is_well = not status.error
    return {
        "version": str(status.version),
        "state": status.state.name,
        "status": {
            "error_code": "OK" if is_well else "UNAVAILABLE",
            "error_message": status.error,
        },
    }


def _infos(specs: Mapping[str, TensorSpec], tensors: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {
            "dtype": _DTYPES.get(spec.dtype, "DT_INVALID"),
            "tensor_shape": {
                "dim": [
                    {"size": str(-1 if dim is None else dim), "name": ""}
                    for dim in spec.shape or ()
                ],
                "unknown_rank": spec.shape is None,
            },
            "name": tensors.get(name, name),
        }
        for name, spec in specs.items()
    }
