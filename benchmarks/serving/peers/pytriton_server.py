"""pytriton: `pytriton_server.py HTTP GRPC`, until standard input ends."""

from __future__ import annotations

import os
import sys
import sysconfig

import numpy as np
import workload
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def infer(x: np.ndarray) -> dict[str, np.ndarray]:
    return {workload.OUTPUT: workload.predict(x)}


def preload_python() -> None:
    """Preload our Python library: the one in pytriton's stub fails with the standard library of a
    later patch release."""
    names = (sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDLIBRARY"))
    library = os.path.join(*map(str, names))
    if library.endswith(".so") and os.path.exists(library):
        os.environ["LD_PRELOAD"] = library


def main() -> None:
    preload_python()
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
