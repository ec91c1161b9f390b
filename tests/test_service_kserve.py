"""The KServe v2 protocol in HTTP, with real models."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import onnx_writer as onnx
import served_models
import sojourn
from sojourn.service import datatypes
from web import Got, ask, serving


def echo() -> Any:
    """A function that gives back what it is given."""

    def same(x: Any) -> Any:
        return x

    return same


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "times.onnx").write_bytes(served_models.times(3))
    casts = [("x", onnx.FLOAT, ["n"])]
    (folder / "same.onnx").write_bytes(
        onnx.model(
            [onnx.node("Identity", ["x"], ["y"]), onnx.node("Identity", ["x"], ["z"])],
            [onnx.value(*each) for each in casts],
            [onnx.value("y", onnx.FLOAT, ["n"]), onnx.value("z", onnx.FLOAT, ["n"])],
        )
    )
    (folder / "scalar.onnx").write_bytes(
        onnx.model(
            [onnx.node("Identity", ["x"], ["y"])],
            [onnx.value("x", onnx.FLOAT, [])],
            [onnx.value("y", onnx.FLOAT, [])],
        )
    )
    return folder


@pytest.fixture
def fresh(folder: Path) -> Iterator[sojourn.Server]:
    """A server of its own, with nothing loaded."""
    with sojourn.Pool() as pool:
        pool.register("times", folder / "times.onnx")
        pool.register("same", folder / "same.onnx")
        with serving(pool) as server:
            yield server


@pytest.fixture(scope="module")
def server(zygote: None, folder: Path) -> Iterator[sojourn.Server]:
    """One for many tests, everything loaded."""
    with sojourn.Pool() as pool:
        pool.register("times", folder / "times.onnx")
        pool.register("same", folder / "same.onnx")
        pool.register("echo", echo, outputs=["y"])
        pool.register("scalar", folder / "scalar.onnx")
        with serving(pool) as server:
            shapes = {"times": [1, 4], "same": [1], "echo": [1], "scalar": []}
            for name, shape in shapes.items():
                assert infer(server, name, fp32("x", shape, [1] * math.prod(shape))).status == 200
            yield server


def infer(server: sojourn.Server, name: str, *inputs: dict[str, Any], **more: Any) -> Got:
    return ask(server, f"/v2/models/{name}/infer", {"inputs": list(inputs), **more})


def fp32(name: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "FP32", "shape": shape, "data": data}


def binary(
    server: sojourn.Server, name: str, arrays: dict[str, np.ndarray], **more: Any
) -> tuple[Got, Any, bytes]:
    raws = {key: datatypes.to_raw(array) for key, array in arrays.items()}
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": key,
                    "datatype": datatypes.datatype_of(array, key),
                    "shape": list(array.shape),
                    "parameters": {"binary_data_size": len(raws[key])},
                }
                for key, array in arrays.items()
            ],
            **more,
        }
    ).encode()
    got = ask(
        server,
        f"/v2/models/{name}/infer",
        head + b"".join(raws.values()),
        inference_header_content_length=str(len(head)),
    )
    length = int(got.headers.get("inference-header-content-length", len(got.body)))
    return got, json.loads(got.body[:length]), got.body[length:]


# -- inference ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6, 7, 8], [[1, 2, 3, 4], [5, 6, 7, 8]]])
def test_a_model_answers_in_json_flat_or_nested(server: sojourn.Server, data: Any) -> None:
    got = infer(server, "times", fp32("x", [2, 4], data), id="my id")
    assert got.status == 200
    assert got.json == {
        "model_name": "times",
        "model_version": "1",
        "id": "my id",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 1], "data": [30.0, 78.0]}],
    }


def test_a_model_answers_in_bytes(server: sojourn.Server) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    got, head, rest = binary(server, "times", {"x": x}, parameters={"binary_data_output": True})
    assert got.headers["content-type"] == "application/octet-stream"
    assert head["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [2, 1], "parameters": {"binary_data_size": 8}}
    ]
    assert np.frombuffer(rest, np.float32).tolist() == [18.0, 66.0]


def test_each_output_can_be_had_in_bytes_or_in_json(server: sojourn.Server) -> None:
    x = np.array([1, 2], np.float32)
    outputs = [{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}]
    _, head, rest = binary(server, "same", {"x": x}, outputs=outputs)
    by_name = {output["name"]: output for output in head["outputs"]}
    assert by_name["y"]["data"] == [1.0, 2.0]
    assert by_name["z"]["parameters"] == {"binary_data_size": 8}
    assert rest == x.tobytes()


def test_only_the_outputs_that_are_named_are_given(server: sojourn.Server) -> None:
    got = infer(server, "same", fp32("x", [1], [5]), outputs=[{"name": "z"}])
    assert [output["name"] for output in got.json["outputs"]] == ["z"]


def test_parameters_that_change_no_answer_are_hints(server: sojourn.Server) -> None:
    hint = {"content_type": "np"}
    got = infer(
        server,
        "times",
        {**GOOD, "parameters": hint},
        outputs=[{"name": "y", "parameters": hint}],
        parameters={"priority": 1},
    )
    assert got.json["outputs"][0]["data"] == [30.0]


@pytest.mark.parametrize("timeout", [0, 60_000_000, 10**30])
def test_a_request_may_say_how_long_it_waits(server: sojourn.Server, timeout: int) -> None:
    got = infer(server, "same", fp32("x", [1], [5]), parameters={"timeout": timeout})
    assert got.status == 200


def test_a_raw_body_is_the_only_input(server: sojourn.Server) -> None:
    x = np.arange(8, dtype=np.float32)
    got = ask(server, "/v2/models/times/infer", x.tobytes(), inference_header_content_length="0")
    length = int(got.headers["inference-header-content-length"])
    assert np.frombuffer(got.body[length:], np.float32).tolist() == [18.0, 66.0]


def test_numbers_that_are_none_pass_in_both_directions(server: sojourn.Server) -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[NaN,Infinity,1]}]}'
    got = ask(server, "/v2/models/same/infer", body)
    values = got.json["outputs"][0]["data"]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, 1.0]


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False]),
        *[
            np.array([0, 1, 100], f"{sign}int{bits}")
            for sign in ("", "u")
            for bits in (8, 16, 32, 64)
        ],
        *[np.array([0, -1.5], f"float{bits}") for bits in (16, 32, 64)],
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([b"", b"a\0b", "ä".encode()], object),
    ],
    ids=lambda array: str(array.dtype),
)
def test_every_datatype_goes_there_and_back(server: sojourn.Server, array: np.ndarray) -> None:
    got, head, rest = binary(server, "echo", {"x": array}, parameters={"binary_data_output": True})
    assert got.status == 200, head
    (output,) = head["outputs"]
    back = datatypes.from_raw(rest, output["datatype"], tuple(output["shape"]), "y")
    assert back.tolist() == array.tolist()
    assert back.dtype == array.dtype
    if array.dtype != object:
        data = array.astype(np.float32 if array.dtype.kind == "V" else array.dtype).tolist()
        entry = {"name": "x", "datatype": output["datatype"], "shape": [len(array)]}
        got = infer(server, "echo", {**entry, "data": data})
        assert got.json["outputs"][0]["data"] == data


def test_strings_are_text_in_json(server: sojourn.Server) -> None:
    entry = {"name": "x", "datatype": "BYTES", "shape": [1, 2], "data": ["a", "ä"]}
    assert infer(server, "echo", entry).json["outputs"][0]["data"] == ["a", "ä"]


def test_bytes_that_are_no_text_come_back_as_they_are(server: sojourn.Server) -> None:
    data = ["a", {"b64": "/w=="}]
    entry = {"name": "x", "datatype": "BYTES", "shape": [2], "data": data}
    assert infer(server, "echo", entry).json["outputs"][0]["data"] == data


def test_what_a_client_leaves_open_may_be_null(server: sojourn.Server) -> None:
    entry = {**fp32("x", [1, 4], [1, 1, 1, 1]), "parameters": None}
    got = infer(server, "times", entry, id=None, parameters=None, outputs=None)
    assert got.status == 200
    assert "id" not in got.json


# -- what is wrong with a request --------------------------------------------------------------

GOOD = fp32("x", [1, 4], [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "JSON Parse Error"),
        (b"{", "JSON Parse Error"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `inputs`"),
        (b'{"id":' + b"[" * 100_000, "the request"),
        (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":' + b"[" * 9000, "JSON"),
        ({"inputs": []}, "input 'x' is missing"),
        ({"inputs": [{**GOOD, "name": "z"}]}, "input 'x' is missing, and there is no input 'z'"),
        ({"inputs": [GOOD, {**GOOD, "name": "z"}]}, "there is no input 'z'"),
        ({"inputs": [GOOD, GOOD]}, "given twice"),
        ({"inputs": [{**GOOD, "datatype": "FLOAT"}]}, "unknown datatype 'FLOAT'"),
        ({"inputs": [{**GOOD, "shape": [1, 5]}]}, "not [1, 5]"),
        ({"inputs": [{**GOOD, "shape": [-1, 4]}]}, "no array has the shape"),
        ({"inputs": [{**GOOD, "shape": [2**62, 2**62]}]}, "shape"),
        ({"inputs": [{**GOOD, "data": ["a", "b", "c", "d"]}]}, "strings where float32"),
        ({"inputs": [{**GOOD, "data": [1, 2, None, 4]}]}, "float32"),
        ({"inputs": [{**GOOD, "data": [True, 2, 3, 4]}]}, "booleans where float32"),
        ({"inputs": [{**GOOD, "data": [[1, 2], [3]]}]}, "ragged"),
        ({"inputs": [{**GOOD, "datatype": "INT8", "data": [1, 2, 3, 400]}]}, "input 'x'"),
        ({"inputs": [{**GOOD, "datatype": "INT32", "data": [1.5, 2, 3, 4]}]}, "fractions where"),
        ({"inputs": [fp32("x", [1, 3], [1, 2, 3])]}, "takes float32[?, 4]"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}, "has no data"),
        ({"inputs": [GOOD], "outputs": [{"name": "nope"}]}, "there is no output 'nope'"),
        ({"inputs": [GOOD], "parameters": {"timeout": "soon"}}, "timeout"),
        ({"inputs": [GOOD], "parameters": {"binary_data_output": 1}}, "true or false"),
        ({"inputs": [GOOD], "parameters": {"sequence_id": 3}}, "sequence_id is not offered"),
        ({"inputs": [GOOD], "parameters": {"keep_alive": "soon"}}, "keep_alive must be"),
        ({"inputs": [GOOD], "parameters": {"keep_alive": 10**400}}, "too large"),
        (
            {"inputs": [GOOD], "outputs": [{"name": "y", "parameters": {"classification": 2}}]},
            "classification is not offered",
        ),
        (
            {"inputs": [{**GOOD, "parameters": {"shared_memory_region": "r"}}]},
            "input 'x': shared_memory_region is not offered",
        ),
        ({"inputs": [{**GOOD, "parameters": {"binary_data_size": 16}}]}, "does not have 16"),
    ],
)
def test_what_is_wrong_is_told(server: sojourn.Server, body: Any, why: str) -> None:
    got = ask(server, "/v2/models/times/infer", body, "POST")
    assert got.status == 400, got.body
    assert why in got.json["error"]


@pytest.mark.parametrize(
    ("rest", "length", "why"),
    [
        (b"x" * 15, None, "does not have 16 more bytes"),
        (b"x" * 17, None, "1 bytes behind the inputs"),
        (b"x" * 16, "99999", "between 0 and the length"),
        (b"x" * 16, "-1", "between 0 and the length"),
        (b"x" * 16, "nine", "between 0 and the length"),
        (b"x" * 16, "9", "JSON"),
    ],
)
def test_bytes_that_do_not_fit_are_told(
    server: sojourn.Server, rest: bytes, length: str | None, why: str
) -> None:
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 4]}
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": 16}}]}).encode()
    got = ask(
        server,
        "/v2/models/times/infer",
        head + rest,
        inference_header_content_length=length or str(len(head)),
    )
    assert got.status == 400
    assert why in got.json["error"]


@pytest.mark.parametrize("raw", [b"", b"\x05\0\0\0abc", b"\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\0"])
def test_strings_that_do_not_fit_are_told(server: sojourn.Server, raw: bytes) -> None:
    with pytest.raises(Exception, match="input 'x'"):
        datatypes.strings_from_raw(raw, 1, "x")


def test_a_model_or_version_that_is_not_there_is_not_found(server: sojourn.Server) -> None:
    for path in ("nope", "times/versions/2", "times/versions/one", "a%2Fb", "..%2F..%2Fetc"):
        assert ask(server, f"/v2/models/{path}/infer", {"inputs": [GOOD]}).status == 404
        assert ask(server, f"/v2/models/{path}/ready").status == 404
    assert ask(server, "/v2/models/times/versions/1/infer", {"inputs": [GOOD]}).status == 200


# -- everything else ---------------------------------------------------------------------------


def test_the_server_tells_what_it_is(server: sojourn.Server) -> None:
    got = ask(server, "/v2").json
    assert (got["name"], got["version"]) == ("sojourn", sojourn.__version__)
    assert "binary_tensor_data" in got["extensions"]
    assert ask(server, "/v2/health/live").json == {"live": True}
    assert ask(server, "/v2/health/ready").json == {"ready": True, "live": True}


def test_a_model_tells_what_it_takes(server: sojourn.Server) -> None:
    for path in ("/v2/models/times", "/v2/models/times/versions/1"):
        got = ask(server, path).json
        assert (got["name"], got["versions"]) == ("times", ["1"])
        assert got["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        assert got["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}]
    got = ask(server, "/v2/models/times/config").json
    assert got["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}]
    assert ask(server, "/v2/models/times/ready").json == {"name": "times", "ready": True}


def test_a_scalar_has_no_dimension(server: sojourn.Server) -> None:
    (told,) = ask(server, "/v2/models/scalar").json["inputs"]
    assert told == {"name": "x", "datatype": "FP32", "shape": []}
    (output,) = infer(server, "scalar", fp32("x", [], [3])).json["outputs"]
    assert output == {"name": "y", "datatype": "FP32", "shape": [], "data": [3.0]}
    raw = np.float32(7).tobytes()
    got = ask(server, "/v2/models/scalar/infer", raw, inference_header_content_length="0")
    assert got.body.endswith(raw)


def test_models_are_listed_loaded_and_unloaded(fresh: sojourn.Server) -> None:
    server = fresh
    got = ask(server, "/v2/repository/index", b"", "POST").json
    assert [(each["name"], each["state"]) for each in got] == [
        ("times", "READY"),
        ("same", "READY"),
    ]
    assert ask(server, "/v2/repository/models/times/load", b"", "POST").status == 200
    got = ask(server, "/v2/repository/models/times/unload", {}).json
    assert got["receipts"][0]["clean"] is True
    index = ask(server, "/v2/repository/index", {"ready": True}).json
    assert [each["name"] for each in index] == ["same"]
    assert infer(server, "times", GOOD).status == 404
    assert ask(server, "/v2/repository/models/times/load", {}).status == 200
    assert infer(server, "times", GOOD).status == 200
    assert ask(server, "/v2/repository/models/nope/load", {}).status == 404
    harmful = {"parameters": {"file:1/model.onnx": "aGk="}}
    assert ask(server, "/v2/repository/models/times/load", harmful).status == 400


def test_a_request_says_how_long_its_model_stays(fresh: sojourn.Server) -> None:
    for value, seconds in (("5m", 300.0), (-1, math.inf), (20, 20.0)):
        got = infer(fresh, "times", GOOD, parameters={"keep_alive": value})
        assert got.status == 200, got.body
        body = {"instances": [[1, 1, 1, 1]], "keep_alive": value}
        assert ask(fresh, "/v1/models/times:predict", body).status == 200
        (status,) = fresh.handler.statuses("times")
        assert status.keep_seconds == seconds


def test_what_was_done_is_counted(fresh: sojourn.Server) -> None:
    server = fresh
    for _ in range(3):
        assert infer(server, "times", fp32("x", [2, 4], [0] * 8)).status == 200
    assert infer(server, "times", fp32("x", [1, 3], [0] * 3)).status == 400
    (got,) = ask(server, "/v2/models/times/stats").json["model_stats"]
    assert (got["inference_count"], got["execution_count"]) == (6, 3)
    assert got["inference_stats"]["success"]["count"] == 3
    assert got["inference_stats"]["fail"]["count"] == 1
    assert got["batch_stats"][0]["batch_size"] == 2
    assert got["batch_stats"][0]["compute_infer"]["count"] == 3
    assert ask(server, "/v2/models/times/versions/1/stats").json["model_stats"] == [got]
    all_of_them = ask(server, "/v2/models/stats").json["model_stats"]
    assert {one["name"]: one["inference_count"] for one in all_of_them} == {"times": 6, "same": 0}
    (unasked,) = ask(server, "/v2/models/same/stats").json["model_stats"]
    assert unasked["inference_stats"]["success"] == {"count": 0, "ns": 0}
    assert ask(server, "/v2/models/nope/stats").status == 404
    assert ask(server, "/v2/models/times/versions/9/stats").status == 404
