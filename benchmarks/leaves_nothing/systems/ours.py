"""sojourn, in a worker process and in the owner's own."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from adapter import Call, System
from workload import Model, build


class _Sojourn(System):
    packages = ("sojourn", "tensorflow-cpu")
    isolation = ""

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        import sojourn

        builder = functools.partial(build, model)
        with sojourn.open(builder, isolation=self.isolation) as session:
            yield lambda value: session.run("y", {"x": value})


class Isolated(_Sojourn):
    name = "sojourn"
    about = "`with sojourn.open(build)`: a worker process, forked from one with TensorFlow imported"
    isolation = "process"


class Inline(_Sojourn):
    name = "sojourn, inline"
    about = '`with sojourn.open(build, isolation="inline")`: in the owner\'s own process'
    isolation = "inline"
