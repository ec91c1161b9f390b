"""Overload, killed workers and clients that vanish, all at once: no answer is lost or mixed up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOSS = Path(__file__).parent.parent / "benchmarks" / "serving_loss.py"


def test_every_request_gets_its_own_answer_whatever_is_killed() -> None:
    options = ["--seconds", "3", "--clients", "32", "--every", "0.5", "--json"]
    done = subprocess.run(
        [sys.executable, str(LOSS), *options], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["wrong"], told["lost"], told["left"]) == (0, [], [])
    assert told["answers"]["200"] > 0
    assert sum(told["kills"].values()) > 0
