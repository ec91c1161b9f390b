"""A server by gRPC, with real models: both protocols, end to end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import example_models
import sojourn
from grpc_clients import Client, connected, infer_request
from sojourn.service import examples
from sojourn.service.catalogue import Catalogue
from sojourn.service.grpc import tensors
from sojourn.service.grpc.messages import KSERVE, TENSORS, TFSERVING
from sojourn.service.rules import ModelRules
from web import ask, serving

KS = "inference.GRPCInferenceService"
TFS = "tensorflow.serving.PredictionService"
MODELS = "tensorflow.serving.ModelService"
X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


@pytest.fixture(scope="module")
def folder(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    sojourn.isolated(example_models.save)(str(folder))
    return folder


@contextlib.contextmanager
def served(folder: Path, **options: Any) -> Iterator[sojourn.Server]:
    with sojourn.Pool() as pool:
        entries = {
            "numbers": ModelRules(
                path=str(folder / "numbers"), versions="all", labels={"stable": 1}, **options
            ),
            "examples": ModelRules(path=str(folder / "examples"), **options),
        }
        with serving(Catalogue(pool, entries), grpc="127.0.0.1:0") as server:
            yield server


@contextlib.contextmanager
def client_of(server: sojourn.Server) -> Iterator[Client]:
    assert server.grpc_address is not None
    with connected(server.grpc_address) as client:
        yield client


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[sojourn.Server]:
    """One for many tests, everything loaded and used once."""
    with served(folder, load="eager") as server:
        with client_of(server) as client:
            for version in (1, 2):
                predict(client, spec(version=version), x=X)
            classify(client, [0.0, 0.0])
        yield server


@pytest.fixture
def client(server: sojourn.Server) -> Iterator[Client]:
    with client_of(server) as client:
        yield client


def spec(name: str = "numbers", version: int = 0, label: str = "", signature: str = ""):
    made = TFSERVING.ModelSpec(name=name, signature_name=signature)
    if version:
        made.version.value = version
    elif label:
        made.version_label = label
    return made


def predict(client: Client, asked, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    request = TFSERVING.PredictRequest(model_spec=asked)
    for name, array in inputs.items():
        tensors.from_array(array, request.inputs[name], name)
    response = client(f"{TFS}/Predict", request)
    return {name: tensors.to_array(proto, name) for name, proto in response.outputs.items()}


def code_of(error: pytest.ExceptionInfo[grpc.RpcError]) -> str:
    return str(error.value.code().name)


def examples_of(*rows: list[float], context: dict | None = None):
    listed = [TENSORS.Example.FromString(examples.from_json({"x": row})) for row in rows]
    if context is None:
        return TFSERVING.Input(example_list=TFSERVING.ExampleList(examples=listed))
    with_context = TFSERVING.ExampleListWithContext(
        examples=listed, context=TENSORS.Example.FromString(examples.from_json(context))
    )
    return TFSERVING.Input(example_list_with_context=with_context)


def classify(client: Client, *rows: list[float]) -> Any:
    request = TFSERVING.ClassificationRequest(model_spec=spec("examples"), input=examples_of(*rows))
    return client(f"{TFS}/Classify", request)


def test_the_latest_version_answers_unless_another_is_named(client):
    assert predict(client, spec(), x=X)["y"].tolist() == (X * 3).tolist()
    assert predict(client, spec(version=1), x=X)["y"].tolist() == (X * 2).tolist()
    assert predict(client, spec(label="stable"), x=X)["y"].tolist() == (X * 2).tolist()
    response = client(f"{KS}/ModelInfer", infer_request(X, "numbers", model_version="1"))
    assert response.model_version == "1"
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [2, 4, 6, 8]


def test_a_signature_and_some_outputs_may_be_named(client):
    words = np.array([b"abc", b"\xff"], object)
    asked = TFSERVING.PredictRequest(model_spec=spec(signature="count"), output_filter=["letters"])
    tensors.from_array(words, asked.inputs["words"], "words")
    tensors.from_array(np.array([2, 3]), asked.inputs["times"], "times")
    outputs = client(f"{TFS}/Predict", asked).outputs
    assert list(outputs) == ["letters"]
    assert list(outputs["letters"].int64_val) == [6, 3]


def one_word() -> Any:
    return lambda x: {"y": b"a\x00\xff\x00"}


def test_a_single_string_is_an_output_like_others_in_every_protocol(zygote: None):
    with sojourn.Pool() as pool:
        pool.register("word", one_word, outputs=["y"])
        with serving(pool, grpc="127.0.0.1:0") as server, client_of(server) as client:
            got = predict(client, spec("word"), x=X)["y"]
            assert (got.shape, got.item()) == ((), b"a\x00\xff\x00")
            response = client(f"{KS}/ModelInfer", infer_request(X, "word"))
            assert list(response.raw_output_contents) == [b"\x04\x00\x00\x00a\x00\xff\x00"]
            told = ask(server, "/v1/models/word:predict", {"inputs": [1]}).json
            assert told == {"outputs": {"b64": "YQD/AA=="}}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (spec("none"), "NOT_FOUND"),
        (spec(version=9), "NOT_FOUND"),
        (spec(label="none"), "INVALID_ARGUMENT"),
        (spec(signature="none"), "FAILED_PRECONDITION"),
        (spec(""), "INVALID_ARGUMENT"),
    ],
)
def test_what_is_not_there_has_a_code(client, asked, code):
    with pytest.raises(grpc.RpcError) as error:
        predict(client, asked, x=X)
    assert code_of(error) == code


def test_inputs_that_do_not_fit_are_the_clients_fault(client):
    for wrong in (X[0], X.astype(complex), np.array([[b"a", b"b"]], object)):
        with pytest.raises(grpc.RpcError) as error:
            predict(client, spec(), x=wrong)
        assert code_of(error) == "INVALID_ARGUMENT"
        assert "input 'x' takes float32[?, 2]" in error.value.details()
    with pytest.raises(grpc.RpcError) as error:
        predict(client, spec(), z=X)
    assert code_of(error) == "INVALID_ARGUMENT"


def test_examples_are_classified_and_regressed(client):
    response = classify(client, [0.0, 0.0], [5.0, -5.0])
    assert response.model_spec.version.value == 1
    first, second = response.result.classifications
    assert [(c.label, round(c.score, 3)) for c in first.classes] == [("left", 0.5), ("right", 0.5)]
    assert second.classes[0].score > 0.99
    request = TFSERVING.RegressionRequest(
        model_spec=spec("examples", signature="sum"), input=examples_of([1.0, 2.5])
    )
    response = client(f"{TFS}/Regress", request)
    assert [r.value for r in response.result.regressions] == [3.5]


def test_a_context_is_part_of_every_example(client):
    listed = examples_of([1.0, 1.0], context={"x": [7.0, 7.0], "other": 1})
    listed.example_list_with_context.examples.add()  # one with nothing of its own
    request = TFSERVING.RegressionRequest(
        model_spec=spec("examples", signature="sum"), input=listed
    )
    response = client(f"{TFS}/Regress", request)
    assert [r.value for r in response.result.regressions] == [2.0, 14.0]


def test_several_questions_about_the_same_examples(client):
    request = TFSERVING.MultiInferenceRequest(input=examples_of([1.0, 2.5]))
    request.tasks.add(model_spec=spec("examples"), method_name="tensorflow/serving/classify")
    request.tasks.add(
        model_spec=spec("examples", signature="sum"), method_name="tensorflow/serving/regress"
    )
    labels, values = client(f"{TFS}/MultiInference", request).results
    assert len(labels.classification_result.classifications[0].classes) == 2
    assert values.regression_result.regressions[0].value == 3.5
    request.tasks[1].model_spec.name = "numbers"
    with pytest.raises(grpc.RpcError, match="for one model"):
        client(f"{TFS}/MultiInference", request)
    del request.tasks[:]
    with pytest.raises(grpc.RpcError) as error:
        client(f"{TFS}/MultiInference", request)
    assert code_of(error) == "INVALID_ARGUMENT"


def test_a_signature_that_takes_no_examples_does_not_classify(client):
    request = TFSERVING.ClassificationRequest(model_spec=spec(), input=examples_of([1.0, 2.0]))
    with pytest.raises(grpc.RpcError, match="must take serialized examples") as error:
        client(f"{TFS}/Classify", request)
    assert code_of(error) == "INVALID_ARGUMENT"


def test_metadata_has_every_signature(client):
    request = TFSERVING.GetModelMetadataRequest(model_spec=spec(), metadata_field=["signature_def"])
    response = client(f"{TFS}/GetModelMetadata", request)
    packed = response.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    found = TFSERVING.SignatureDefMap.FromString(packed.value).signature_def
    assert sorted(found) == ["count", "serving_default"]
    assert found["serving_default"].inputs["x"].dtype == 1
    assert found["serving_default"].inputs["x"].name == "serving_default_x:0"
    assert found["count"].method_name == "tensorflow/serving/predict"
    sizes = [dim.size for dim in found["serving_default"].inputs["x"].tensor_shape.dim]
    assert sizes == [-1, 2]
    response = client(f"{KS}/ModelMetadata", KSERVE.ModelMetadataRequest(name="numbers"))
    assert (response.platform, list(response.versions)) == ("tensorflow_savedmodel", ["1", "2"])
    assert [(t.name, t.datatype, list(t.shape)) for t in response.inputs] == [
        ("x", "FP32", [-1, 2])
    ]
    config = client(f"{KS}/ModelConfig", KSERVE.ModelConfigRequest(name="numbers")).config
    assert (config.input[0].data_type, list(config.input[0].dims)) == (11, [-1, 2])


def test_status_and_index_say_where_versions_stand(client):
    request = TFSERVING.GetModelStatusRequest(model_spec=spec())
    listed = client(f"{MODELS}/GetModelStatus", request).model_version_status
    assert sorted((one.version, one.state, one.status.error_code) for one in listed) == [
        (1, 30, 0), (2, 30, 0)
    ]  # fmt: skip
    models = client(f"{KS}/RepositoryIndex").models
    assert sorted((m.name, m.version, m.state) for m in models) == [
        ("examples", "1", "READY"), ("numbers", "1", "READY"), ("numbers", "2", "READY")
    ]  # fmt: skip
    with pytest.raises(grpc.RpcError) as error:
        client(f"{MODELS}/GetModelStatus", TFSERVING.GetModelStatusRequest(model_spec=spec("none")))
    assert code_of(error) == "NOT_FOUND"


def test_a_model_is_unloaded_and_loaded_by_request(folder):
    with served(folder) as server, client_of(server) as client:
        ready = KSERVE.ModelReadyRequest(name="examples")
        assert client(f"{KS}/ModelReady", ready).ready
        unload = KSERVE.RepositoryModelUnloadRequest(model_name="examples")
        client(f"{KS}/RepositoryModelUnload", unload)
        assert not client(f"{KS}/ModelReady", ready).ready
        load = KSERVE.RepositoryModelLoadRequest(model_name="examples")
        client(f"{KS}/RepositoryModelLoad", load)
        assert client(f"{KS}/ModelReady", ready).ready


def reload_request(*names: str, **fields: Any) -> Any:
    listed = TFSERVING.ModelConfigList()
    for name in names:
        listed.config.add(name=name, **fields)
    return TFSERVING.ReloadConfigRequest(config={"model_config_list": listed})


def test_a_reload_serves_what_it_lists_by_the_policy_that_it_names(folder):
    path = f"{MODELS}/HandleReloadConfigRequest"
    with served(folder) as server, client_of(server) as client:
        policy = {"specific": {"versions": [1]}}
        request = reload_request(
            "numbers", model_version_policy=policy, version_labels={"canary": 1}
        )
        assert client(path, request).status.error_code == 0
        assert predict(client, spec(), x=X)["y"].tolist() == (X * 2).tolist()
        assert predict(client, spec(label="canary"), x=X)["y"].tolist() == (X * 2).tolist()
        assert not client(f"{KS}/ModelReady", KSERVE.ModelReadyRequest(name="examples")).ready
        client(path, reload_request("numbers", "examples"))
        assert client(f"{KS}/ModelReady", KSERVE.ModelReadyRequest(name="examples")).ready


def test_a_reload_brings_in_neither_models_nor_paths(client):
    path = f"{MODELS}/HandleReloadConfigRequest"
    for request, code in (
        (reload_request("passwords", base_path="/etc"), "NOT_FOUND"),
        (reload_request("numbers", base_path="/etc"), "PERMISSION_DENIED"),
        (TFSERVING.ReloadConfigRequest(), "INVALID_ARGUMENT"),
        (
            reload_request("numbers", model_version_policy={"specific": {"versions": [-1]}}),
            "INVALID_ARGUMENT",
        ),
    ):
        with pytest.raises(grpc.RpcError) as error:
            client(path, request)
        assert code_of(error) == code


def test_statistics_count_what_was_answered(client):
    def counted():
        request = KSERVE.ModelStatisticsRequest(name="numbers", version="2")
        found = client(f"{KS}/ModelStatistics", request).model_stats
        return found[0].inference_stats.success.count if found else 0

    before = counted()
    client(f"{KS}/ModelInfer", infer_request(X, "numbers"))
    assert counted() == before + 1


def test_a_question_for_metadata_ends_in_time_while_the_model_is_opened_to_know_it(
    zygote: None,
) -> None:
    asked = {
        f"{KS}/ModelMetadata": KSERVE.ModelMetadataRequest(name="same"),
        f"{KS}/ModelConfig": KSERVE.ModelConfigRequest(name="same"),
        f"{TFS}/GetModelMetadata": TFSERVING.GetModelMetadataRequest(
            model_spec=spec("same"), metadata_field=["signature_def"]
        ),
    }
    with sojourn.Pool() as pool:
        pool.register("same", lambda: lambda x: x, exclusive=True)
        catalogue = Catalogue(pool, {"same": ModelRules(timeout=0.2)})
        with serving(catalogue, grpc="127.0.0.1:0") as server, client_of(server) as client:
            with pool.lease("same"):
                for path, request in asked.items():
                    with pytest.raises(grpc.RpcError) as failed:
                        client(path, request)
                    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                    told = dict(failed.value.trailing_metadata())
                    assert "x-request-id" in told  # the server said so, not the client
            for path, request in asked.items():
                client(path, request)
