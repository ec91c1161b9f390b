"""Ask a server by tensorflow-serving-api, with TensorFlow's own protobuf. Argument: its address."""

from __future__ import annotations

import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
    status_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from sojourn.service.grpc.messages import TFSERVING

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def example(*values: float) -> tf.train.Example:
    floats = tf.train.FloatList(value=values)
    feature = {"x": tf.train.Feature(float_list=floats)}
    return tf.train.Example(features=tf.train.Features(feature=feature))


def compare() -> None:
    """Every field that we declare is one of theirs: its name, its number and its type."""
    modules = (
        classification_pb2, get_model_metadata_pb2, get_model_status_pb2, inference_pb2, input_pb2,
        model_management_pb2, model_pb2, model_server_config_pb2, predict_pb2, prediction_log_pb2,
        regression_pb2, status_pb2,
    )  # fmt: skip
    theirs = {}
    for module in modules:
        theirs |= module.DESCRIPTOR.message_types_by_name
    compared = 0
    for name, ours in TFSERVING.descriptor.message_types_by_name.items():
        if name in theirs:
            for field in ours.fields:
                other = theirs[name].fields_by_name[field.name]
                assert field.number == other.number, field.full_name
                assert field.type == other.type, field.full_name
                assert field.is_repeated == other.is_repeated, field.full_name
                compared += 1
    assert compared > 60, compared


def main(address: str) -> None:
    compare()
    with grpc.insecure_channel(address) as channel:
        ask(channel)
    print("ok")


def ask(channel: grpc.Channel) -> None:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "numbers"
    for tensor in (tf.make_tensor_proto(X), tf.make_tensor_proto(X.tolist(), tf.float32)):
        request.inputs["x"].CopyFrom(tensor)
        response = stub.Predict(request, 20)
        np.testing.assert_array_equal(tf.make_ndarray(response.outputs["y"]), X * 3)
        assert list(response.outputs["y"].float_val) == (X * 3).ravel().tolist()
    request.model_spec.version.value = 1
    response = stub.Predict(request, 20)
    np.testing.assert_array_equal(tf.make_ndarray(response.outputs["y"]), X * 2)
    assert response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"
    request.model_spec.name = "none"
    error = stub.Predict.future(request, 20).exception()
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "Servable not found for request" in error.details()

    words = predict_pb2.PredictRequest()
    words.model_spec.name, words.model_spec.signature_name = "numbers", "count"
    words.inputs["words"].CopyFrom(tf.make_tensor_proto(["abc", "de"]))
    words.inputs["times"].CopyFrom(tf.make_tensor_proto([2, 3], tf.int64))
    outputs = stub.Predict(words, 20).outputs
    assert tf.make_ndarray(outputs["letters"]).tolist() == [6, 6]
    assert tf.make_ndarray(outputs["words"]).tolist() == [b"abc", b"de"]

    classify = classification_pb2.ClassificationRequest()
    classify.model_spec.name = "examples"
    classify.input.example_list.examples.extend([example(0, 0), example(3, -3)])
    first, second = stub.Classify(classify, 20).result.classifications
    assert [c.label for c in first.classes] == ["left", "right"]
    assert second.classes[0].score > 0.9

    regress = regression_pb2.RegressionRequest()
    regress.model_spec.name, regress.model_spec.signature_name = "examples", "sum"
    regress.input.example_list.examples.append(example(1, 2.5))
    assert [r.value for r in stub.Regress(regress, 20).result.regressions] == [3.5]

    multi = inference_pb2.MultiInferenceRequest()
    multi.input.CopyFrom(regress.input)
    task = multi.tasks.add(method_name="tensorflow/serving/regress")
    task.model_spec.CopyFrom(regress.model_spec)
    results = stub.MultiInference(multi, 20).results
    assert results[0].regression_result.regressions[0].value == 3.5

    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.name = "numbers"
    found = get_model_metadata_pb2.SignatureDefMap()
    assert stub.GetModelMetadata(metadata, 20).metadata["signature_def"].Unpack(found)
    assert found.signature_def["serving_default"].inputs["x"].dtype == tf.float32.as_datatype_enum

    models = model_service_pb2_grpc.ModelServiceStub(channel)
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "numbers"
    listed = models.GetModelStatus(status, 20).model_version_status
    assert {s.version: s.state for s in listed} == {1: 30, 2: 30}


if __name__ == "__main__":
    main(*sys.argv[1:])
