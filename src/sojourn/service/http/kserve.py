"""The KServe v2 protocol (Open Inference Protocol) with its binary extension, over HTTP."""

from __future__ import annotations

import functools
import math
from time import monotonic as clock

import numpy as np

from sojourn.service import datatypes
from sojourn.service import kserve_facts as told
from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.handler import Handler
from sojourn.service.http import json_arrays
from sojourn.service.http import kserve_bodies as bodies
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.router import Role, Router
from sojourn.service.inference import Inference, ModelRef
from sojourn.service.versions import number_in
from sojourn.values import TensorSpec

HEADER_LENGTH = bodies.HEADER_LENGTH.lower()


class KServe:
    """Translates between HTTP and the handler, which does the work."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        router.add("GET", "/v2", self.server, role=Role.ANYBODY, summary="Server metadata")
        router.add("GET", "/v2/health/live", self.live, role=Role.ANYBODY, summary="Is it alive?")
        router.add("GET", "/v2/health/ready", self.ready, role=Role.ANYBODY, summary="Is it ready?")
        for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            router.add("POST", f"{model}/infer", self.infer, summary="Run a model")
            router.add("GET", model, self.metadata, summary="What a model takes and gives")
            router.add("GET", f"{model}/config", self.config, summary="The same, as Triton has it")
            router.add("GET", f"{model}/ready", self.model_ready, summary="Is a model ready?")
            router.add("GET", f"{model}/stats", self.statistics, summary="What a model has done")
        router.add("GET", "/v2/models/stats", self.statistics, summary="What all have done")
        router.add("POST", "/v2/repository/index", self.index, summary="Every model and its state")
        loading = "/v2/repository/models/{name}"
        router.add("POST", f"{loading}/load", self.load, role=Role.ADMIN, summary="Load a model")
        router.add(
            "POST", f"{loading}/unload", self.unload, role=Role.ADMIN, summary="Unload a model"
        )

    # -- the server and its models ---------------------------------------------------------------

    async def server(self, request: Request) -> Response:
        return json_response(told.SERVER)

    async def live(self, request: Request) -> Response:
        return json_response({"live": True})

    async def ready(self, request: Request) -> Response:
        is_ready = self._handler.is_ready()
        return json_response({"ready": is_ready, "live": True}, 200 if is_ready else 503)

    async def model_ready(self, request: Request) -> Response:
        ref = ref_of(request)
        self._handler.catalogue.resolve(ref)  # raises "not found" for a model that does not exist
        is_ready = self._handler.is_ready(ref)
        answer = {"name": ref.name, "ready": is_ready}
        return json_response(answer, 200 if is_ready else 503)

    async def metadata(self, request: Request) -> Response:
        return json_response(told.metadata(await self._handler.metadata(ref_of(request))))

    async def config(self, request: Request) -> Response:
        return json_response(told.config(await self._handler.metadata(ref_of(request))))

    async def statistics(self, request: Request) -> Response:
        found = self._handler.statistics_of(ref_of(request) if request.parts else None)
        return json_response({"model_stats": [told.statistics(each) for each in found]})

    # -- the repository --------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        asked = json_arrays.parsed(request.body) if request.body.strip() else {}
        wants_ready = isinstance(asked, dict) and asked.get("ready") is True
        return json_response(told.index(self._handler.statuses(), wants_ready))

    async def load(self, request: Request) -> Response:
        asked = json_arrays.parsed(request.body) if request.body.strip() else {}
        if isinstance(asked, dict) and asked.get("parameters"):
            raise invalid("a model is loaded as the server knows it: parameters are not taken")
        await self._handler.load(request.parts["name"])
        return json_response({})

    async def unload(self, request: Request) -> Response:
        receipts = await self._handler.unload(request.parts["name"])
        return json_response({"receipts": [receipt.to_dict() for receipt in receipts]})

    # -- inference -------------------------------------------------------------------------------

    async def infer(self, request: Request) -> Response:
        header_length = request.headers.get(HEADER_LENGTH)
        if header_length is None:
            asked, raw = bodies.in_json(request.body)
        elif header_length == "0":
            return await self._infer_raw(request)
        else:
            asked, raw = bodies.in_bytes(request.body, header_length)
        answer = await self._handler.infer(
            Inference(
                ref_of(request),
                asked.arrays(raw),
                asked.outputs,
                deadline=None if asked.seconds is None else clock() + asked.seconds,
                request_id=asked.id or request.request_id,
                keep_alive=asked.keep_alive,
            )
        )
        return bodies.response(answer, asked)

    async def _infer_raw(self, request: Request) -> Response:
        """Run a model whose only input is the whole body; the answer's outputs are raw too."""
        ref = ref_of(request)
        call, deadline = await self._handler.signature(ref)
        signature = call.spec
        if len(signature.inputs) != 1:
            raise invalid(
                f"a raw body is for models with one input; {ref.name!r} has {len(signature.inputs)}"
            )
        ((name, spec),) = signature.inputs.items()
        inputs = {name: _from_body(request.body, name, spec)}
        answer = await self._handler.infer(
            Inference(ref, inputs, deadline=deadline, request_id=request.request_id)
        )
        return bodies.response(answer, bodies.RAW)


def ref_of(request: Request) -> ModelRef:
    """The model that the path names."""
    parts = request.parts
    return _ref(parts["name"], parts.get("version"))


@functools.lru_cache(1024)  # most names are requested repeatedly
def _ref(name: str, version: str | None) -> ModelRef:
    if version is None or version == "":
        return ModelRef(name)
    number = number_in(version)
    if number is None:
        raise Refused(Status.NOT_FOUND, f"model {name!r} has no version {version[:40]!r}")
    return ModelRef(name, number)


def _from_body(body: bytes, name: str, spec: TensorSpec) -> np.ndarray:
    datatype = datatypes.datatype_named(spec.dtype)
    dtype = datatypes.dtype_of(datatype, name)
    shape = [None] if spec.shape is None else list(spec.shape)
    if datatype == datatypes.BYTES:
        array = np.empty(1, object)
        array[0] = body
        return array.reshape([1] * len(shape))
    if shape.count(None) > 1:
        raise invalid(f"a raw body does not say the shape of input {name!r}, which is {spec}")
    known = math.prod(dim for dim in shape if dim is not None) * dtype.itemsize
    rest = len(body) // known if known else 0
    filled = tuple(rest if dim is None else dim for dim in shape)
    return datatypes.from_raw(body, datatype, filled, name)
