"""Tensors in messages: every dtype there and back, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sojourn.service.failures import Refused, Status
from sojourn.service.grpc import contents, tensors
from sojourn.service.grpc.messages import KSERVE, TENSORS
from sojourn.values.dtypes import BY_NAME

NUMBERS = {
    number.name: number.number
    for number in TENSORS.descriptor.enum_types_by_name["DataType"].values
}


def example_of(name: str) -> np.ndarray:
    dtype = BY_NAME[name]
    few = np.array([[0, 1, 1], [1, 0, 1]], np.uint8)
    if dtype.names:
        return few.astype(dtype[0]).view(dtype)
    return few.astype(dtype)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_dtype_goes_into_a_tensor_proto_and_back(name):
    array = example_of(name)
    proto = TENSORS.TensorProto()
    tensors.from_array(array, proto, "y")
    back = tensors.to_array(TENSORS.TensorProto.FromString(proto.SerializeToString()), "y")
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    assert back.shape == (2, 3)
    raw = TENSORS.TensorProto(dtype=proto.dtype, tensor_content=array.tobytes())
    raw.tensor_shape.CopyFrom(proto.tensor_shape)
    assert tensors.to_array(raw, "y").tobytes() == array.tobytes()


def test_tensorflow_reads_what_we_write_and_we_read_what_it_writes():
    tf = pytest.importorskip("tensorflow")
    theirs_class = type(tf.make_tensor_proto(1.0))
    for name in sorted(BY_NAME):
        array = example_of(name)
        proto = TENSORS.TensorProto()
        tensors.from_array(array, proto, "y")
        theirs = tf.make_ndarray(theirs_class.FromString(proto.SerializeToString()))
        assert theirs.tobytes() == array.tobytes(), name
        made = tf.make_tensor_proto(array).SerializeToString()
        ours = tensors.to_array(TENSORS.TensorProto.FromString(made), "y")
        assert (ours.dtype, ours.tobytes()) == (array.dtype, array.tobytes()), name
    texts = tf.make_tensor_proto([[b"a", b""], ["ü".encode(), b"\xff"]]).SerializeToString()
    ours = tensors.to_array(TENSORS.TensorProto.FromString(texts), "y")
    assert ours.tolist() == [[b"a", b""], ["ü".encode(), b"\xff"]]


def proto_of(dtype: str, shape: list[int], **fields: object):
    proto = TENSORS.TensorProto(dtype=NUMBERS[dtype], **fields)
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    return proto


def test_one_value_fills_a_tensor_and_the_last_one_the_rest_of_it():
    one = tensors.to_array(proto_of("DT_FLOAT", [2, 2], float_val=[1.5]), "x")
    assert one.tolist() == [[1.5, 1.5], [1.5, 1.5]]
    two = tensors.to_array(proto_of("DT_INT64", [4], int64_val=[1, 2]), "x")
    assert two.tolist() == [1, 2, 2, 2]
    none = tensors.to_array(proto_of("DT_INT32", [2]), "x")
    assert none.tolist() == [0, 0]
    text = tensors.to_array(proto_of("DT_STRING", [2], string_val=[b"a"]), "x")
    assert text.tolist() == [b"a", b"a"]


def test_a_tensor_that_comes_short_has_no_memory_before_it_is_filled_up():
    short = {}
    whole = tensors.to_array(proto_of("DT_INT64", [1], int64_val=[7]), "whole", short)
    assert whole.tolist() == [7]
    one = tensors.to_array(proto_of("DT_FLOAT", [2**13, 2**12], float_val=[1, 2]), "one", short)
    assert (one.shape, one.dtype, one.strides) == ((2**13, 2**12), np.float32, (0, 0))
    text = tensors.to_array(proto_of("DT_STRING", [4], string_val=[b"a", b"bc"]), "text", short)
    assert text.shape == (4,)
    assert short == {"one": 2**27, "text": 4 * 8 + 2 * 2}
    quantized = tensors.to_array(proto_of("DT_QINT8", [2]), "x")
    assert quantized.tolist() == [(0,), (0,)]


def test_strings_may_come_in_one_piece():
    content = bytes([1, 0, 2]) + b"abc"
    array = tensors.to_array(proto_of("DT_STRING", [3], tensor_content=content), "x")
    assert array.tolist() == [b"a", b"", b"bc"]


@pytest.mark.parametrize(
    ("proto", "why"),
    [
        (proto_of("DT_FLOAT", [3], tensor_content=b"1234"), "takes 12 bytes, and 4 came"),
        (proto_of("DT_FLOAT", [1], float_val=[1, 2]), "takes 1 values, and 2 came"),
        (proto_of("DT_FLOAT", [-1], float_val=[1]), "no array has the shape"),
        (proto_of("DT_FLOAT", [0, 2**62, 2**62]), "no array has the shape"),
        (proto_of("DT_FLOAT", [2**40], float_val=[1]), "too large to be filled up"),
        (proto_of("DT_STRING", [2**40], string_val=[b"a"]), "too large to be filled up"),
        (proto_of("DT_STRING", [2**20], string_val=[b"a" * 300]), "too large to be filled up"),
        (proto_of("DT_STRING", [2], tensor_content=b"\x05\x05abc"), "are not 2 strings"),
        (proto_of("DT_STRING", [1], string_val=[b"a", b"b"]), "takes 1 strings, and 2 came"),
        (proto_of("DT_UINT8", [1], int_val=[256]), "256 does not fit into uint8"),
        (proto_of("DT_HALF", [1], half_val=[-1]), "-1 does not fit"),
        (proto_of("DT_COMPLEX64", [1], scomplex_val=[1]), "two parts"),
        (proto_of("DT_BOOL", [1], tensor_content=b"\x02"), "0 or 1"),
        (proto_of("DT_RESOURCE", [1]), "cannot be an input"),
        (
            TENSORS.TensorProto(dtype=1, tensor_shape=TENSORS.TensorShapeProto(unknown_rank=True)),
            "must be known",
        ),
    ],
)
def test_what_cannot_be_an_array_is_refused_with_its_reason(proto, why):
    with pytest.raises(Refused, match=why) as refused:
        tensors.to_array(proto, "x")
    assert refused.value.status is Status.INVALID_ARGUMENT


# -- KServe ----------------------------------------------------------------------------------------

KSERVE_TYPES = {
    "BOOL": bool, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("datatype", [*KSERVE_TYPES, "BYTES"])
def test_every_datatype_goes_into_an_infer_message_and_back(datatype, raw):
    if datatype == "BYTES":
        array = np.array([[b"a", b""], [b"\xff", b"long" * 100]], object)
    else:
        array = np.array([[0, 1], [1, 1]]).astype(KSERVE_TYPES[datatype])
    response = KSERVE.ModelInferResponse()
    contents.put_outputs({"x": array}, response, raw=raw)
    assert bool(response.raw_output_contents) is (raw or datatype in ("FP16", "BF16"))
    # An answer and a request carry tensors in the same way.
    request = KSERVE.ModelInferRequest(raw_input_contents=response.raw_output_contents)
    request.inputs.add().MergeFromString(response.outputs[0].SerializeToString())
    back = contents.inputs_of(request)["x"]
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()


def infer_request(*inputs: dict, raw: list[bytes] | None = None):
    request = KSERVE.ModelInferRequest(raw_input_contents=raw or [])
    for each in inputs:
        request.inputs.add(**each)
    return request


def typed(datatype: str, shape: list[int], **fields: object) -> dict:
    return {
        "name": "x",
        "datatype": datatype,
        "shape": shape,
        "contents": KSERVE.InferTensorContents(**fields),
    }


PLAIN = {"name": "x", "datatype": "FP32", "shape": [1]}


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (infer_request(PLAIN, raw=[b"123"]), "has 4 bytes, got 3"),
        (infer_request(PLAIN, raw=[b"1234", b""]), "1 inputs and 2 raw contents"),
        (infer_request(PLAIN, PLAIN, raw=[b"1234"] * 2), "twice"),
        (infer_request({**PLAIN, "datatype": "FP8"}, raw=[b"1"]), "unknown datatype 'FP8'"),
        (infer_request({**PLAIN, "shape": [-1]}, raw=[b""]), "no array has the shape"),
        (infer_request({**PLAIN, "datatype": "BYTES"}, raw=[b"\xff\xff\0\0a"]), "beyond the data"),
        (infer_request({**PLAIN, "datatype": "BOOL"}, raw=[b"\x07"]), "0 or 1"),
        (infer_request(typed("FP32", [1], fp32_contents=[1]), raw=[b"1234"]), "raw ones"),
        (infer_request(typed("FP32", [2], fp32_contents=[1])), "takes 2 values, and 1 came"),
        (infer_request(typed("FP32", [1], fp64_contents=[1])), "must be in fp32_contents"),
        (infer_request(typed("FP16", [1], fp32_contents=[1])), "raw_input_contents"),
        (infer_request(typed("INT8", [1], int_contents=[128])), "128 does not fit into int8"),
        (infer_request(PLAIN), "takes 1 values, and 0 came"),
    ],
)  # fmt: skip
def test_a_request_whose_tensors_do_not_fit_is_refused_with_its_reason(request_, why):
    with pytest.raises(Refused, match=why) as refused:
        contents.inputs_of(request_)
    assert refused.value.status is Status.INVALID_ARGUMENT


def test_raw_contents_are_not_copied_again():
    raw = np.arange(4, dtype=np.float32).tobytes()
    request = infer_request({**PLAIN, "shape": [4]}, raw=[raw])
    array = contents.inputs_of(request)["x"]
    assert array.base is not None
    assert not array.flags.owndata
