"""MLServer: `mlserver_server.py HTTP GRPC`, until it is killed."""

from __future__ import annotations

import asyncio
import sys

import workload
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Softmax(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output(workload.OUTPUT, workload.predict(x))
        return InferenceResponse(model_name=self.name, outputs=[output])


async def main() -> None:
    http, grpc = map(int, sys.argv[1:3])
    settings = Settings(
        host="127.0.0.1",
        http_port=http,
        grpc_port=grpc,
        metrics_endpoint=None,
        parallel_workers=0,
        debug=False,
    )
    server = MLServer(settings)
    await server.start([ModelSettings(name=workload.NAME, implementation=Softmax)])


if __name__ == "__main__":
    asyncio.run(main())
