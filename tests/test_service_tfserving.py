"""TensorFlow Serving's REST API, with real models."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_writer as onnx
import served_models
import sojourn
from sojourn.service.catalogue import Catalogue
from sojourn.service.failures import Refused
from sojourn.service.http import json_arrays
from sojourn.service.rules import ModelRules
from sojourn.values.dtypes import BY_NAME
from web import Got, ask, serving


def add_and_multiply() -> bytes:
    """Two inputs, two outputs."""
    return onnx.model(
        [onnx.node("Add", ["a", "b"], ["sum"]), onnx.node("Mul", ["a", "b"], ["product"])],
        [onnx.value("a", onnx.FLOAT, ["n", 2]), onnx.value("b", onnx.FLOAT, ["n", 2])],
        [onnx.value("sum", onnx.FLOAT, ["n", 2]), onnx.value("product", onnx.FLOAT, ["n", 2])],
    )


def echo() -> Callable[[Any], Any]:
    """A function that gives back what it is given, strings included."""
    return lambda x: {"text": x, "text_bytes": x}


@pytest.fixture(scope="module")
def server(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sojourn.Server]:
    folder = tmp_path_factory.mktemp("models")
    for version in (1, 2):
        served_models.write_version(folder / "times", version)
    (folder / "two.onnx").write_bytes(add_and_multiply())
    with sojourn.Pool() as pool:
        pool.register("echo", echo, outputs=["text", "text_bytes"])
        rules = ModelRules(path=str(folder / "times"), versions="all", labels={"stable": 1})
        catalogue = Catalogue(pool, {"times": rules, "two": str(folder / "two.onnx")})
        with serving(catalogue) as server:
            for path in ("times/versions/1", "times/versions/2"):
                assert predict(server, path, instances=[[1, 1, 1, 1]]).status == 200
            assert predict(server, "two", inputs={"a": [[1, 1]], "b": [[1, 1]]}).status == 200
            assert predict(server, "echo", inputs=["x"]).status == 200
            yield server


def predict(server: sojourn.Server, path: str, **body: Any) -> Got:
    return ask(server, f"/v1/models/{path}:predict", body)


def test_limits_hold_while_a_model_is_opened_to_learn_its_signature(zygote: None) -> None:
    asked = {"predict": {"inputs": ["x"]}, "classify": {"examples": [{"x": 1.0}]}}
    rules = ModelRules(timeout=0.2, max_queue=1)
    with sojourn.Pool() as pool:
        pool.register("echo", echo, exclusive=True)
        with serving(Catalogue(pool, {"echo": rules})) as server, pool.lease("echo"):
            for method, body in asked.items():
                assert ask(server, f"/v1/models/echo:{method}", body).status == 504
            for path in ("v1/models/echo/metadata", "v2/models/echo", "v2/models/echo/config"):
                assert ask(server, f"/{path}").status == 504
            raw = {"Inference_Header_Content_Length": "0"}
            assert ask(server, "/v2/models/echo/infer", b"x", **raw).status == 504
            told = set()
            with ThreadPoolExecutor(4) as threads:
                while 429 not in told:  # as soon as two come at a time
                    each = [threads.submit(predict, server, "echo", inputs=["x"]) for _ in range(4)]
                    told |= {one.result().status for one in each}
            assert told == {504, 429}


@pytest.mark.parametrize(
    "body", ['{"signature_name":"\\ud800","inputs":[NaN]}', '{"inputs":{"\\udc00":[NaN]}}']
)
def test_halves_of_characters_are_refused_also_beside_numbers_that_are_none(
    server: sojourn.Server, body: str
) -> None:
    got = ask(server, "/v1/models/times:predict", body.encode())
    assert got.status == 400
    assert "JSON Parse Error" in got.json["error"]


# -- predict -----------------------------------------------------------------------------------


def test_rows_give_rows(server: sojourn.Server) -> None:
    got = predict(server, "times", instances=[[1, 2, 3, 4], [0, 0, 0, 0.5]])
    assert got.json == {"predictions": [[20.0], [1.0]]}


def test_rows_may_name_the_input(server: sojourn.Server) -> None:
    got = predict(server, "times", instances=[{"x": [1, 2, 3, 4]}, {"x": [0, 0, 0, 0.5]}])
    assert got.json == {"predictions": [[20.0], [1.0]]}


def test_columns_give_columns(server: sojourn.Server) -> None:
    assert predict(server, "times", inputs=[[1, 2, 3, 4]]).json == {"outputs": [[20.0]]}
    assert predict(server, "times", inputs={"x": [[1, 2, 3, 4]]}).json == {"outputs": [[20.0]]}


def test_several_inputs_and_outputs_go_by_name(server: sojourn.Server) -> None:
    rows = [{"a": [1, 2], "b": [3, 4]}, {"a": [5, 6], "b": [7, 8]}]
    assert predict(server, "two", instances=rows).json == {
        "predictions": [
            {"sum": [4.0, 6.0], "product": [3.0, 8.0]},
            {"sum": [12.0, 14.0], "product": [35.0, 48.0]},
        ]
    }
    columns = {"a": [[1, 2]], "b": [[3, 4]]}
    assert predict(server, "two", inputs=columns).json == {
        "outputs": {"sum": [[4.0, 6.0]], "product": [[3.0, 8.0]]}
    }


def test_bytes_come_in_base64_and_go_so_where_the_name_says_it(server: sojourn.Server) -> None:
    b64 = {"b64": base64.b64encode(b"\xff\x00").decode()}
    got = predict(server, "echo", instances=[b64, "ä"])
    assert [row["text_bytes"] for row in got.json["predictions"]] == [
        b64,
        {"b64": base64.b64encode("ä".encode()).decode()},
    ]
    assert got.json["predictions"][1]["text"] == "ä"
    assert (
        predict(server, "echo", instances=[{"x": b64}]).json["predictions"][0]["text_bytes"] == b64
    )
    assert predict(server, "echo", inputs={"x": [b64]}).json["outputs"]["text_bytes"] == [b64]
    in_lines = {"b64": "/w\nA\n"}  # as base64(1) writes it, and without its padding
    assert predict(server, "echo", instances=[in_lines]).json["predictions"][0]["text_bytes"] == b64


def test_versions_and_labels_choose(server: sojourn.Server) -> None:
    for path, factor in (("", 2), ("/versions/2", 2), ("/versions/1", 1), ("/labels/stable", 1)):
        got = predict(server, f"times{path}", instances=[[1, 1, 1, 1]])
        assert got.json == {"predictions": [[4.0 * factor]]}, path


def test_numbers_that_are_none_pass_in_both_directions(server: sojourn.Server) -> None:
    body = b'{"inputs": {"a": [[NaN, Infinity]], "b": [[1, -Infinity]]}}'
    got = ask(server, "/v1/models/two:predict", body).json["outputs"]
    assert math.isnan(got["sum"][0][0])
    assert got["product"][0][1] == -math.inf
    body = b'{"instances": [[NaN, 0, 0, 0]]}'
    assert math.isnan(ask(server, "/v1/models/times:predict", body).json["predictions"][0][0])


def test_floats_are_written_in_the_digits_that_they_need(server: sojourn.Server) -> None:
    body = {"a": [[0.1, 0.3]], "b": [[1, 1]]}
    got = ask(server, "/v1/models/two:predict", {"inputs": body})
    assert got.json["outputs"]["product"] == [[0.1, 0.3]]
    got = predict(server, "times/versions/1", instances=[[0.1, 0.0, 0.0, 0.0]])
    assert got.json == {"predictions": [[0.1]]}


@pytest.mark.parametrize("dtype", ["qint8", "int4", "bfloat16", "float8_e5m2"])
def test_numbers_of_every_kind_can_be_written_and_complex_ones_are_refused(dtype: str) -> None:
    made = np.array([1, 2]).astype(BY_NAME[dtype][0] if BY_NAME[dtype].names else BY_NAME[dtype])
    assert json_arrays.listed(made.view(BY_NAME[dtype])) == [1, 2]
    assert json_arrays.is_plain(made.view(BY_NAME[dtype]))
    with pytest.raises(Refused, match="JSON has no complex64"):
        json_arrays.listed(np.zeros(1, np.complex64))


def test_a_gzip_body_is_taken(server: sojourn.Server) -> None:
    body = gzip.compress(json.dumps({"instances": [[1, 1, 1, 1]]}).encode())
    got = ask(server, "/v1/models/times:predict", body, content_encoding="gzip")
    assert got.json == {"predictions": [[8.0]]}


def test_the_signature_can_be_named(server: sojourn.Server) -> None:
    row = [[1, 1, 1, 1]]
    got = predict(server, "times", instances=row, signature_name="serving_default")
    assert got.json == {"predictions": [[8.0]]}
    got = predict(server, "times", instances=row, signature_name="other")
    assert got.status == 400
    assert "other" in got.json["error"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "JSON Parse Error"),
        (b"[1]", "JSON Parse Error"),
        (b"[" * 100_000, "JSON Parse Error"),
        (b'{"instances":' + b"[" * 100_000, "JSON Parse Error"),
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"instances": [[1, 1, 1, 1]], "inputs": [[1, 1, 1, 1]]}, "both"),
        ({"instances": []}, "at least one element"),
        ({"instances": "x"}, "must be a list"),
        ({"instances": [[1, 2, 3, 4], [1, 2]]}, "ragged"),
        ({"instances": [[True, 2, 3, 4]]}, "booleans where float32"),
        ({"instances": [[1, 2, 3]]}, "takes float32[?, 4]"),
        ({"instances": [["a", "b", "c", "d"]]}, "strings where float32"),
        ({"instances": [[None, 1, 1, 1]]}, "input 'x'"),
        ({"instances": [{"x": [1, 1, 1, 1]}, {"y": [1, 1, 1, 1]}]}, "instance 1"),
        ({"instances": [{"x": [1, 1, 1, 1]}, [1, 1, 1, 1]]}, "instance 1"),
        ({"instances": [{"nope": 1}]}, "there is no input 'nope'"),
        ({"inputs": {"nope": 1}}, "there is no input 'nope'"),
        ({"instances": [[1, 1, 1, 1]], "signature_name": 3}, "signature_name"),
    ],
)
def test_what_is_wrong_is_told(server: sojourn.Server, body: Any, why: str) -> None:
    got = ask(server, "/v1/models/times:predict", body, "POST")
    assert got.status == 400, got.body
    assert why in got.json["error"]


def test_several_inputs_must_be_named(server: sojourn.Server) -> None:
    assert "by name" in predict(server, "two", instances=[[1, 2]]).json["error"]
    assert "'b' is missing" in predict(server, "two", instances=[{"a": [1, 2]}]).json["error"]


def test_what_is_not_there_is_not_found(server: sojourn.Server) -> None:
    got = predict(server, "nope", instances=[1])
    assert (got.status, got.json) == (
        404,
        {"error": "Servable not found for request: Latest(nope)"},
    )
    got = predict(server, "times/versions/7", instances=[1])
    assert (got.status, got.json) == (
        404,
        {"error": "Servable not found for request: Specific(times, 7)"},
    )
    assert predict(server, "times/labels/nope", instances=[1]).status == 400  # as it has it
    assert predict(server, "times/versions/x", instances=[1]).status == 400
    got = ask(server, "/v1/models/times:destroy", {})
    assert (got.status, got.json) == (
        400,
        {"error": "Malformed request: POST /v1/models/times:destroy"},
    )


# -- what there is -----------------------------------------------------------------------------


def test_the_state_of_every_version_is_told(server: sojourn.Server) -> None:
    fine = {"error_code": "OK", "error_message": ""}
    one, two = ({"version": v, "state": "AVAILABLE", "status": fine} for v in ("1", "2"))
    assert ask(server, "/v1/models/times").json == {"model_version_status": [two, one]}
    assert ask(server, "/v1/models/times/versions/1").json == {"model_version_status": [one]}
    assert ask(server, "/v1/models/times/labels/stable").json == {"model_version_status": [one]}
    got = ask(server, "/v1/models/nope")
    assert (got.status, got.json) == (
        404,
        {"error": "Could not find any versions of model nope"},
    )
    assert ask(server, "/v1/models/times/versions/7").status == 404


def test_the_signatures_are_told(server: sojourn.Server) -> None:
    got = ask(server, "/v1/models/times/versions/1/metadata").json
    assert got["model_spec"] == {"name": "times", "signature_name": "", "version": "1"}
    signatures = got["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"] == {
        "x": {
            "dtype": "DT_FLOAT",
            "tensor_shape": {
                "dim": [{"size": "-1", "name": ""}, {"size": "4", "name": ""}],
                "unknown_rank": False,
            },
            "name": "x",
        }
    }
    assert signatures["serving_default"]["method_name"] == "tensorflow/serving/predict"


def test_other_signatures_of_a_saved_model_are_served(zygote: None, tmp_path: Path) -> None:
    with sojourn.Pool() as pool:
        sojourn.isolated(served_models.save_signatures)(str(tmp_path / "scaler"))
        with serving(Catalogue(pool, {"scaler": str(tmp_path / "scaler")})) as server:
            rows = [[1, 2], [3, 4]]
            assert predict(server, "scaler", inputs=rows).json == {
                "outputs": [[3.0, 6.0], [9.0, 12.0]]
            }
            got = predict(server, "scaler", inputs=rows, signature_name="total")
            assert got.json == {"outputs": {"rows": 2, "y": [3.0, 7.0]}}
            # A scalar is no row.
            assert predict(server, "scaler", instances=rows, signature_name="total").status == 400


# -- tf.Examples -------------------------------------------------------------------------------


def save_example_model(path: str) -> None:
    """A SavedModel that reads tf.Examples, to label them and to value them. Runs in a worker."""
    import tensorflow as tf

    class Reader(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
        def classify(self, examples: Any) -> Any:
            age = self.age(examples)
            scores = tf.concat([age / 100.0, 1.0 - age / 100.0], 1)
            labels = tf.tile([["old", "young"]], [tf.shape(age)[0], 1])
            return {"classes": labels, "scores": scores}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
        def regress(self, examples: Any) -> Any:
            return {"outputs": self.age(examples) * 2.0}

        def age(self, examples: Any) -> Any:
            wanted = {"age": tf.io.FixedLenFeature([1], tf.float32)}
            return tf.io.parse_example(examples, wanted)["age"]

    reader = Reader()
    signatures = {"serving_default": reader.classify, "value": reader.regress}
    tf.saved_model.save(reader, path, signatures)


def test_examples_are_classified_and_regressed(zygote: None, tmp_path: Path) -> None:
    with sojourn.Pool() as pool:
        sojourn.isolated(save_example_model)(str(tmp_path / "reader"))
        with serving(Catalogue(pool, {"reader": str(tmp_path / "reader")})) as server:

            def asked(verb: str, **body: Any) -> Got:
                return ask(server, f"/v1/models/reader:{verb}", body)

            got = asked("classify", examples=[{"age": 25.0}, {"age": 75.0}])
            assert got.json == {
                "results": [
                    [["old", 0.25], ["young", 0.75]],
                    [["old", 0.75], ["young", 0.25]],
                ]
            }
            got = asked("regress", examples=[{}, {}], context={"age": 1.5}, signature_name="value")
            assert got.json == {"results": [3.0, 3.0]}
            assert asked("regress", examples=[{"age": 1.5}]).status == 400  # classifies
            assert asked("classify", examples=[]).status == 400
            assert asked("classify", examples=[{"age": "old"}]).status == 400
            assert asked("classify", examples=[1]).status == 400
            assert asked("classify", examples=[{"age": 1.0}], signature_name=1).status == 400
            # One bad example fails alone, by TensorFlow's own words.
            assert "age" in asked("classify", examples=[{"other": 1.0}]).json["error"]
