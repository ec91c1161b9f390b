"""What looks after the fault tests is itself proven: it catches every leak that is seeded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_leak_that_is_seeded_is_caught():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rA", "--tb=line", "-p", "no:cacheprovider"),
            *("-W", "ignore", "faults/seeded_leaks.py"),
        ],
        cwd=TESTS,
        capture_output=True,
        text=True,
    )
    ran = set(re.findall(r"^PASSED (.+)$", done.stdout, re.MULTILINE))
    caught = set(re.findall(r"^ERROR (.+?) - ", done.stdout, re.MULTILINE))
    assert len(ran) > 20, done.stdout
    assert ran == caught, sorted(ran ^ caught)
