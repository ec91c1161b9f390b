"""What the KServe protocol reports about a server and its models, as plain values.

HTTP sends the values as JSON, gRPC as messages whose fields have the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sojourn._version import __version__
from sojourn.service import datatypes
from sojourn.service.served import ModelMetadata, VersionState, VersionStatus
from sojourn.service.statistics import ModelStatistics
from sojourn.values import TensorSpec

SERVER = {
    "name": "sojourn",
    "version": __version__,
    "extensions": ["binary_tensor_data", "model_configuration", "model_repository", "statistics"],
}


def metadata(of: ModelMetadata) -> dict[str, Any]:
    """Return the metadata of a model: its inputs and outputs."""
    return {
        "name": of.name,
        "versions": [str(version) for version in of.versions],
        "platform": of.platform,
        "inputs": _tensors(of.usual.inputs),
        "outputs": _tensors(of.usual.outputs),
    }


def config(of: ModelMetadata) -> dict[str, Any]:
    """Return the same metadata in Triton's form."""
    return {
        "name": of.name,
        "platform": of.platform,
        "backend": of.engine,
        # 0: the shapes below include the batch dimension.
        "max_batch_size": 0,
        "input": _config_tensors(of.usual.inputs),
        "output": _config_tensors(of.usual.outputs),
    }


def index(statuses: Iterable[VersionStatus], only_ready: bool) -> list[dict[str, str]]:
    """Return every version, or only the ready ones, with its state."""
    return [
        {
            "name": status.name,
            "version": str(status.version),
            "state": "READY" if status.state is VersionState.AVAILABLE else "UNAVAILABLE",
            "reason": status.error,
        }
        for status in statuses
        if status.state is VersionState.AVAILABLE or not only_ready
    ]


def statistics(of: ModelStatistics) -> dict[str, Any]:
    """Return the statistics of one version."""

    def times(count: int, seconds: float) -> dict[str, int]:
        return {"count": count, "ns": round(seconds * 1e9)}

    return {
        "name": of.name,
        "version": str(of.version),
        "last_inference": round(of.last_request * 1000),
        "inference_count": of.rows,
        "execution_count": of.steps,
        "inference_stats": {
            "success": times(of.succeeded, of.request_seconds),
            "fail": times(of.failed, 0.0),
            "queue": times(of.succeeded, of.queue_seconds),
            "compute_input": times(of.steps, 0.0),
            "compute_infer": times(of.steps, of.step_seconds),
            "compute_output": times(of.steps, 0.0),
            "cache_hit": times(0, 0.0),
            "cache_miss": times(0, 0.0),
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": times(batch.count, 0.0),
                "compute_infer": times(batch.count, batch.seconds),
                "compute_output": times(batch.count, 0.0),
            }
            for rows, batch in sorted(of.batches.items())
        ],
    }


def _tensors(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": datatypes.datatype_named(spec.dtype),
            "shape": datatypes.dimensions(spec.shape),
        }
        for name, spec in specs.items()
    ]


def _config_tensors(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": each["name"],
            "data_type": "TYPE_" + each["datatype"].replace(datatypes.BYTES, "STRING"),
            "dims": each["shape"],
        }
        for each in _tensors(specs)
    ]
