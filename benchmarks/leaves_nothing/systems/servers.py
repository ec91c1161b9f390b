"""Systems that listen on ports. They run in a network namespace of their own, or not at all."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adapter import Call, System
from workload import HeldSession, Model


class GrpcSession(System):
    name = "TensorFlow, grpc session"
    about = "`Session(target)` on `tf.distribute.Server` in a spawned process, which stays"
    packages = ("tensorflow-cpu",)
    listens = True

    def __init__(self) -> None:
        self._target = ""

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        session = HeldSession(model, self._target or self._start_server())
        try:
            yield session.run
        finally:
            session.close()

    def _start_server(self) -> str:
        context = multiprocessing.get_context("spawn")
        told, tell = context.Pipe(duplex=False)
        context.Process(target=_serve, args=(tell,), daemon=True).start()
        self._target = told.recv()
        return self._target


def _serve(tell: Any) -> None:
    import tensorflow as tf

    server = tf.distribute.Server.create_local_server()
    tell.send(server.target)
    while True:
        time.sleep(3600)


class RayActor(System):
    name = "Ray actor"
    about = "`ray.init` once; an actor that holds a raw session; `ray.kill(actor)`"
    packages = ("ray", "tensorflow-cpu")
    environment = "ray"
    listens = True

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        import ray

        if not ray.is_initialized():
            ray.init(
                num_cpus=1,
                include_dashboard=False,
                object_store_memory=128 * 2**20,
                log_to_driver=False,
                logging_level="error",
                _temp_dir=os.path.join(tempfile.gettempdir(), "ray"),
            )
        actor = ray.remote(num_cpus=1)(HeldSession).remote(model)
        yield lambda value: ray.get(actor.run.remote(value))
        ray.kill(actor)
