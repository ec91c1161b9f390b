"""gRPC's messages: what our descriptors say, and that they disturb nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sojourn.service.grpc import messages
from sojourn.service.grpc.messages import KSERVE, REFLECTION, REFLECTION_ALPHA, TFSERVING, reading


def test_each_message_survives_the_way_there_and_back():
    request = KSERVE.ModelInferRequest(model_name="m", raw_input_contents=[b"\0\1"])
    request.parameters["timeout"].int64_param = 7
    request.inputs.add(name="x", datatype="FP32", shape=[2, -3])
    assert KSERVE.ModelInferRequest.FromString(request.SerializeToString()) == request
    predict = TFSERVING.PredictRequest()
    predict.model_spec.version.value = 3
    predict.inputs["x"].float_val.extend([1.0, 2.0])
    assert TFSERVING.PredictRequest.FromString(predict.SerializeToString()) == predict


def test_reflection_goes_by_both_of_its_names():
    names = [f.descriptor.package for f in (REFLECTION, REFLECTION_ALPHA)]
    assert names == ["grpc.reflection.v1", "grpc.reflection.v1alpha"]


def test_an_unknown_message_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no message 'Nothing'"):
        _ = KSERVE.Nothing


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("message A {", None),
        ("  int32 x = one;", "line 3"),
        ("rpc Nothing;", "line 3"),
        ("  Missing x = 1;", "no message or enum Missing"),
    ],
)
def test_a_declaration_that_is_not_understood_is_named(line, what):
    text = f"package p;\nmessage M {{\n{line}\n}}\n"
    if what is None:
        reading.read("f.proto", text + "}\n", {})
        return
    with pytest.raises(ValueError, match=what):
        reading.read("f.proto", text, {})


PROGRAM = """
import sys
from sojourn.service.grpc import messages
def ours():
    request = messages.TFSERVING.PredictRequest()
    request.inputs["x"].float_val.append(2.5)
    return request.SerializeToString()
if "ours first" in sys.argv: ours()
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
theirs = tensor_pb2.TensorProto(dtype=1, float_val=[2.5])
ours()
tensor = messages.TENSORS.TensorProto.FromString(theirs.SerializeToString())
assert list(tensor.float_val) == [2.5] and tensor.dtype == 1
assert type(tensor) is not type(theirs)
assert tf.make_ndarray(theirs) == 2.5
"""


COMPARE = """
from sojourn.service.grpc.messages import TENSORS
from tensorflow.core.example import example_pb2, feature_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import meta_graph_pb2
count = 0
for theirs in (tensor_pb2.TensorProto, tensor_shape_pb2.TensorShapeProto, example_pb2.Example,
               feature_pb2.Feature, feature_pb2.Features, meta_graph_pb2.TensorInfo,
               meta_graph_pb2.SignatureDef):
    ours = getattr(TENSORS, theirs.DESCRIPTOR.name).DESCRIPTOR
    known = {f.name: f for f in theirs.DESCRIPTOR.fields}
    for field in ours.fields:
        other = known[field.name]
        assert (field.number, field.type, field.is_repeated) == (
            other.number, other.type, other.is_repeated), field.full_name
    count += 1
types = TENSORS.descriptor.enum_types_by_name["DataType"]
from tensorflow.core.framework import types_pb2
for value in types.values:
    assert types_pb2.DataType.Value(value.name) == value.number, value.name
print(count, "messages agree")
"""


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
def test_ours_and_those_of_tensorflow_live_in_one_process_and_declare_the_same(order):
    program = [sys.executable, "-c", PROGRAM + COMPARE, order]
    told = subprocess.run(program, check=True, timeout=120, capture_output=True, text=True)
    assert told.stdout.split() == ["7", "messages", "agree"]


def test_reading_them_enters_nothing_into_the_default_pool():
    from google.protobuf import descriptor_pool

    assert messages.KSERVE.descriptor.pool is messages.POOL
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest")
