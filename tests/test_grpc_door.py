"""The gRPC door: who may call, how failures look, deadlines, health and reflection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from grpc_clients import Doubler, connected, infer_request, opened
from sojourn.errors import InputError
from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.grpc import dispatch as dispatch_module
from sojourn.service.grpc import exchange as exchange_module
from sojourn.service.grpc import health as health_module
from sojourn.service.grpc.door import GrpcDoor
from sojourn.service.grpc.messages import HEALTH, KSERVE, REFLECTION, REFLECTION_ALPHA, TFSERVING
from sojourn.service.http.gate import Gate
from sojourn.service.http.limits import Limits
from sojourn.service.http.router import Role
from sojourn.service.reports import Reports
from sojourn.service.tokens import Tokens
from sojourn.session.metrics import text

KS = "inference.GRPCInferenceService"
TFS = "tensorflow.serving.PredictionService"
X = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture
def handler():
    return Doubler()


@pytest.fixture
def door():
    return GrpcDoor("127.0.0.1:0")


@pytest.fixture
def client(door, handler):
    with opened(door, handler) as address, connected(address) as client:
        yield client


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refused(client, path, request, **options):
    with pytest.raises(grpc.RpcError) as error:
        client(path, request, **options)
    return error.value.code().name, error.value.details()


def put_values(proto, shape, *values):
    proto.dtype = 1
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    proto.float_val.extend(values)


def test_a_request_of_each_protocol_is_answered(client):
    response = client(f"{KS}/ModelInfer", infer_request(X, id="a"))
    assert (response.model_name, response.model_version, response.id) == ("double", "3", "a")
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [2.0, 4.0]
    request = TFSERVING.PredictRequest(model_spec={"name": "double"})
    put_values(request.inputs["x"], [1], 4)
    response = client(f"{TFS}/Predict", request)
    assert list(response.outputs["y"].float_val) == [8.0]
    assert response.model_spec.version.value == 3


def test_typed_contents_are_answered_in_kind(client):
    request = KSERVE.ModelInferRequest(model_name="double")
    tensor = request.inputs.add(name="x", datatype="INT16", shape=[2])
    tensor.contents.int_contents.extend([1, -2])
    response = client(f"{KS}/ModelInfer", request)
    assert not response.raw_output_contents
    assert response.outputs[0].datatype == "INT16"
    assert list(response.outputs[0].contents.int_contents) == [2, -4]


def test_a_stream_answers_each_request_in_turn_and_survives_a_bad_one(client):
    requests = [
        infer_request(X, id="1"),
        infer_request(X, "none", id="2"),
        infer_request(X, id="3"),
    ]
    answers = client(f"{KS}/ModelStreamInfer", iter(requests))
    assert [a.infer_response.id for a in answers] == ["1", "2", "3"]
    assert [a.error_message for a in answers] == [
        "", "Servable not found for request: Latest(none)", ""
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lambda: InputError("input 'x' takes float32"), "INVALID_ARGUMENT"),
        (
            lambda: Refused(Status.RESOURCE_EXHAUSTED, "the queue is full", 2.0),
            "RESOURCE_EXHAUSTED",
        ),
        (lambda: Refused(Status.UNAVAILABLE, "the worker died", 1.0), "UNAVAILABLE"),
    ],
)
def test_a_failure_has_its_code_and_its_words(client, handler, error, code):
    handler.error = error
    told = error()
    with pytest.raises(grpc.RpcError) as failed:
        client(f"{KS}/ModelInfer", infer_request(X))
    assert (failed.value.code().name, failed.value.details()) == (code, str(told))
    trailing = dict(failed.value.trailing_metadata())
    pushback = getattr(told, "retry_after", None)
    assert trailing.get("grpc-retry-pushback-ms") == (pushback and str(int(pushback * 1000)))


def test_an_unexpected_error_is_logged_and_its_words_stay_here(client, handler, caplog):
    handler.error = lambda: ZeroDivisionError("secret")
    code, words = refused(client, f"{KS}/ModelInfer", infer_request(X))
    assert code == "INTERNAL"
    assert "secret" not in words
    assert "secret" in caplog.text
    caplog.clear()  # it refers to the call, and so to the server


def test_a_failure_of_many_words_still_has_its_code(client, handler):
    handler.error = lambda: InputError("é" * 100_000)
    code, words = refused(client, f"{KS}/ModelInfer", infer_request(X))
    assert code == "INVALID_ARGUMENT"
    assert set(words) == {"é"}


@pytest.mark.parametrize("words", ["no \udcff here", "no\x00 here\r\n"])
def test_a_failure_in_words_that_are_no_text_still_has_its_code(client, handler, words):
    handler.error = lambda: InputError(words)
    code, told = refused(client, f"{KS}/ModelInfer", infer_request(X))
    assert (code, told) == ("INVALID_ARGUMENT", words.replace("\udcff", "?"))
    handler.error = lambda: refusal(InputError(words))
    answers = client(f"{KS}/ModelStreamInfer", iter([infer_request(X)]))
    assert answers[0].error_message == told


def test_a_client_that_leaves_its_stream_leaves_nothing_else(client, handler):
    ends = threading.Event()
    stub = client.channel.stream_stream(f"/{KS}/ModelStreamInfer")

    def requests():
        yield infer_request(X).SerializeToString()
        ends.wait(20)

    answers = stub(requests(), timeout=20)
    next(answers)
    answers.cancel()
    ends.set()
    assert client(f"{KS}/ServerLive").live


def test_a_malformed_message_is_the_clients_fault(client):
    for path in (f"{KS}/ModelInfer", f"{TFS}/Predict", "grpc.health.v1.Health/Check"):
        code, words = refused(client, path, b"\xff\xff\xff")
        assert code == "INVALID_ARGUMENT"
        assert "the message is not a" in words


def test_what_is_not_offered_is_refused_and_not_ignored(client):
    request = infer_request(X)
    request.inputs[0].parameters["shared_memory_region"].string_param = "r"
    assert refused(client, f"{KS}/ModelInfer", request)[0] == "INVALID_ARGUMENT"
    request = infer_request(X)
    request.parameters["sequence_id"].int64_param = 7
    assert refused(client, f"{KS}/ModelInfer", request)[0] == "INVALID_ARGUMENT"
    request = infer_request(X)
    request.outputs.add(name="y").parameters["classification"].int64_param = 2
    assert refused(client, f"{KS}/ModelInfer", request)[0] == "INVALID_ARGUMENT"
    request = infer_request(X)
    request.outputs.add(name="y").parameters["content_type"].string_param = "np"  # a hint
    client(f"{KS}/ModelInfer", request)


def test_a_clients_deadline_reaches_the_handler_and_cancels_what_is_late(client, handler):
    client(f"{KS}/ModelInfer", infer_request(X), timeout=15)
    assert 5 < handler.asked[-1].deadline - time.monotonic() < 16  # gRPC rounds up
    request = infer_request(X)
    request.parameters["timeout"].int64_param = 3_000_000
    client(f"{KS}/ModelInfer", request, timeout=15)
    assert handler.asked[-1].deadline - time.monotonic() < 3


def test_a_call_that_is_too_late_is_cancelled_in_the_handler(client, handler):
    handler.waits = asyncio.Event()
    assert refused(client, f"{KS}/ModelInfer", infer_request(X), timeout=0.3)[0] == (
        "DEADLINE_EXCEEDED"
    )
    assert handler.was_cancelled.wait(10)


def test_a_client_that_hangs_up_cancels_its_call(client, handler):
    handler.waits = asyncio.Event()
    stub = client.channel.unary_unary(f"/{KS}/ModelInfer")
    call = stub.future(infer_request(X).SerializeToString(), timeout=20)
    while not handler.asked:
        time.sleep(0.01)
    call.cancel()
    assert handler.was_cancelled.wait(10)


def test_health_says_whether_it_serves(client):
    path = "grpc.health.v1.Health/Check"
    for service in ("", KS, TFS):
        assert client(path, HEALTH.HealthCheckRequest(service=service)).status == 1
    assert refused(client, path, HEALTH.HealthCheckRequest(service="x"))[0] == "NOT_FOUND"


def test_a_watch_ends_with_not_serving_when_the_server_stops(door, handler):
    with contextlib.ExitStack() as stack:
        with opened(door, handler) as address:
            client = stack.enter_context(connected(address))
            watch = client.channel.unary_stream(
                "/grpc.health.v1.Health/Watch",
                response_deserializer=HEALTH.HealthCheckResponse.FromString,
            )(b"", timeout=20)
            assert next(watch).status == 1
        assert [answer.status for answer in watch] == [2]


def test_a_stream_that_is_silent_does_not_hold_up_the_end(door, handler):
    ends = threading.Event()

    def requests():
        yield infer_request(X).SerializeToString()
        ends.wait(20)

    with contextlib.ExitStack() as stack:
        stack.callback(ends.set)
        began = time.monotonic()
        with opened(door, handler, grace=60) as address:
            client = stack.enter_context(connected(address))
            stub = client.channel.stream_stream(f"/{KS}/ModelStreamInfer")
            answers = stub(requests(), timeout=20)
            next(answers)
        assert time.monotonic() - began < 15
        assert list(answers) == []


@pytest.mark.parametrize("file", [REFLECTION, REFLECTION_ALPHA])
def test_reflection_describes_every_service(client, file):
    path = f"{file.descriptor.package}.ServerReflection/ServerReflectionInfo"
    asks = [
        file.ServerReflectionRequest(list_services="*"),
        file.ServerReflectionRequest(file_containing_symbol=TFS),
        file.ServerReflectionRequest(file_containing_symbol=f"{TFS}.Predict"),
        file.ServerReflectionRequest(file_by_filename="none.proto"),
        file.ServerReflectionRequest(file_containing_symbol=f"{TFS}.None"),
    ]
    listed, found, with_method, *missing = client(path, iter(asks))
    names = [service.name for service in listed.list_services_response.service]
    assert KS in names
    assert TFS in names
    assert "grpc.health.v1.Health" in names
    assert len(found.file_descriptor_response.file_descriptor_proto) == 4
    assert with_method.file_descriptor_response == found.file_descriptor_response
    assert [one.error_response.error_code for one in missing] == [5, 5]


def test_a_token_allows_what_its_role_does(handler):
    gate = Gate(Tokens([(Role.INFER, "infer-token-of-16"), (Role.ADMIN, "admin-token-of-16")]))
    door = GrpcDoor("127.0.0.1:0", gate=gate)
    with opened(door, handler) as address, connected(address) as client:
        assert client(f"{KS}/ServerLive").live
        assert refused(client, f"{KS}/ModelInfer", infer_request(X))[0] == "UNAUTHENTICATED"
        metadata = [("authorization", "Bearer infer-token-of-16")]
        client(f"{KS}/ModelInfer", infer_request(X), metadata=metadata)
        load = KSERVE.RepositoryModelLoadRequest(model_name="double")
        code = refused(client, f"{KS}/RepositoryModelLoad", load, metadata=metadata)[0]
        assert code == "PERMISSION_DENIED"
        wrong = [("authorization", "Bearer guessed")]
        code = refused(client, f"{KS}/ModelInfer", infer_request(X), metadata=wrong)[0]
        assert code == "UNAUTHENTICATED"


@pytest.mark.parametrize("lacks", ["google.protobuf", "hpack"])
def test_a_door_does_not_open_without_what_its_clients_need(handler, monkeypatch, lacks):
    monkeypatch.setitem(sys.modules, lacks, None)
    with pytest.raises(ModuleNotFoundError, match=lacks), opened(GrpcDoor("127.0.0.1:0"), handler):
        pass


def test_what_calls_need_is_loaded_when_the_first_client_comes():
    """Most servers start without one that speaks gRPC."""
    program = """
