"""`keep_alive`, as clients send it in each protocol that has room for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import sojourn
from grpc_clients import connected, infer_request
from served_models import X, times
from sojourn.service.catalogue import Catalogue
from web import ask, serving

pytestmark = pytest.mark.usefixtures("zygote")
ROW = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}


@pytest.fixture
def server(tmp_path: Path, zygote: None) -> Iterator[sojourn.Server]:
    (tmp_path / "m.onnx").write_bytes(times(2))
    with (
        sojourn.Pool() as pool,
        serving(Catalogue(pool, {"m": str(tmp_path / "m.onnx")}), grpc="127.0.0.1:0") as server,
    ):
        yield server


def kept(server: sojourn.Server) -> Any:
    (status,) = server.handler.statuses("m")
    return status.keep_seconds


def test_a_request_says_how_long_the_model_stays_and_the_next_ones_need_not(server):
    infer, predict = "/v2/models/m/infer", "/v1/models/m:predict"
    rows = [[1, 1, 1, 1]]
    assert ask(server, infer, {"inputs": [ROW]}).status == 200
    assert kept(server) is None
    assert ask(server, infer, {"inputs": [ROW], "parameters": {"keep_alive": "5m"}}).status == 200
    assert kept(server) == 300
    assert ask(server, infer, {"inputs": [ROW]}).status == 200
    assert kept(server) == 300
    assert ask(server, predict, {"instances": rows, "keep_alive": -1}).status == 200
    assert kept(server) == float("inf")
    assert ask(server, predict, b'{"instances": [[NaN, 1, 1, 1]], "keep_alive": 60}').status == 200
    assert kept(server) == 60
    with connected(server.grpc_address) as client:
        request = infer_request(X, "m")
        request.parameters["keep_alive"].string_param = "1h"
        client("inference.GRPCInferenceService/ModelInfer", request)
        assert kept(server) == 3600
        request.parameters["keep_alive"].string_param = "a while"
        with pytest.raises(grpc.RpcError) as refused:
            client("inference.GRPCInferenceService/ModelInfer", request)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    for path, body in (
        (infer, {"inputs": [ROW], "parameters": {"keep_alive": "soon"}}),
        (infer, {"inputs": [ROW], "parameters": {"keep_alive": [1]}}),
        (predict, {"instances": rows, "keep_alive": "soon"}),
        (predict, {"instances": rows, "keep_alive": {}}),
    ):
        assert ask(server, path, body).status == 400
    assert kept(server) == 3600


def test_a_server_hands_over_receipts_also_after_another_of_the_same_pool(server):
    pool = server.handler.catalogue.pool
    with sojourn.Server(pool, http="127.0.0.1:0") as other:
        assert ask(other, "/v1/models/m:predict", {"instances": [[1, 1, 1, 1]]}).status == 200
    got = ask(server, "/admin/models/m/unload", {})
    assert [receipt["clean"] for receipt in got.json["receipts"]] == [True]
