"""Programs that the tests start, and end in every possible way, to see what they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sojourn.probes import processes

HERE = os.path.dirname(os.path.abspath(__file__))

PREAMBLE = """
import os, signal, sys, threading, time
os.environ.setdefault("SOJOURN_PRELOAD", "none")  # plain functions do: a zygote in no time
sys.path.insert(0, {here!r})
import models
import numpy as np
import sojourn

def tell(*words):  # the line at once: other threads tell something too
    print(" ".join(map(str, words)) + "\\n", end="", flush=True)
"""


def run_program(
    *arguments: str | Path, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program of plain functions to its end, with what it told as text."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "SOJOURN_PRELOAD": "none", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


@contextlib.contextmanager
def client(code: str) -> Iterator[subprocess.Popen[str]]:
    """Start a Python program that can import sojourn and the test models; end it with the block."""
    program = PREAMBLE.format(here=HERE) + code
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def told(process: subprocess.Popen[str]) -> list[str]:
    """Return the next line that the program prints, as words; fail with its errors if it ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, f"the program ended: {process.stderr.read()}"
    return line.split()


def remaining(client_pid: int, seconds: float = 30.0) -> list[processes.Found]:
    """Wait at most `seconds`, and return the processes of a dead client that still exist."""
    deadline = time.monotonic() + seconds
    while True:
        found = processes.of_client(client_pid)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.01)