import sys
import sojourn

with sojourn.Pool() as pool, sojourn.Server(pool, http="127.0.0.1:0", grpc="127.0.0.1:0"):
    assert not {"google.protobuf", "hpack"} & sys.modules.keys(), sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_door_may_have_nothing_for_admins(handler):
    with (
        opened(GrpcDoor("127.0.0.1:0", for_admins=False), handler) as address,
        connected(address) as client,
    ):
        load = KSERVE.RepositoryModelLoadRequest(model_name="double")
        assert refused(client, f"{KS}/RepositoryModelLoad", load)[0] == "PERMISSION_DENIED"


def test_messages_have_a_size_limit(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(body_bytes=1000))
    with opened(door, handler) as address, connected(address) as client:
        big = infer_request(np.zeros((1000, 2), np.float32))
        assert refused(client, f"{KS}/ModelInfer", big)[0] == "RESOURCE_EXHAUSTED"
        compressed = refused(client, f"{KS}/ModelInfer", big, compression=grpc.Compression.Gzip)
        assert compressed[0] == "RESOURCE_EXHAUSTED"
        client(f"{KS}/ModelInfer", infer_request(X))
    assert len(handler.asked) == 1


def test_what_a_message_does_not_carry_is_filled_up_only_if_it_fits_and_within_limits(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(body_bytes=2**20, bodies_bytes=2**21))

    def ask(model, **inputs):
        request = TFSERVING.PredictRequest(model_spec={"name": model})
        for name, shape in inputs.items():
            put_values(request.inputs[name], shape, 2, 3)
        return request

    with opened(door, handler) as address, connected(address) as client:
        large = {f"x{n}": (2**25,) for n in range(4)}
        tracemalloc.start()
        try:
            codes = [
                refused(client, f"{TFS}/Predict", request)[0]
                for request in (
                    ask("none", **large),
                    ask("double", **large),
                    ask("double", x=(2**25,)),  # not the signature's rank
                    ask("double", x=(2**24, 2)),  # more than a body has
                )
            ]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert codes == ["NOT_FOUND", *["INVALID_ARGUMENT"] * 2, "RESOURCE_EXHAUSTED"]
        assert peak < 2**24
        assert not handler.asked
        door.common.held_bytes = 2**21 - 2**10
        assert refused(client, f"{TFS}/Predict", ask("double", x=(2**10, 2)))[0] == "UNAVAILABLE"
        door.common.held_bytes = 0
        outputs = client(f"{TFS}/Predict", ask("double", x=(2, 2))).outputs
        assert list(outputs["y"].float_val) == [4.0, 6.0, 6.0, 6.0]
        assert door.common.held_bytes == 0


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_messages_may_be_compressed(client, handler, compression):
    small, large = X, np.ones((50_000, 2), np.float32)  # the large one unfolds on a thread
    for x in (small, large):
        client(f"{KS}/ModelInfer", infer_request(x), compression=compression)
        assert np.array_equal(handler.asked[-1].inputs["x"], x)
    answers = client(f"{KS}/ModelStreamInfer", iter([infer_request(X)]), compression=compression)
    assert len(answers) == 1


