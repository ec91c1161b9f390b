"""The popular remedy: TensorFlow in a process started for it; arrays travel as pickles."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adapter import Call, System
from workload import HeldSession, Model


class Spawn(System):
    name = "multiprocessing, spawn"
    about = "a spawned `Process` that serves a raw session through a `Pipe`; closed and joined"
    packages = ("tensorflow-cpu",)

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(model, theirs), daemon=True)
        process.start()
        theirs.close()

        def call(value: Any) -> Any:
            ours.send(value)
            answer = ours.recv()
            if isinstance(answer, Exception):
                raise answer
            return answer

        try:
            ours.recv()  # the process is ready
            yield call
        finally:
            ours.close()
            process.join()
            process.close()


def _serve(model: Model, pipe: Any) -> None:
    session = HeldSession(model)
    pipe.send(True)
    while True:
        try:
            pipe.send(session.run(pipe.recv()))
        except EOFError:
            return
        except ValueError as error:
            pipe.send(error)


class Loky(System):
    name = "loky"
    about = "`with loky.ProcessPoolExecutor(1)`, a raw session kept in its worker"
    packages = ("loky", "tensorflow-cpu")

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        import loky

        with loky.ProcessPoolExecutor(max_workers=1) as executor:
            executor.submit(_hold, model).result()
            yield lambda value: executor.submit(_run_held, value).result()


_held: list[HeldSession] = []


def _hold(model: Model) -> None:
    _held.append(HeldSession(model))


def _run_held(value: Any) -> Any:
    return _held[0].run(value)
