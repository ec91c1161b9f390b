"""A gRPC client made of grpcio and sojourn's own messages, and a handler that needs no models."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import uvloop
from google.protobuf import message_factory

from sojourn.service.failures import Refused, Status
from sojourn.service.grpc.door import GrpcDoor
from sojourn.service.grpc.messages import HEALTH, KSERVE, REFLECTION, REFLECTION_ALPHA, TFSERVING
from sojourn.service.inference import Answer, Inference, ModelRef
from sojourn.service.signatures import plain
from sojourn.values import Signature, TensorSpec

FILES = {"inference": KSERVE, "tensorflow.serving": TFSERVING, "grpc.health.v1": HEALTH}
FILES |= {"grpc.reflection.v1": REFLECTION, "grpc.reflection.v1alpha": REFLECTION_ALPHA}


class Client:
    """Calls methods by name: `client("inference.GRPCInferenceService/ServerLive")`."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def __call__(self, path: str, request: Any = None, timeout: float = 20, **options: Any) -> Any:
        """Return the answer, or for a stream all answers."""
        asked, answered, (many_in, many_out) = described(path)
        kind = f"{'stream' if many_in else 'unary'}_{'stream' if many_out else 'unary'}"
        stub = getattr(self.channel, kind)(
            f"/{path}",
            request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
            response_deserializer=answered.FromString,
        )
        given = asked() if request is None else request
        answer = stub(given, timeout=timeout, **options)
        return list(answer) if many_out else answer


def described(path: str) -> tuple[Any, Any, tuple[bool, bool]]:
    """Return the request and response classes of a method, and which of the two are streams."""
    service, name = path.split("/")
    package, _, service_name = service.rpartition(".")
    method = FILES[package].descriptor.services_by_name[service_name].methods_by_name[name]
    classes = [message_factory.GetMessageClass(t) for t in (method.input_type, method.output_type)]
    return *classes, (method.client_streaming, method.server_streaming)


@contextlib.contextmanager
def connected(address: str, credentials: Any = None, **options: Any) -> Iterator[Client]:
    if credentials is None:
        channel = grpc.insecure_channel(address, **options)
    else:
        channel = grpc.secure_channel(address, credentials, **options)
    with channel:
        yield Client(channel)


@contextlib.contextmanager
def opened(door: GrpcDoor, handler: Any, grace: float = 1.0) -> Iterator[str]:
    """Start a door on an event loop in a thread of its own, and yield its address."""
    loop = uvloop.new_event_loop()  # as the server's
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(door.start(handler), loop).result(20)
    finally:
        asyncio.run_coroutine_threadsafe(door.stop(grace), loop).result(20)
        asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Doubler:
    """A handler with one model, `double`: y is twice x. It records the requests."""

    def __init__(self) -> None:
        self.asked: list[Inference] = []
        self.error: Callable[[], Exception] | None = None
        self.waits: asyncio.Event | None = None
        self.was_cancelled = threading.Event()

    async def infer(self, inference: Inference) -> Answer:
        self.asked.append(inference)
        if self.error is not None:
            raise self.error()
        if self.waits is not None:
            try:
                await self.waits.wait()
            except asyncio.CancelledError:
                self.was_cancelled.set()
                raise
        self._resolve(inference.model)
        return Answer("double", 3, {"y": inference.inputs["x"] * 2})

    def _resolve(self, ref: ModelRef) -> None:
        if ref.name != "double":
            raise Refused(Status.NOT_FOUND, f"Servable not found for request: {ref}")

    async def signature(self, ref: ModelRef, name: str | None, deadline: float | None) -> Any:
        return (await self.metadata(ref)).signatures["serving_default"], deadline

    async def metadata(self, ref: ModelRef, deadline: float | None = None) -> Any:
        self._resolve(ref)
        spec = TensorSpec("float32", (None, 2))
        signature = Signature({"x": spec}, {"y": spec})
        return SimpleNamespace(
            name="double",
            version=3,
            versions=(2, 3),
            platform="tensorflow_savedmodel",
            engine="tensorflow",
            signatures={"serving_default": plain("serving_default", signature)},
            usual=signature,
            memory=0,
        )

    def is_ready(self, ref: ModelRef | None = None) -> bool:
        return ref is None or ref.name == "double"


def infer_request(x: np.ndarray, model: str = "double", **fields: Any) -> Any:
    """Return a KServe request with raw contents."""
    request = KSERVE.ModelInferRequest(model_name=model, raw_input_contents=[x.tobytes()], **fields)
    request.inputs.add(name="x", datatype="FP32", shape=x.shape)
    return request