def test_a_compressed_message_counts_as_what_it_unfolds_to(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(body_bytes=2**16))
    zeros = infer_request(np.zeros((2**16, 2), np.float32))  # 512 KiB, of which 1 KiB are sent
    with opened(door, handler) as address, connected(address) as client:
        gzip = {"compression": grpc.Compression.Gzip}
        assert refused(client, f"{KS}/ModelInfer", zeros, **gzip)[0] == "RESOURCE_EXHAUSTED"
        assert not handler.asked
        assert client(f"{KS}/ModelInfer", infer_request(X), **gzip).model_name == "double"
        assert door.common.held_bytes == 0


def test_connections_over_the_limit_are_refused_and_the_others_stay(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(connections=2))
    alone = {"options": [("grpc.use_local_subchannel_pool", 1)]}
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(opened(door, handler))
        clients = [stack.enter_context(connected(address, **alone)) for _ in range(3)]
        assert [client(f"{KS}/ServerLive").live for client in clients[:2]] == [True, True]
        assert refused(clients[2], f"{KS}/ServerLive", None)[0] == "UNAVAILABLE"
        assert [client(f"{KS}/ServerLive").live for client in clients[:2]] == [True, True]


def test_watches_cannot_be_all_the_calls_that_a_door_takes(client, monkeypatch):
    monkeypatch.setattr(health_module, "_MOST_WATCHES", 2)
    path = "grpc.health.v1.Health/Watch"
    stub = client.channel.unary_stream(f"/{path}")
    watches = [stub(b"", timeout=20) for _ in range(2)]
    for watch in watches:
        next(watch)
    assert refused(client, path, None)[0] == "UNIMPLEMENTED"
    watches[0].cancel()
    deadline = time.monotonic() + 20
    again = None
    while again is None:  # the server learns of it a moment later
        assert time.monotonic() < deadline
        with contextlib.suppress(grpc.RpcError):
            watch = stub(b"", timeout=20)
            next(watch)
            again = watch
    for watch in (watches[1], again):
        watch.cancel()


