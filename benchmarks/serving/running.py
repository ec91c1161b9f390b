"""Start a system, wait until it answers, and end it and every process that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
from environments import HERE, NotMeasured
from systems import System
from workload import BODIES

START_SECONDS = 120.0


@dataclass
class Running:
    """A system that answers."""

    system: System
    process: psutil.Process
    http: int
    grpc: int
    ready_seconds: float  # until its port accepts connections
    answer_seconds: float  # until the first prediction arrives


@contextlib.contextmanager
def running(system: System, python: str, *arguments: str) -> Iterator[Running]:
    http, grpc = _free_port(), _free_port()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="serving-") as folder:
        log = open(os.path.join(folder, "log"), "w+b")
        child = subprocess.Popen(
            [python, str(HERE / "peers" / system.script), str(http), str(grpc), *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": _python_path(), "TMPDIR": folder},
            start_new_session=True,
        )
        try:
            ready = _wait_for(system, http, child, log.name)
            answered = time.monotonic() - began
            yield Running(system, psutil.Process(child.pid), http, grpc, ready - began, answered)
        finally:
            _end(child)
            log.close()


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(system: System, port: int, child: subprocess.Popen[bytes], log: str) -> float:
    """Wait until the first of the system's HTTP protocols gives a right answer. Returns the time at
    which its port began to accept connections."""
    protocol = next(name for name in system.paths if name != "grpc")
    body = BODIES[protocol]()
    url = f"http://127.0.0.1:{port}{system.paths[protocol]}"
    deadline = time.monotonic() + START_SECONDS
    ready = None
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
            ready = ready or time.monotonic()
        except OSError:
            pass
        request = urllib.request.Request(url, body.content, dict(body.headers))
        try:
            with urllib.request.urlopen(request, timeout=60):
                return ready or time.monotonic()
        except (urllib.error.URLError, OSError) as error:
            last: object = error
            if isinstance(error, urllib.error.HTTPError):
                last = f"{error} {error.read()[:200]!r}"
                if error.code in (400, 422, 500):  # it runs, and would repeat this answer
                    deadline = 0.0
        if child.poll() is not None or time.monotonic() > deadline:
            with open(log, "rb") as file:
                words = file.read()[-400:].decode(errors="replace").strip()
            raise NotMeasured(f"does not answer: {last}; {words.splitlines()[-1:]}")
        time.sleep(0.02)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and its children: ask first, then kill."""
    assert child.stdin is not None
    started = [psutil.Process(child.pid), *_children(child.pid)] if child.poll() is None else []
    with contextlib.suppress(OSError):
        child.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(5)
    for how in (signal.SIGTERM, signal.SIGKILL):
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(how)
        _, started = psutil.wait_procs(started, timeout=5)
    child.wait(10)


def _children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)
