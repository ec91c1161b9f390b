"""The score suite: it sees what is left behind, and sojourn's adapters do what they are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent
SUITE = PROJECT / "benchmarks" / "leaves_nothing"
SIDE = 2560  # 25 MiB of variables

_TOYS = """
import contextlib, os, subprocess, sys, tempfile
import numpy as np
from adapter import System

kept = []

class Tidy(System):
    name, about = "tidy", "arrays that are let go"

    @contextlib.contextmanager
    def stay(self, model):
        weights = np.ones((model.inputs, model.outputs), np.float32)
        yield lambda value: np.full((len(value), 1), 1.0) * (value @ weights)[:, :1] ** 0

class Leaky(Tidy):
    name, about = "leaky", "leaves one of each kind"

    @contextlib.contextmanager
    def stay(self, model):
        if model.inputs != 784:
            kept.append(np.ones((model.inputs, model.outputs), np.float32))
            kept.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
            kept.append(open(os.path.join("/dev/shm", f"leaves-nothing-toy-{os.getpid()}"), "wb"))
            tempfile.mkstemp()
        with super().stay(model) as call:
            yield call
"""


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "toys.py"
    file.write_text(_TOYS)
    yield file
    for left in Path("/dev/shm").glob("leaves-nothing-toy-*"):
        left.unlink()  # where the suite could not have a /dev/shm of its own


def run_suite(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SUITE), *arguments],
        env=os.environ | {"LEAVES_NOTHING_SIDE": str(SIDE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_system_leaves_is_seen_and_leaving_nothing_is_stated(toys: Path) -> None:
    chosen = [f"--system={toys}:{name}" for name in ("Tidy", "Leaky")]
    told = json.loads(
        run_suite("--no-times", "--settle=0.4", "--json", *chosen, "--only=tidy", "--only=leaky")
    )
    tidy, leaky = told["systems"]
    weights = 4 * SIDE**2

    assert tidy["held"]["memory_bytes"] > 0.9 * weights
    for scenario in ("close", "exception", "exit", "kill"):
        left = tidy[scenario]
        assert (left["processes"], left["descriptors"], left["ports"], left["files"]) == (0,) * 4
        assert left["memory_bytes"] < 5 * 2**20
    for scenario in ("close", "exception"):
        left = leaky[scenario]
        assert left["memory_bytes"] > 0.9 * weights
        assert (left["processes"], left["files"]) == (1, 1)
        assert left["shared_files"] >= 1  # more where strangers use the same /dev/shm
        assert left["descriptors"] > 2
    for scenario in ("exit", "kill"):
        assert (leaky[scenario]["processes"], leaky[scenario]["files"]) == (1, 1)
    assert leaky["kill"]["left_processes"] == ["sleep 60"]
    assert leaky["kill"]["gone_after_seconds"] is None


class Owner:
    """An owner process, told what to do as the suite tells it."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SUITE / "owner.py"), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": str(SUITE), "LEAVES_NOTHING_SIDE": "256"},
        )

    def say(self, what: str, **details: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps({"do": what, **details}), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def do(self, what: str, **details: Any) -> dict[str, Any]:
        self.say(what, **details)
        return self.answer()

    def end(self) -> int:
        self._process.communicate()
        return self._process.returncode


def test_sojourns_own_adapters_open_call_fail_and_close() -> None:
    owners = [Owner(f"systems.ours:{name}") for name in ("Isolated", "Inline")]
    for owner in owners:
        owner.say("open", model="small")  # both import TensorFlow at the same time
    for owner in owners:
        assert owner.answer()["seconds"] > 0
        assert len(owner.do("times", rows=3, calls=4)["seconds"]) == 4
        assert owner.do("close")["seconds"] > 0
        assert owner.do("fail") == {"caught": "InputError"}
        assert "sojourn" in owner.do("facts")["versions"]
        assert "error" in owner.do("open", model="no such model")
        assert owner.end() == 0


def test_the_readme_shows_the_table_of_the_last_run() -> None:
    table = run_suite("--show", str(SUITE / "score.json"))
    shown = (PROJECT / "README.md").read_text().partition("<!-- score -->")[2]
    assert shown.partition("<!-- /score -->")[0].strip() == table.strip()
    assert table.strip() in (SUITE / "score.md").read_text()
