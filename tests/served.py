"""A real `sojourn serve` process for the tests, and ways to send it requests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import served_models
from sojourn.cli.main import main
from sojourn.cli.server_client import Client

START_SECONDS = 60.0
SOJOURN = [sys.executable, "-m", "sojourn"]


@dataclass
class Served:
    """A running server that answers."""

    process: subprocess.Popen[bytes]
    facts: dict[str, Any]
    log: Path

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def client(self, **more: Any) -> Client:
        return Client(self.url, **more)

    def infer(self, model: str = "times", **more: Any) -> Any:
        """Return the answer of a small model to a row of ones."""
        one = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}
        path = f"/v2/models/{model}/infer"
        return self.client(**more).ask("POST", path, {"inputs": [one]})["outputs"][0]["data"]

    def end(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Send a signal, wait until the server has ended, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


def models(folder: Path) -> Path:
    """Write two models into the folder: `times`, version 2, and `thrice`, version 3."""
    served_models.write_version(folder / "times", 2)
    served_models.write_version(folder / "thrice", 3)
    return folder


@contextlib.contextmanager
def serving(folder: Path, *words: str, **environment: str) -> Iterator[Served]:
    """Run a server, with its files in `folder`; kill it after the block if it still runs."""
    ready, log = folder / "ready.json", folder / "log"
    call = [*SOJOURN, "serve", *words, "--http=127.0.0.1:0", f"--ready-file={ready}"]
    if not any(word.startswith("--grpc") for word in words):
        call.append("--grpc=")
    with log.open("wb") as output:
        process = subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "SOJOURN_PRELOAD": "none", **environment},
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        yield Served(process, json.loads(ready.read_text()), log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def called(*words: str, **more: Any) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, list(words), **more)


def data_of(*words: str, **more: Any) -> Any:
    """Run a command with --json, which must succeed, and return its data."""
    result = called(*words, "--json", **more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
