"""Ask a server by tritonclient's four clients. Runs in an environment that has them.

Arguments: the addresses of gRPC and HTTP, and a file with our descriptor of KServe's messages.
Prints `ok` if all went as promised.
"""

from __future__ import annotations

import asyncio
import queue
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tritonclient.grpc as sync_grpc
import tritonclient.grpc.aio as aio_grpc
from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

X = np.array([[1.0, 2.0]], np.float32)
LETTERS = np.array(["a", "bcd"], object)


def main(grpc_address: str, http_address: str, descriptor: str) -> None:
    compare(descriptor)
    ask_by_grpc(sync_grpc.InferenceServerClient(grpc_address))
    asyncio.run(ask_by_aio(aio_grpc, grpc_address))
    if http_address:
        import tritonclient.http as sync_http
        import tritonclient.http.aio as aio_http

        ask_by_http(sync_http.InferenceServerClient(http_address), sync_http)
        asyncio.run(ask_by_aio(aio_http, http_address))
    print("ok")


def compare(path: str) -> None:
    """Every field that we declare is one of theirs: its name, its number and its type."""
    with open(path, "rb") as file:
        ours = descriptor_pb2.FileDescriptorProto.FromString(file.read())
    theirs: dict[str, Any] = {}
    for module in (service_pb2, model_config_pb2):
        declared = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(declared)
        theirs |= fields(declared.message_type)
    mine = fields(ours.message_type)
    assert len(mine) > 100
    assert mine == {name: theirs.get(name) for name in mine}


def fields(messages: Any, scope: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for message in messages:
        name = f"{scope}.{message.name}"
        for field in message.field:
            kind = (field.number, field.type, field.type_name, field.label)
            found[f"{name}.{field.name}"] = kind
        found |= fields(message.nested_type, name)
    return found


def given(module: Any, name: str, array: np.ndarray, datatype: str) -> Any:
    tensor = module.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except InferenceServerException as error:
        return str(error)
    raise AssertionError("it was answered")


def ask(client: Any, module: Any) -> None:
    """What both protocols have."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("numbers")
    assert client.is_model_ready("numbers", "1")
    assert not client.is_model_ready("none")
    x = given(module, "x", X, "FP32")
    result = client.infer("numbers", [x], request_id="7")
    np.testing.assert_array_equal(result.as_numpy("y"), X * 3)
    result = client.infer(
        "numbers", [x], model_version="1", outputs=[module.InferRequestedOutput("y")]
    )
    np.testing.assert_array_equal(result.as_numpy("y"), X * 2)
    assert "Servable not found" in error_of(lambda: client.infer("none", [x]))
    client.unload_model("numbers")
    assert not client.is_model_ready("numbers")
    client.load_model("numbers")
    assert client.is_model_ready("numbers")


def ask_by_grpc(client: Any) -> None:
    ask(client, sync_grpc)
    assert client.get_server_metadata().name == "sojourn"
    metadata = client.get_model_metadata("numbers", as_json=True)
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "2"]}], metadata
    assert client.get_model_config("numbers").config.input[0].name == "x"
    assert {m.name for m in client.get_model_repository_index().models} == {"examples", "numbers"}
    assert client.get_inference_statistics("numbers").model_stats[0].inference_count > 0
    x = given(sync_grpc, "x", X, "FP32")
    answers: queue.Queue[Any] = queue.Queue()
    client.async_infer("numbers", [x], lambda result, error: answers.put((result, error)))
    result, error = answers.get(timeout=20)
    assert error is None
    np.testing.assert_array_equal(result.as_numpy("y"), X * 3)
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("numbers", [x], request_id="first")
    client.async_stream_infer("none", [x], request_id="second")
    result, error = answers.get(timeout=20)
    assert error is None
    assert result.get_response().id == "first"
    result, error = answers.get(timeout=20)
    assert "Servable not found" in str(error)
    client.stop_stream()
    half = given(sync_grpc, "x", X.astype(np.float16), "FP16")
    np.testing.assert_array_equal(client.infer("numbers", [half]).as_numpy("y"), X * 3)
    many = given(sync_grpc, "x", np.zeros((1_000_000, 2), np.float32), "FP32")
    late = error_of(lambda: client.infer("numbers", [many], client_timeout=1e-6))
    assert "DEADLINE_EXCEEDED" in late
    client.close()


def ask_by_http(client: Any, module: Any) -> None:
    ask(client, module)
    assert client.get_server_metadata()["name"] == "sojourn"
    metadata = client.get_model_metadata("numbers")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], metadata
    names = {each["name"] for each in client.get_model_repository_index()}
    assert names == {"examples", "numbers"}, names
    (statistics,) = client.get_inference_statistics("numbers", "2")["model_stats"]
    assert statistics["inference_count"] > 0
    # Data and answers as JSON, in bytes, and compressed.
    for is_raw in (True, False):
        x = module.InferInput("x", X.shape, "FP32")
        x.set_data_from_numpy(X, binary_data=is_raw)
        for answer_is_raw in (True, False):
            wanted = [module.InferRequestedOutput("y", binary_data=answer_is_raw)]
            for coding in (None, "gzip", "deflate"):
                result = client.infer(
                    "numbers", [x], outputs=wanted, request_compression_algorithm=coding
                )
                np.testing.assert_array_equal(result.as_numpy("y"), X * 3)
    half = given(module, "x", X.astype(np.float16), "FP16")
    np.testing.assert_array_equal(client.infer("numbers", [half]).as_numpy("y"), X * 3)
    pending = [client.async_infer("numbers", [given(module, "x", X, "FP32")]) for _ in range(5)]
    for each in pending:
        np.testing.assert_array_equal(each.get_result().as_numpy("y"), X * 3)
    assert "takes float32" in error_of(
        lambda: client.infer("numbers", [given(module, "x", X.reshape(2, 1), "FP32")])
    )
    client.close()


async def ask_by_aio(module: Any, address: str) -> None:
    async with module.InferenceServerClient(address) as client:
        assert await client.is_server_live()
        x = given(module, "x", X, "FP32")
        results = await asyncio.gather(*(client.infer("numbers", [x]) for _ in range(20)))
        for result in results:
            np.testing.assert_array_equal(result.as_numpy("y"), X * 3)


if __name__ == "__main__":
    main(*sys.argv[1:])
