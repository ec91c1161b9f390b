"""A bounded share of the random sessions that `make soak` runs by the thousands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


def test_random_sessions_with_random_faults_leave_nothing():
    # Others every time: the seed is the first thing it tells, and with the round that failed.
    done = subprocess.run(
        [sys.executable, SOAK, "--sessions", "60"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    print("seed", told["seed"])
    assert told["sessions"] >= 60
    assert told["sessions_of_graphs"] >= 6
    assert told["faults"] >= 20