def test_a_connection_has_a_few_watches_and_leaves_others_theirs(door, handler, monkeypatch):
    monkeypatch.setattr(health_module, "_MOST_WATCHES_OF_CONNECTION", 2)
    path = "grpc.health.v1.Health/Watch"
    alone = {"options": [("grpc.use_local_subchannel_pool", 1)]}
    with opened(door, handler) as address, connected(address, **alone) as greedy:
        watches = [greedy.channel.unary_stream(f"/{path}")(b"", timeout=20) for _ in range(2)]
        for watch in watches:
            next(watch)
        assert refused(greedy, path, None)[0] == "UNIMPLEMENTED"
        with connected(address, **alone) as other:
            watch = other.channel.unary_stream(f"/{path}")(b"", timeout=20)
            next(watch)
            watch.cancel()


def test_a_client_that_checks_health_is_served_when_too_many_watch(door, handler, monkeypatch):
    monkeypatch.setattr(health_module, "_MOST_WATCHES", 0)
    config = {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": KS},
    }
    options = [
        ("grpc.service_config", json.dumps(config)),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    with opened(door, handler) as address, connected(address, options=options) as client:
        assert client(f"{KS}/ServerLive").live


def test_every_call_is_reported(handler):
    reports = Reports(lambda model: model == "double")
    door = GrpcDoor("127.0.0.1:0", reports=reports)
    with opened(door, handler) as address, connected(address) as client:
        client(f"{KS}/ModelInfer", infer_request(X))
        refused(client, f"{KS}/ModelInfer", infer_request(X, "none"))
        client(f"{KS}/ModelStreamInfer", iter([infer_request(X)]))
    counted = text(reports.counts.families())
    assert 'model="double",protocol="kserve-grpc",code="0"} 1' in counted
    assert 'model="",protocol="kserve-grpc",code="5"} 1' in counted


def test_a_stream_that_its_client_has_left_is_reported(handler):
    told = []
    reports = SimpleNamespace(of_grpc=lambda *a, **k: told.append((a, k)))
    with opened(GrpcDoor("127.0.0.1:0", reports=reports), handler) as address:
        with connected(address) as client:
            watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=20)
            next(watch)
            watch.cancel()
        wait_until(lambda: told)
    [((path, model, code, _), facts)] = told
    assert (path, model, code) == ("/grpc.health.v1.Health/Watch", "", Status.CANCELLED.grpc)
    assert facts["peer"].startswith("ipv4:127.0.0.1:")


