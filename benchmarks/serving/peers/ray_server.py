"""Ray Serve: `ray_server.py HTTP GRPC`, until standard input ends."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import ray
import workload
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=1, max_ongoing_requests=128)
class Softmax:
    async def __call__(self, request: Request) -> dict[str, Any]:
        asked = await request.json()
        x = np.asarray(asked["instances"], np.float32)
        return {"predictions": workload.predict(x).tolist()}


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=128 * 2**20)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Softmax.bind())
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
