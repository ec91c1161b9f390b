"""TensorFlow Serving over gRPC: predictions, and the state of models. Translates only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from sojourn.service import classifying, examples
from sojourn.service.classifying import Classified, Regressed, Task
from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.grpc import tensors
from sojourn.service.grpc.calls import Call, Method, Service
from sojourn.service.grpc.messages import TFSERVING
from sojourn.service.handler import Handler
from sojourn.service.http.router import Role
from sojourn.service.inference import Answer, Inference, ModelRef
from sojourn.service.rules import ModelRules
from sojourn.service.signatures import CallSignature
from sojourn.values import TensorSpec

_SIGNATURES = "signature_def"


class Predictions:
    """The `PredictionService` of a handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def service(self) -> Service:
        return Service(
            TFSERVING,
            "PredictionService",
            {
                "Predict": Method(self._predict),
                "Classify": Method(self._classify),
                "Regress": Method(self._regress),
                "MultiInference": Method(self._multi_inference),
                "GetModelMetadata": Method(self._metadata),
            },
        )

    async def _predict(self, request: Any, call: Call) -> Any:
        spec = request.model_spec
        short: dict[str, int] = {}
        inputs = {
            name: tensors.to_array(proto, name, short) for name, proto in request.inputs.items()
        }
        deadline = call.deadline
        if short:
            deadline = await self._fill(request, inputs, short, call)
        answer = await self._handler.infer(
            Inference(
                _ref(spec),
                inputs,
                tuple(request.output_filter) or None,
                spec.signature_name or None,
                deadline,
                call.request_id,
            )
        )
        response = TFSERVING.PredictResponse(model_spec=_spec_of(answer))
        for name, array in answer.outputs.items():
            tensors.from_array(array, response.outputs[name], name)
        return response

    async def _fill(
        self, request: Any, inputs: dict[str, np.ndarray], short: dict[str, int], call: Call
    ) -> float | None:
        """Check that the inputs with missing elements fit the signature, and fill them up. Returns
        the deadline of the request."""
        asked = request.model_spec
        found, deadline = await self._handler.signature(
            _ref(asked), asked.signature_name or None, call.deadline
        )
        for name in short:
            taken, shape = found.spec.inputs.get(name), inputs[name].shape
            if taken is None or not taken.accepts(shape):
                raise invalid(
                    f"input {name!r} of shape {list(shape)} does not fit; "
                    f"signature {found.name!r} is {found.spec}"
                )
        call.hold(sum(short.values()))
        for name in short:
            inputs[name] = tensors.to_array(request.inputs[name], name)
        return deadline

    async def _classify(self, request: Any, call: Call) -> Any:
        answer = await classifying.classify(
            self._handler, _task(request.model_spec, _examples(request.input), call)
        )
        return TFSERVING.ClassificationResponse(
            model_spec=_spec_of(answer), result=_result_of(answer)
        )

    async def _regress(self, request: Any, call: Call) -> Any:
        answer = await classifying.regress(
            self._handler, _task(request.model_spec, _examples(request.input), call)
        )
        return TFSERVING.RegressionResponse(model_spec=_spec_of(answer), result=_result_of(answer))

    async def _multi_inference(self, request: Any, call: Call) -> Any:
        given = _examples(request.input)
        answers = await classifying.multi_infer(
            self._handler,
            [(task.method_name, _task(task.model_spec, given, call)) for task in request.tasks],
        )
        response = TFSERVING.MultiInferenceResponse()
        for answer in answers:
            kind = "classification" if isinstance(answer, Classified) else "regression"
            result = {f"{kind}_result": _result_of(answer)}
            response.results.add(model_spec=_spec_of(answer), **result)
        return response

    async def _metadata(self, request: Any, call: Call) -> Any:
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != _SIGNATURES:
                raise invalid(f"Metadata field {field[:40]} is not supported")
        found = await self._handler.metadata(_ref(request.model_spec), call.deadline)
        signatures = TFSERVING.SignatureDefMap()
        for name, signature in found.signatures.items():
            _put_signature(signature, signatures.signature_def[name])
        spec = {"name": found.name, "version": {"value": found.version}}
        response = TFSERVING.GetModelMetadataResponse(model_spec=spec)
        packed = response.metadata[_SIGNATURES]
        packed.type_url = f"type.googleapis.com/{signatures.DESCRIPTOR.full_name}"
        packed.value = signatures.SerializeToString()
        return response


