"""A bounded share of the spoilt requests that `make fuzz` sends by the hundred thousand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"


def test_spoilt_requests_of_every_protocol_do_the_server_no_harm():
    # Always the same ones here: a failure can be seen again. `make fuzz` draws others each time.
    done = subprocess.run(
        [sys.executable, FUZZ, "--requests", "3000", "--seed", "1"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = json.loads(done.stdout)
    assert told["requests"] == 3000
    assert len(told["answers"]) == 6
    assert not told["faults"]
