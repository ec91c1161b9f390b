"""A bounded share of the random sessions that `make soak` runs by the thousands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


def test_random_sessions_with_random_faults_leave_nothing():
    # Always the same ones here: a failure can be seen again. `make soak` draws others each time.
    done = subprocess.run(
        [sys.executable, SOAK, "--sessions", "30", "--seed", "12"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["sessions"] >= 30
    assert told["sessions_of_graphs"] >= 3
    assert told["faults"] >= 10