@pytest.mark.parametrize(("given", "to"), [("[::1]:0", "[::1]"), (":0", "127.0.0.1")])
def test_a_client_of_this_machine_is_an_admin_by_every_address(handler, given, to):
    if given.startswith("[") and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("there is no IPv6 here")
    loaded = []

    async def load(name):
        loaded.append(name)

    handler.load = load
    with opened(GrpcDoor(given), handler) as address:
        port = address.rpartition(":")[2]
        with connected(f"{to}:{port}") as client:
            request = KSERVE.RepositoryModelLoadRequest(model_name="double")
            client(f"{KS}/RepositoryModelLoad", request)
    assert loaded == ["double"]


def test_a_port_that_is_taken_is_an_error(door, handler):
    with (
        opened(door, handler) as address,
        pytest.raises(OSError, match="cannot listen"),
        opened(GrpcDoor(address), handler),
    ):
        pass


@contextlib.contextmanager
def withholding(address, count):
    """So many calls that have begun, and whose messages never come."""
    enough = threading.Event()

    def messages():
        enough.wait()
        yield from ()

    with connected(address) as client:
        stub = client.channel.stream_unary(f"/{KS}/ModelInfer")
        try:
            yield [stub.future(messages()) for _ in range(count)]
        finally:
            enough.set()


