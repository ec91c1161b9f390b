"""Writes ONNX models field by field, so that no test needs the library that makes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wire_writer import field, number

FLOAT, INT64, STRING, BFLOAT16 = 1, 7, 8, 16
Shape = Sequence[int | str] | None


def integer(index: int, value: int) -> bytes:
    """Return one field with an integer."""
    return number(index << 3) + number(value % 2**64)


def value(name: str, code: int, shape: Shape) -> bytes:
    """A ValueInfoProto: a shape of `None` is any rank, a name in it any size."""
    dims = b""
    if shape is not None:
        parts = (integer(1, d) if isinstance(d, int) else field(2, d) for d in shape)
        dims = field(2, *(field(1, part) for part in parts))
    return field(1, name) + field(2, field(1, integer(1, code), dims))


def sequence(name: str) -> bytes:
    """A ValueInfoProto of a sequence of tensors."""
    return field(1, name) + field(2, field(4, field(1, field(1, integer(1, FLOAT)))))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "") -> bytes:
    """A NodeProto."""
    ends = [field(1, i) for i in inputs] + [field(2, o) for o in outputs]
    return b"".join([*ends, field(4, op), *([field(7, domain)] if domain else [])])


def weight(name: str, array: np.ndarray, location: str = "") -> bytes:
    """A TensorProto of floats, with its content or the name of the file that has it."""
    dims = b"".join(integer(1, d) for d in array.shape)
    if location:
        held = field(13, field(1, "location"), field(2, location)) + integer(14, 1)
    else:
        held = field(9, array.astype("<f4").tobytes())
    return dims + integer(2, FLOAT) + field(8, name) + held


def model(
    nodes: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    weights: Sequence[bytes] = (),
    opset: int = 18,
    ir_version: int = 9,
    domains: Sequence[str] = (),
) -> bytes:
    """A ModelProto."""
    graph = field(
        7,
        *(field(1, n) for n in nodes),
        field(2, "g"),
        *(field(5, w) for w in weights),
        *(field(11, i) for i in inputs),
        *(field(12, o) for o in outputs),
    )
    opsets = field(8, integer(2, opset)) + b"".join(
        field(8, field(1, domain), integer(2, 1)) for domain in domains
    )
    return integer(1, ir_version) + field(2, "tests") + graph + opsets


def dense(location: str = "") -> bytes:
    """`y = x @ w` for any number of rows of four, with `WEIGHTS`."""
    return model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", FLOAT, ["rows", 4])],
        [value("y", FLOAT, ["rows", 3])],
        [weight("w", WEIGHTS, location)],
    )


def identity(code: int, shape: Shape) -> bytes:
    """Return a model whose output is its input."""
    return model(
        [node("Identity", ["x"], ["y"])], [value("x", code, shape)], [value("y", code, shape)]
    )


WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)