class Models:
    """The `ModelService` of a handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def service(self) -> Service:
        return Service(
            TFSERVING,
            "ModelService",
            {
                "GetModelStatus": Method(self._status),
                "HandleReloadConfigRequest": Method(self._reload, Role.ADMIN),
            },
        )

    async def _status(self, request: Any, call: Call) -> Any:
        ref = _ref(request.model_spec)
        statuses = self._handler.statuses(ref.name)
        response = TFSERVING.GetModelStatusResponse()
        for status in statuses:
            if ref.version not in (None, status.version):
                continue
            if ref.label is not None and ref.label not in status.labels:
                continue
            listed = response.model_version_status.add(
                version=status.version, state=status.state.value
            )
            listed.status.error_code = Status.UNAVAILABLE.grpc if status.error else 0
            listed.status.error_message = status.error
        if not response.model_version_status:
            raise Refused(Status.NOT_FOUND, f"Could not find any versions of model {ref}")
        return response

    async def _reload(self, request: Any, call: Call) -> Any:
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid("a request must have a list of models")
        known = self._handler.catalogue.rules()
        wanted = {}
        for config in request.config.model_config_list.config:
            if config.name not in known:
                raise Refused(Status.NOT_FOUND, f"no model {config.name[:100]!r} is set up here")
            wanted[config.name] = _changed(known[config.name], config)
        await self._handler.serve_only(wanted)
        response = TFSERVING.ReloadConfigResponse()
        response.status.error_code = 0  # makes the field present, with OK
        return response


def _changed(rules: ModelRules, config: Any) -> ModelRules:
    """The rules with the changes that a request may make; a path in it is never used."""
    if config.base_path and os.path.abspath(config.base_path) != os.path.abspath(rules.path):
        raise Refused(
            Status.PERMISSION_DENIED, f"{config.name!r}: a request cannot set the base_path"
        )
    policy = config.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    versions: Any = rules.versions
    if choice == "latest":
        versions = f"latest {max(1, policy.latest.num_versions)}"
    elif choice == "specific":
        versions = sorted(set(policy.specific.versions))
    elif choice is not None:
        versions = "all"
    labels = dict(config.version_labels) or rules.labels
    try:
        return msgspec.structs.replace(rules, versions=versions, labels=labels)
    except ValueError as error:
        raise invalid(f"{config.name!r}: {error}") from None


def _ref(spec: Any) -> ModelRef:
    if not spec.name:
        raise invalid("a request must name a model")
    choice = spec.WhichOneof("version_choice")
    if choice == "version":
        return ModelRef(spec.name, spec.version.value)
    return ModelRef(spec.name, label=spec.version_label if choice else None)


def _task(spec: Any, given: list[bytes], call: Call) -> Task:
    return Task(_ref(spec), given, spec.signature_name or None, call.deadline, call.request_id)


def _examples(given: Any) -> list[bytes]:
    """The request's examples, each serialized as in a file of examples."""
    kind = given.WhichOneof("kind")
    if kind is None:
        raise invalid("a request must have examples")
    listed = getattr(given, kind)
    found = [example.SerializeToString() for example in listed.examples]
    if kind == "example_list":
        return found
    return examples.with_context(found, listed.context.SerializeToString())


def _spec_of(answer: Answer | Classified | Regressed) -> dict[str, Any]:
    """The model, version and signature that answered."""
    version = {"value": answer.version}
    return {"name": answer.model, "version": version, "signature_name": answer.signature}


def _result_of(answer: Classified | Regressed) -> dict[str, Any]:
    if isinstance(answer, Regressed):
        return {"regressions": [{"value": value} for value in answer.values]}
    rows = [[{"label": label, "score": score} for label, score in row] for row in answer.rows]
    return {"classifications": [{"classes": row} for row in rows]}


def _put_signature(call: CallSignature, proto: Any) -> None:
    _put_infos(call.spec.inputs, call.input_tensors, proto.inputs)
    _put_infos(call.spec.outputs, call.output_tensors, proto.outputs)
    proto.method_name = call.method


def _put_infos(specs: Mapping[str, TensorSpec], names: Mapping[str, str], infos: Any) -> None:
    for name, spec in specs.items():
        info = infos[name]
        info.name = names.get(name, name)
        info.dtype = tensors.number_of(spec.dtype)
        if spec.shape is None:
            info.tensor_shape.unknown_rank = True
        else:
            for dim in spec.shape:
                info.tensor_shape.dim.add().size = -1 if dim is None else dim