def test_calls_whose_message_does_not_come_are_cut_off_where_there_are_many(handler, monkeypatch):
    monkeypatch.setattr(dispatch_module, "_MOST_LATE", 2)
    door = GrpcDoor("127.0.0.1:0", limits=Limits(stall_seconds=0.1))
    with opened(door, handler) as address, withholding(address, 5) as calls:
        deadline = time.monotonic() + 20
        while sum(call.done() for call in calls) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        codes = [call.code().name for call in calls if call.done()]
        assert codes == ["DEADLINE_EXCEEDED"] * 3


def test_a_call_that_may_not_be_made_is_refused_before_its_message_is_read(handler):
    door = GrpcDoor("127.0.0.1:0", gate=Gate(Tokens([(Role.INFER, "infer-token-of-16")])))
    with opened(door, handler) as address, withholding(address, 1) as [call]:
        assert call.exception(20).code().name == "UNAUTHENTICATED"


def test_messages_are_refused_when_all_together_are_too_large(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(body_bytes=1000, bodies_bytes=1000))
    with opened(door, handler) as address, connected(address) as client:
        door.common.held_bytes = 990
        assert refused(client, f"{KS}/ModelInfer", infer_request(X))[0] == "UNAVAILABLE"
        door.common.held_bytes = 0
        client(f"{KS}/ModelInfer", infer_request(X))
        assert door.common.held_bytes == 0


def test_messages_of_a_stream_count_for_as_long_as_they_wait(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(body_bytes=1000, bodies_bytes=1000))
    size = 5 + infer_request(X).ByteSize() + exchange_module._MESSAGE_BYTES
    held = []
    handler.error = lambda: held.append(door.common.held_bytes) or Refused(Status.NOT_FOUND, "no")
    with opened(door, handler) as address, connected(address) as client:
        client(f"{KS}/ModelStreamInfer", iter([infer_request(X)] * 3))
        assert len(held) == 3
        assert held[2] == size  # the last: those before it have been let go of
        assert door.common.held_bytes == 0
        door.common.held_bytes = 1000 - size + 1
        call = client.channel.stream_stream(f"/{KS}/ModelStreamInfer")
        refused = call(iter([infer_request(X).SerializeToString()]), timeout=20)
        assert refused.code().name == "UNAVAILABLE"  # raised, it would refer to itself and to us
        assert door.common.held_bytes == 1000 - size + 1
