"""LitServe: `litserve_server.py HTTP GRPC`, until it is killed."""

from __future__ import annotations

import sys
from typing import Any

import litserve
import numpy as np
import workload


class Softmax(litserve.LitAPI):
    def setup(self, device: str) -> None:
        pass

    def decode_request(self, request):  # an annotation would change the type of the argument
        return np.asarray(request["instances"], np.float32)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return workload.predict(x)

    def encode_response(self, output: np.ndarray) -> dict[str, Any]:
        return {"predictions": output.tolist()}


def main() -> None:
    api = Softmax(api_path="/v1/models/softmax:predict")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="error"
    )


if __name__ == "__main__":
    main()
