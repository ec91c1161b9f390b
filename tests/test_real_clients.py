"""The clients that people use, each in the environment that `make clients` sets up for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import example_models
import sojourn
from sojourn.service.catalogue import Catalogue
from sojourn.service.grpc.messages import KSERVE
from sojourn.service.rules import ModelRules
from web import serving

HERE = Path(__file__).parent / "real_clients"
BUILT = Path(__file__).parent.parent / "build" / "clients"


@pytest.fixture
def server(zygote: None, tmp_path: Path) -> Iterator[sojourn.Server]:
    sojourn.isolated(example_models.save)(str(tmp_path))
    entries = {
        "numbers": ModelRules(path=str(tmp_path / "numbers"), versions="all"),
        "examples": ModelRules(path=str(tmp_path / "examples")),
    }
    with sojourn.Pool() as pool, serving(Catalogue(pool, entries), grpc="127.0.0.1:0") as server:
        yield server


def run(python: Path | str, script: str, *arguments: object, path: Path | None = None) -> None:
    environment = dict(os.environ) if path is None else {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [str(python), str(HERE / script), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.stdout.split() == ["ok"], done.stderr


def test_tritonclient_gets_its_answers(server, tmp_path):
    python = BUILT / "triton" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python.parent.parent} is not there: `make clients` makes it")
    descriptor = tmp_path / "kserve.descriptor"
    descriptor.write_bytes(KSERVE.descriptor.serialized_pb)
    run(python, "triton.py", server.grpc_address, server.http_address, descriptor)


def test_tensorflow_serving_api_gets_its_answers(server):
    folder = BUILT / "serving"
    if not folder.exists():
        pytest.skip(f"{folder} is not there: `make clients` makes it")
    run(sys.executable, "serving.py", server.grpc_address, path=folder)
