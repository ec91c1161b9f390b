"""A bounded share of the random sessions that `make soak` runs by the thousands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
# The same sessions every time, and others every time: a failure prints its seed and its round.
SEEDS = {"same": 7, "other": int.from_bytes(os.urandom(2), "big")}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_sessions_with_random_faults_leave_nothing(seed):
    done = subprocess.run(
        [sys.executable, SOAK, "--sessions", "60", "--seed", str(SEEDS[seed])],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["sessions"] >= 60
    assert told["faults"] >= 20
