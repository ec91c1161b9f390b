"""tritonclient: `triton_client.py HTTP GRPC SECONDS`. Prints the p50 of each protocol as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
import workload


def p50(module: Any, port: str, seconds: float) -> float:
    """Return the p50 of one client that asks again and again, written like its users do."""
    client = module.InferenceServerClient(f"127.0.0.1:{port}")
    x = module.InferInput(workload.INPUT, workload.X.shape, "FP32")
    x.set_data_from_numpy(workload.X)
    times = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        got = client.infer(workload.NAME, [x]).as_numpy(workload.OUTPUT)
        times.append(time.perf_counter() - began)
    np.testing.assert_allclose(got, workload.predict(workload.X), atol=1e-5)
    client.close()
    return statistics.median(times[len(times) // 10 :])


def main() -> None:
    http, grpc, seconds = sys.argv[1:]
    found = {
        "http": p50(tritonclient.http, http, float(seconds)),
        "grpc": p50(tritonclient.grpc, grpc, float(seconds)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
