"""`make serving`: what is sent is a request, and the table holds figures to their bars."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sojourn.service.grpc import contents
from sojourn.service.grpc.messages import KSERVE

HERE = Path(__file__).parents[1] / "benchmarks" / "serving"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"serving_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def workload():
    return module("workload")


def test_every_protocol_is_sent_the_same_row(workload):
    message = workload.kserve_grpc().content[5:]
    request = KSERVE.ModelInferRequest.FromString(message)
    assert request.model_name == workload.NAME
    np.testing.assert_array_equal(contents.inputs_of(request)["x"], workload.X)
    binary = workload.kserve_binary()
    length = int(binary.headers["Inference-Header-Content-Length"])
    assert binary.content[length:] == workload.X.tobytes()
    for body, values in (
        (workload.kserve_json(), lambda asked: asked["inputs"][0]["data"]),
        (workload.tfserving_json(), lambda asked: asked["instances"][0]),
    ):
        np.testing.assert_allclose(values(json.loads(body.content)), workload.X[0], atol=1e-6)


def test_the_table_says_which_bars_are_met():
    table = module("table")
    fast, slow = (
        {"p50": 1e-4, "rate": 20_000.0, "cpu": 5e-5, "failed": 0},
        {"p50": 2e-3, "rate": 2e3, "cpu": 1e-3, "failed": 3},
    )
    score = {
        "protocols": {"kserve-binary": {"sojourn": fast, "pytriton": slow}},
        "in_process_p50": 1e-5,
        "tritonclient": {
            "sojourn": {"http": 5e-4, "grpc": 6e-4}, "pytriton": {"http": 2.5e-3, "grpc": 1e-3},
        },
        "big_model": {
            "held_bytes": 400, "left_bytes": -1, "p99_alone": 1.0, "p99_beside": 1.2, "loads": 3,
        },
        "not_measured": {"Ray Serve": "it cannot be installed"},
        "date": "2026-01-01", "python": "3.11", "cores": 2, "load_before": 0.0,
        "rounds": 1, "seconds": 2.0,
    }  # fmt: skip
    text = table.markdown(score)
    assert "| HTTP, KServe binary | pytriton | 2.00 ms | 2,000 (3 failed) | 1.00 ms |" in text
    assert "p50 by that of `session.run` | 10.00 | at most 5 | not met |" in text
    assert "rate by the best peer's | 10.00 | at least 6.0 | met |" in text
    assert "| sojourn | 500 us | 600 us |" in text
    assert "tritonclient, HTTP, p50 by the best peer's | 0.20 | at most 0.2 | met |" in text
    assert "tritonclient, gRPC, p50 by the best peer's | 0.60 | at most 0.4 | not met |" in text
    assert "| unload of 400 MB: share that is back | 1.00 | at least 0.99 | met |" in text
    assert "busy" not in text
    assert "busy" in table.markdown({**score, "load_before": 9.0})
    assert "Ray Serve: not measured, it cannot be installed." in text
