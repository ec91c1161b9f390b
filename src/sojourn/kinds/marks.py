"""Recognition of model files by their first bytes."""

from __future__ import annotations

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"

_NODE, _NAME, _OP = 0x0A, 0x0A, 0x12  # the protobuf tags of these fields
_ONNX = (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42)  # tags of fields that may follow the IR version


def as_keras_file(start: bytes) -> bool:
    """Whether the bytes begin a zip archive or an HDF5 file."""
    return start.startswith((ZIP, HDF5))


def as_graph(start: bytes) -> bool:
    """Whether the bytes begin a serialised graph: a node, which has a name and an op."""
    at, _ = _field(start, 0, _NODE)
    at, size = _field(start, at, _NAME) if at else (0, 0)
    name = start[at : at + size]
    if not name or not name.isascii() or not name.decode().isprintable():
        return False
    return at + size >= len(start) or start[at + size] == _OP


def as_onnx(start: bytes) -> bool:
    """Whether the bytes begin a serialised ONNX model: an IR version in use, then a known field."""
    return len(start) > 2 and start[0] == 0x08 and 3 <= start[1] < 0x80 and start[2] in _ONNX


def as_tflite(start: bytes) -> bool:
    """Whether the bytes begin a TensorFlow Lite flatbuffer."""
    return start[4:8] == b"TFL3"


def _field(start: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return where the field's content begins, and its size; 0 and 0 if the tag differs."""
    if at >= len(start) or start[at] != tag:
        return 0, 0
    size = 0
    for i, byte in enumerate(start[at + 1 : at + 6]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return at + 2 + i, size
    return 0, 0
