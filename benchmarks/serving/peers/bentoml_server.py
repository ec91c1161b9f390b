"""BentoML: `bentoml_server.py HTTP GRPC`, until it is killed."""

from __future__ import annotations

import os
import sys
from typing import Any

import bentoml
import numpy as np
import workload


@bentoml.service(workers=1)
class Softmax:
    @bentoml.api
    def predict(self, instances: list[list[float]]) -> dict[str, Any]:
        return {"predictions": workload.predict(np.asarray(instances, np.float32)).tolist()}


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    where = ["--host", "127.0.0.1", "--port", sys.argv[1], "--working-dir", folder]
    command = ["-m", "bentoml", "serve", "bentoml_server:Softmax", *where]
    os.execv(sys.executable, [sys.executable, *command])
