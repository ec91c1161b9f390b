"""KServe v2 over gRPC, as Triton's clients use it. Translates only."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from sojourn.service import kserve_facts as told
from sojourn.service.failures import Refused, invalid
from sojourn.service.grpc import contents
from sojourn.service.grpc.calls import Call, Method, Service, Stream
from sojourn.service.grpc.messages import KSERVE
from sojourn.service.handler import Handler
from sojourn.service.http.router import Role
from sojourn.service.inference import Inference, ModelRef, check_parameters, keep_alive_of
from sojourn.service.versions import number_in


class KServe:
    """The KServe service of a handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def service(self) -> Service:
        return Service(
            KSERVE,
            "GRPCInferenceService",
            {
                "ServerLive": Method(self._server_live, Role.ANYBODY),
                "ServerReady": Method(self._server_ready, Role.ANYBODY),
                "ServerMetadata": Method(self._server_metadata, Role.ANYBODY),
                "ModelReady": Method(self._model_ready),
                "ModelMetadata": Method(self._model_metadata),
                "ModelConfig": Method(self._model_config),
                "ModelInfer": Method(self._model_infer),
                "ModelStreamInfer": Stream(self._stream_infer),
                "ModelStatistics": Method(self._statistics),
                "RepositoryIndex": Method(self._index),
                "RepositoryModelLoad": Method(self._load, Role.ADMIN),
                "RepositoryModelUnload": Method(self._unload, Role.ADMIN),
            },
        )

    # -- inference -------------------------------------------------------------------------------

    async def _model_infer(self, request: Any, call: Call) -> Any:
        answer = await self._handler.infer(_inference(request, call))
        response = KSERVE.ModelInferResponse(
            model_name=answer.model, model_version=str(answer.version), id=request.id
        )
        raw = bool(request.raw_input_contents) or not request.inputs
        contents.put_outputs(answer.outputs, response, raw=raw)
        return response

    async def _stream_infer(self, requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        async for request in requests:
            try:
                response = await self._model_infer(request, call)
                yield KSERVE.ModelStreamInferResponse(infer_response=response)
            except Refused as error:
                failed = KSERVE.ModelInferResponse(model_name=request.model_name, id=request.id)
                yield KSERVE.ModelStreamInferResponse(
                    error_message=str(error), infer_response=failed
                )

    # -- the server and its models ---------------------------------------------------------------

    async def _server_live(self, request: Any, call: Call) -> Any:
        return KSERVE.ServerLiveResponse(live=True)

    async def _server_ready(self, request: Any, call: Call) -> Any:
        return KSERVE.ServerReadyResponse(ready=self._handler.is_ready())

    async def _server_metadata(self, request: Any, call: Call) -> Any:
        return KSERVE.ServerMetadataResponse(**told.SERVER)

    async def _model_ready(self, request: Any, call: Call) -> Any:
        ready = self._handler.is_ready(_ref(request.name, request.version))
        return KSERVE.ModelReadyResponse(ready=ready)

    async def _model_metadata(self, request: Any, call: Call) -> Any:
        found = await self._handler.metadata(_ref(request.name, request.version), call.deadline)
        return KSERVE.ModelMetadataResponse(**told.metadata(found))

    async def _model_config(self, request: Any, call: Call) -> Any:
        found = await self._handler.metadata(_ref(request.name, request.version), call.deadline)
        config = told.config(found)
        types = KSERVE.descriptor.enum_types_by_name["DataType"].values_by_name
        for each in (*config["input"], *config["output"]):
            if each["data_type"] not in types:
                each["data_type"] = 0
        return KSERVE.ModelConfigResponse(config=config)

    async def _statistics(self, request: Any, call: Call) -> Any:
        ref = _ref(request.name, request.version) if request.name else None
        found = self._handler.statistics_of(ref)
        return KSERVE.ModelStatisticsResponse(model_stats=map(told.statistics, found))

    # -- the repository --------------------------------------------------------------------------

    async def _index(self, request: Any, call: Call) -> Any:
        found = told.index(self._handler.statuses(), request.ready)
        return KSERVE.RepositoryIndexResponse(models=found)

    async def _load(self, request: Any, call: Call) -> Any:
        if request.parameters:
            raise invalid("a model is loaded as it is registered; parameters are not offered here")
        await self._handler.load(request.model_name)
        return KSERVE.RepositoryModelLoadResponse()

    async def _unload(self, request: Any, call: Call) -> Any:
        await self._handler.unload(request.model_name)
        return KSERVE.RepositoryModelUnloadResponse()


def _ref(name: str, version: str) -> ModelRef:
    if not version:
        return ModelRef(name)
    number = number_in(version)
    if number is None:
        raise invalid(f"a version must be a number, not {version[:40]!r}")
    return ModelRef(name, number)


def _inference(request: Any, call: Call) -> Inference:
    parameters = _values(request.parameters)
    check_parameters(parameters)
    for kind, tensors in (("input", request.inputs), ("output", request.outputs)):
        for tensor in tensors:
            if tensor.parameters:
                check_parameters(_values(tensor.parameters), f"{kind} {tensor.name!r}")
    deadline = call.deadline
    timeout = parameters.get("timeout")
    if isinstance(timeout, int) and timeout > 0:  # in microseconds
        until = time.monotonic() + timeout / 1e6
        deadline = until if deadline is None else min(deadline, until)
    return Inference(
        _ref(request.model_name, request.model_version),
        contents.inputs_of(request),
        tuple(output.name for output in request.outputs) or None,
        None,
        deadline,
        request.id or call.request_id,
        keep_alive_of(parameters.get("keep_alive")),
    )


def _values(parameters: Any) -> dict[str, Any]:
    found = {}
    for name, given in parameters.items():
        which = given.WhichOneof("parameter_choice")
        found[name] = None if which is None else getattr(given, which)
    return found
