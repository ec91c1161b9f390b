"""The model that every system serves, and the same request in every protocol's body."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

import numpy as np

ROWS, COLUMNS = 784, 10
NAME = "softmax"
INPUT, OUTPUT = "x", "y"


def weights() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(7)
    made = draw.normal(size=(ROWS, COLUMNS)).astype(np.float32) * np.float32(0.05)
    return made, draw.normal(size=COLUMNS).astype(np.float32)


def predict(x: np.ndarray) -> np.ndarray:
    """Compute what every peer computes: the softmax of one dense layer, by numpy."""
    w, b = _weights
    logits = x @ w + b
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float32)


_weights = weights()
X = np.random.default_rng(1).random((1, ROWS), np.float32)


@dataclass(frozen=True)
class Body:
    """A request as a load generator sends it."""

    content: bytes
    headers: dict[str, str] = field(default_factory=dict)


def kserve_binary() -> Body:
    raw = X.tobytes()
    tensor = {"name": INPUT, "datatype": "FP32", "shape": list(X.shape)}
    tensor["parameters"] = {"binary_data_size": len(raw)}
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    text = json.dumps(asked).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(text)),
    }
    return Body(text + raw, headers)


def kserve_json() -> Body:
    data = [round(float(v), 6) for v in X.ravel()]
    tensor = {"name": INPUT, "datatype": "FP32", "shape": list(X.shape), "data": data}
    return Body(json.dumps({"inputs": [tensor]}).encode(), {"Content-Type": "application/json"})


def tfserving_json() -> Body:
    rows = [[round(float(v), 6) for v in row] for row in X]
    return Body(json.dumps({"instances": rows}).encode(), {"Content-Type": "application/json"})


def kserve_grpc() -> Body:
    """Return a gRPC message: not compressed, its length, and a ModelInferRequest encoded here."""

    def bytes_field(number: int, content: bytes) -> bytes:
        return _varint(number << 3 | 2) + _varint(len(content)) + content

    shape = bytes_field(3, b"".join(_varint(size) for size in X.shape))
    tensor = bytes_field(1, INPUT.encode()) + bytes_field(2, b"FP32") + shape
    message = bytes_field(1, NAME.encode()) + bytes_field(5, tensor) + bytes_field(7, X.tobytes())
    headers = {"content-type": "application/grpc", "te": "trailers"}
    return Body(b"\0" + struct.pack(">I", len(message)) + message, headers)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes([*parts, value])


BODIES = {
    "kserve-binary": kserve_binary,
    "kserve-json": kserve_json,
    "tfserving-json": tfserving_json,
    "grpc": kserve_grpc,
}
