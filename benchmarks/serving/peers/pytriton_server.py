"""pytriton: `pytriton_server.py HTTP GRPC`, until standard input ends."""

from __future__ import annotations

import sys

import numpy as np
import workload
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def infer(x: np.ndarray) -> dict[str, np.ndarray]:
    return {workload.OUTPUT: workload.predict(x)}


def main() -> None:
    http, grpc = map(int, sys.argv[1:3])
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=http,
        grpc_address="127.0.0.1",
        grpc_port=grpc,
        allow_metrics=False,
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name=workload.NAME,
            infer_func=infer,
            inputs=[Tensor(name=workload.INPUT, dtype=np.float32, shape=(workload.ROWS,))],
            outputs=[Tensor(name=workload.OUTPUT, dtype=np.float32, shape=(workload.COLUMNS,))],
            config=ModelConfig(max_batch_size=64),
        )
        triton.run()
        sys.stdin.read()


if __name__ == "__main__":
    main()
