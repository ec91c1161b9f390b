"""Requests of all five protocols, and HTTP/2 frames with calls in them, valid and then damaged.
Each follows from a seed and a number."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hpack
import numpy as np

from sojourn.service import examples
from sojourn.service.grpc import tensors
from sojourn.service.grpc.messages import KSERVE, TENSORS, TFSERVING
from sojourn.service.http2 import frames

PROTOCOLS = (
    "tfserving-rest", "kserve-rest", "kserve-binary", "kserve-grpc", "tfserving-grpc", "grpc-frames"
)  # fmt: skip
X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
HEADER_LENGTH = "Inference-Header-Content-Length"

NUMBERS = [0, 1, -1, 2, 127, 128, 255, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
TEXTS = [
    "", "x", "numbers", "serving_default", "FP32", "BYTES", "\0", "\ud7ff", "é" * 50, "a" * 5000,
    "../../etc/passwd", "%2e%2e", "1", "-1", "1e400", "None", "b64", "__class__",
]  # fmt: skip
VALUES: list[Any] = [
    *NUMBERS, *TEXTS, None, True, False, 0.5, -0.0, 1e308, float("nan"), float("inf"), 10**30,
    [], {}, [[]], [None], [[1, 2], [3]], {"b64": "AAAA"}, {"b64": "*"}, {"b64": 1}, {"x": [1, 2]},
    [1] * 1000, [[[[[[[[1]]]]]]]],
]  # fmt: skip


@dataclass
class HttpRequest:
    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None  # the bytes to send, if the request as a whole was damaged

    def encoded(self) -> bytes:
        if self.raw is not None:
            return self.raw
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + self.body


@dataclass
class GrpcRequest:
    path: str
    body: bytes


@dataclass
class FramesRequest:
    content: bytes  # everything that the client sends on a connection
    calls: int


Request = HttpRequest | GrpcRequest | FramesRequest


def request_number(seed: int, number: int) -> tuple[str, Request]:
    """Return the protocol and the request with this number."""
    draw = random.Random(f"{seed} {number}")
    protocol = PROTOCOLS[number % len(PROTOCOLS)]
    made: Request
    if protocol == "tfserving-rest":
        made = spoilt_http(draw, *tfserving_json(draw))
    elif protocol == "kserve-rest":
        made = spoilt_http(draw, *kserve_json(draw))
    elif protocol == "kserve-binary":
        made = spoilt_binary(draw)
    elif protocol == "grpc-frames":
        made = spoilt_frames(draw)
    else:
        made = spoilt_message(draw, *(kserve if protocol == "kserve-grpc" else tfserving)(draw))
    return protocol, made


# -- valid requests --------------------------------------------------------------------------------


def tfserving_json(draw: random.Random) -> tuple[str, Any]:
    path = "/v1/models/numbers" + draw.choice(["", "/versions/1", "/labels/stable"])
    return draw.choice(
        [
            (f"{path}:predict", {"instances": X.tolist()}),
            (f"{path}:predict", {"inputs": {"x": X.tolist()}}),
            (f"{path}:predict", {"instances": [{"x": [1, 2]}, {"x": [3.5, 4]}]}),
            (
                f"{path}:predict",
                {
                    "signature_name": "count",
                    "inputs": {"words": ["a", {"b64": "AP8="}], "times": [1, 2]},
                },
            ),
            ("/v1/models/examples:classify", {"examples": [{"x": [1.0, 2.0]}], "context": {}}),
            (
                "/v1/models/examples:regress",
                {"signature_name": "sum", "examples": [{"x": [1.0, 2.0]}]},
            ),
        ]
    )


def kserve_json(draw: random.Random) -> tuple[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": X.ravel().tolist()}
    asked: dict[str, Any] = {"id": "1", "inputs": [tensor]}
    if draw.random() < 0.5:
        asked["outputs"] = [{"name": "y", "parameters": {"binary_data": False}}]
    if draw.random() < 0.3:
        asked["parameters"] = {"timeout": 10_000_000, "binary_data_output": True}
    path = draw.choice(["/v2/models/numbers/infer", "/v2/models/numbers/versions/1/infer"])
    return path, asked


def kserve(draw: random.Random) -> tuple[str, Any]:
    service = "inference.GRPCInferenceService"
    if draw.random() < 0.15:
        name, message = draw.choice(
            [
                ("ModelMetadata", KSERVE.ModelMetadataRequest(name="numbers")),
                ("ModelReady", KSERVE.ModelReadyRequest(name="numbers", version="1")),
                ("ModelConfig", KSERVE.ModelConfigRequest(name="numbers")),
                ("ModelStatistics", KSERVE.ModelStatisticsRequest(name="numbers")),
                ("RepositoryIndex", KSERVE.RepositoryIndexRequest(ready=True)),
            ]
        )
        return f"/{service}/{name}", message
    request = KSERVE.ModelInferRequest(model_name="numbers", id="1")
    request.parameters["timeout"].int64_param = 10_000_000
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[2, 2])
    if draw.random() < 0.5:
        request.raw_input_contents.append(X.tobytes())
    else:
        tensor.contents.fp32_contents.extend(X.ravel())
    if draw.random() < 0.5:
        request.outputs.add(name="y")
    return f"/{service}/ModelInfer", request


def tfserving(draw: random.Random) -> tuple[str, Any]:
    service = "tensorflow.serving.PredictionService"
    kind = draw.random()
    if kind < 0.5:
        request = TFSERVING.PredictRequest(model_spec={"name": "numbers"})
        proto = request.inputs["x"]
        tensors.from_array(X, proto, "x")
        if draw.random() < 0.5:
            proto.ClearField("float_val")
            proto.tensor_content = X.tobytes()
        return f"/{service}/Predict", request
    if kind < 0.65:
        request = TFSERVING.PredictRequest(
            model_spec={"name": "numbers", "signature_name": "count"}, output_filter=["letters"]
        )
        tensors.from_array(np.array([b"a", b"bc"], object), request.inputs["words"], "words")
        tensors.from_array(np.array([1, 2]), request.inputs["times"], "times")
        return f"/{service}/Predict", request
    example = TENSORS.Example.FromString(examples.from_json({"x": [1.0, 2.0]}))
    given = TFSERVING.Input(example_list={"examples": [example]})
    spec = TFSERVING.ModelSpec(name="examples")
    if kind < 0.75:
        return f"/{service}/Classify", TFSERVING.ClassificationRequest(model_spec=spec, input=given)
    if kind < 0.85:
        spec.signature_name = "sum"
        return f"/{service}/Regress", TFSERVING.RegressionRequest(model_spec=spec, input=given)
    if kind < 0.95:
        multi = TFSERVING.MultiInferenceRequest(input=given)
        multi.tasks.add(model_spec=spec, method_name="tensorflow/serving/classify")
        return f"/{service}/MultiInference", multi
    return f"/{service}/GetModelMetadata", TFSERVING.GetModelMetadataRequest(
        model_spec=spec, metadata_field=["signature_def"]
    )


# -- damaging them ---------------------------------------------------------------------------------


def spoilt_http(draw: random.Random, path: str, tree: Any) -> HttpRequest:
    kind = draw.random()
    if kind < 0.6:
        for _ in range(draw.randint(1, 3)):
            tree = spoilt_tree(draw, tree)
        return HttpRequest("POST", path, _json(tree))
    body = _json(tree)
    if kind < 0.8:
        return HttpRequest("POST", path, spoilt_bytes(draw, body))
    return _spoilt_frame(draw, HttpRequest("POST", path, body))


def spoilt_binary(draw: random.Random) -> HttpRequest:
    raw = X.tobytes()
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 2]}
    tensor["parameters"] = {"binary_data_size": len(raw)}
    tree: Any = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    kind = draw.random()
    if kind < 0.4:
        tree = spoilt_tree(draw, tree)
    text = _json(tree)
    length = str(len(text))
    if 0.4 <= kind < 0.6:
        length = draw.choice(["0", "-1", "", "abc", str(len(text) + 1), "9" * 30, "16", "1e2"])
    body = text + (spoilt_bytes(draw, raw) if 0.6 <= kind < 0.75 else raw)
    if 0.75 <= kind < 0.9:
        body = spoilt_bytes(draw, body)
    made = HttpRequest("POST", "/v2/models/numbers/infer", body, {HEADER_LENGTH: length})
    return _spoilt_frame(draw, made) if kind >= 0.9 else made


def _spoilt_frame(draw: random.Random, request: HttpRequest) -> HttpRequest:
    """Damage what surrounds the body: the method, the path, the headers, or any byte."""
    kind = draw.randrange(6)
    if kind == 0:
        request.method = draw.choice(["GET", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "FOO"])
    elif kind == 1:
        parts = request.path.split("/")
        parts[draw.randrange(len(parts))] = draw.choice(
            ["..", "%00", "%ff", "numbers", "a" * 3000, "", "1" * 30, "-1", ":predict", "?x=%"]
        )
        request.path = "/".join(parts) or "/"
    elif kind == 2:
        request.headers["Content-Encoding"] = draw.choice(["gzip", "deflate", "br", "gzip, gzip"])
        if draw.random() < 0.5:
            request.body = gzip.compress(request.body, 1)
        if draw.random() < 0.5:
            request.body = spoilt_bytes(draw, request.body)
    elif kind == 3:
        name = draw.choice(
            ["Authorization", "Content-Type", "X-Request-Id", "Expect", HEADER_LENGTH]
        )
        request.headers[name] = draw.choice(["", "x" * 5000, "Bearer x", "100-continue", "\x7f"])
    elif kind == 4:
        coded = draw.choice([b"chunked", b"gzip", b"chunked, chunked"])
        head = f"{request.method} {request.path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
        size = draw.choice([b"%x" % len(request.body), b"ffffffffffffffff", b"-1", b"zz"])
        request.raw = head.encode() + coded + b"\r\n\r\n" + size + b"\r\n" + request.body
    else:
        request.raw = spoilt_bytes(draw, request.encoded())
    return request


def spoilt_bytes(draw: random.Random, content: bytes) -> bytes:
    """Change, cut, repeat, remove or insert a few bytes."""
    spoilt = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(spoilt) + 1)
        kind = draw.randrange(5)
        if kind == 0 and at < len(spoilt):
            spoilt[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del spoilt[at:]
        elif kind == 2:
            spoilt[at:at] = draw.randbytes(draw.randint(1, 8))
        elif kind == 3:
            end = at + draw.randint(1, 20)
            spoilt[at:at] = spoilt[at:end]
        else:
            del spoilt[at : at + draw.randint(1, 8)]
    return bytes(spoilt)


def spoilt_tree(draw: random.Random, tree: Any) -> Any:
    """Replace, remove or repeat one node of a JSON value."""
    if isinstance(tree, dict) and tree and draw.random() < 0.85:
        key = draw.choice(sorted(tree))
        spoilt = dict(tree)
        kind = draw.random()
        if kind < 0.1:
            del spoilt[key]
        elif kind < 0.2:
            spoilt[draw.choice(TEXTS)] = draw.choice(VALUES)
        else:
            spoilt[key] = spoilt_tree(draw, tree[key])
        return spoilt
    if isinstance(tree, list) and tree and draw.random() < 0.85:
        at = draw.randrange(len(tree))
        kind = draw.random()
        if kind < 0.1:
            return tree[:at] + tree[at + 1 :]
        if kind < 0.2:
            return tree + [tree[at]] * draw.randint(1, 40)
        return [*tree[:at], spoilt_tree(draw, tree[at]), *tree[at + 1 :]]
    if draw.random() < 0.02:
        return _Deep(draw.choice([100, 1000, 100_000]))
    return draw.choice(VALUES)


class _Deep(str):
    """A placeholder for deeply nested lists, which `json.dumps` cannot write."""

    def __new__(cls, depth: int) -> _Deep:
        return super().__new__(cls, f"@deep{depth}@")


def _json(tree: Any) -> bytes:
    text = json.dumps(tree)
    for depth in (100, 1000, 100_000):
        text = text.replace(f'"@deep{depth}@"', "[" * depth + "]" * depth)
    return text.encode()


def spoilt_message(draw: random.Random, path: str, message: Any) -> GrpcRequest:
    """Change fields so that the message can still be parsed, or change any of its bytes."""
    if draw.random() < 0.7:
        for _ in range(draw.randint(1, 3)):
            _spoil_field(draw, message)
        return GrpcRequest(path, message.SerializeToString())
    return GrpcRequest(path, spoilt_bytes(draw, message.SerializeToString()))


def spoilt_frames(draw: random.Random) -> FramesRequest:
    """Make some calls on one connection, with whole frames, their content, or any byte damaged."""
    kind = draw.randrange(5)
    encoder = hpack.Encoder()
    parts = [frames.PREFACE, frames.settings({})]
    calls = draw.randint(1, 3)
    for call in range(calls):
        parts += _framed_call(draw, encoder, 2 * call + 1, spoils=kind == 0)
    for _ in range(draw.choice([1, 1, 1, 3])):
        at = draw.randrange(1, len(parts))
        if kind == 1:
            parts[at] = _with_another_head(draw, parts[at])
        elif kind == 2:
            parts[at:at] = draw.choice([[parts[at]], [_any_frame(draw)], [_any_frame(draw)] * 50])
        elif kind == 3:
            other = draw.randrange(1, len(parts))
            parts[at], parts[other] = parts[other], parts[at]
    content = b"".join(parts)
    return FramesRequest(spoilt_bytes(draw, content) if kind == 4 else content, calls)


def _framed_call(
    draw: random.Random, encoder: hpack.Encoder, number: int, *, spoils: bool
) -> list[bytes]:
    path, message = draw.choice([kserve, tfserving])(draw)
    if draw.random() < 0.2:
        path = "/inference.GRPCInferenceService/ModelStreamInfer"
    content = message.SerializeToString()
    body = b"\0" + len(content).to_bytes(4, "big") + content
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "a",
        "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    if spoils:
        name = draw.choice(
            [*fields, "grpc-timeout", "grpc-encoding", "content-length", "x-request-id", "x-a-bin",
             "host", "cookie", "connection", "X", ""]
        )  # fmt: skip
        values = ["", "a" * 5000, "1m", "99999999H", "gzip", "-1", "1e9", "\0", "é", "a\r\nb: c"]
        fields[name] = draw.choice(values)
        body = draw.choice([body, body + body, spoilt_bytes(draw, body), b"\1" + body[1:], b""])
    block = encoder.encode(fields, huffman=draw.random() < 0.5)
    if spoils and draw.random() < 0.3:
        block = spoilt_bytes(draw, block)
    cut = draw.randrange(len(block) + 1) if draw.random() < 0.3 else len(block)
    made = [
        frames.frame(frames.HEADERS, frames.END_HEADERS * (cut == len(block)), number, block[:cut])
    ]
    if cut < len(block):
        made.append(frames.frame(frames.CONTINUATION, frames.END_HEADERS, number, block[cut:]))
    size = draw.choice([1, 7, 100, 2**14])
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        if draw.random() < 0.2:
            piece = b"\3" + piece + bytes(3)
            made.append(frames.frame(frames.DATA, frames.PADDED, number, piece))
        else:
            made.append(frames.frame(frames.DATA, 0, number, piece))
    return [*made, frames.frame(frames.DATA, frames.END_STREAM, number)]


def _with_another_head(draw: random.Random, content: bytes) -> bytes:
    length, kind, flags, number = frames.head_at(content, 0)
    changed = [length, kind, flags, number]
    at = draw.randrange(4)
    changed[at] = draw.choice(
        [
            [0, length + 1, max(0, length - 1), 2**14 + 1, 2**24 - 1],
            [*range(11), 255],
            [flags ^ 1, flags ^ 4, flags ^ 8, flags ^ 0x20, 0, 255],
            [0, 1, 2, 3, 5, number + 2, 2**31 - 1],
        ][at]
    )
    return frames.frame_head(*changed) + content[frames.HEAD_BYTES :]


def _any_frame(draw: random.Random) -> bytes:
    kind, number = draw.randrange(11), draw.choice([0, 1, 1, 3, 5, 2**31 - 1])
    sizes = {frames.PRIORITY: 5, frames.RST_STREAM: 4, frames.PING: 8, frames.WINDOW_UPDATE: 4}
    sizes |= {frames.SETTINGS: 6, frames.GOAWAY: 8}
    size = sizes.get(kind, 3) if draw.random() < 0.8 else draw.randrange(20)
    content = draw.choice([bytes(size), b"\xff" * size, draw.randbytes(size)])
    if kind == frames.SETTINGS and draw.random() < 0.8:
        content = bytes((0, draw.randrange(1, 7))) + draw.choice([0, 1, 2**14, 2**31]).to_bytes(
            4, "big"
        )
        number = 0
    return frames.frame(kind, draw.choice([0, 1, 4, 5, 8, 255]), number, content)


def _spoil_field(draw: random.Random, message: Any, depth: int = 0) -> None:
    field_ = draw.choice(message.DESCRIPTOR.fields)
    is_map = field_.message_type is not None and field_.message_type.GetOptions().map_entry
    present = [f for f, _ in message.ListFields() if f.message_type is not None]
    if present and depth < 5 and draw.random() < 0.6:
        field_ = draw.choice(present)
        is_map = field_.message_type.GetOptions().map_entry
        value = getattr(message, field_.name)
        if is_map:
            value = value[draw.choice(sorted(value))]
        elif field_.is_repeated:
            value = draw.choice(value)
        if hasattr(value, "DESCRIPTOR"):
            _spoil_field(draw, value, depth + 1)
            return
    if draw.random() < 0.2:
        message.ClearField(field_.name)
    elif is_map:
        value = getattr(message, field_.name)[draw.choice(TEXTS)]
        if hasattr(value, "DESCRIPTOR"):
            _spoil_field(draw, value, depth + 1)
    elif field_.message_type is not None:
        if field_.is_repeated:
            getattr(message, field_.name).add()
        else:
            getattr(message, field_.name).SetInParent()
    elif field_.is_repeated:
        values = getattr(message, field_.name)
        made = [_scalar(draw, field_) for _ in range(draw.choice([1, 2, 40]))]
        if draw.random() < 0.3:
            del values[:]
        values.extend(made)
    else:
        setattr(message, field_.name, _scalar(draw, field_))


def _scalar(draw: random.Random, field_: Any) -> Any:
    kinds: dict[int, Callable[[], Any]] = {
        field_.CPPTYPE_STRING: lambda: _text(draw, field_),
        field_.CPPTYPE_BOOL: lambda: draw.random() < 0.5,
        field_.CPPTYPE_ENUM: lambda: draw.choice([0, 1, 7, 20, 33, 101, 2**31 - 1]),
        field_.CPPTYPE_FLOAT: lambda: draw.choice([0.0, -1.5, float("nan"), float("inf")]),
        field_.CPPTYPE_DOUBLE: lambda: draw.choice([0.0, 1e308, float("nan")]),
    }
    made = kinds.get(field_.cpp_type)
    if made is not None:
        return made()
    bits = 32 if field_.cpp_type in (field_.CPPTYPE_INT32, field_.CPPTYPE_UINT32) else 64
    is_signed = field_.cpp_type in (field_.CPPTYPE_INT32, field_.CPPTYPE_INT64)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if is_signed else (0, 2**bits)
    return draw.choice([n for n in NUMBERS if low <= n < high])


def _text(draw: random.Random, field_: Any) -> Any:
    text = draw.choice(TEXTS)
    if field_.type == field_.TYPE_BYTES:
        return draw.choice([text.encode(), draw.randbytes(draw.randint(0, 40)), X.tobytes()])
    return text
