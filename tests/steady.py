"""Run pytest, then run failed tests once more, alone. Only tests that fail twice fail the run.

    python tests/steady.py [arguments of pytest]

Shared machines stall for seconds, and a test that runs beside others may find no processor when it
needs one. The first failure stays in the output, and a test that passes alone is named as unsteady
at the end: this is a bug of the test, or of what it tests. If more than `MOST` tests fail, the
machine cannot be the cause, and none is tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache") / "steady"
MOST = 20
ALONE = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
FAILED = 1  # the exit code of pytest after failed tests; other codes mean other problems


def main(arguments: list[str]) -> int:
    """Run pytest, run failed tests again, and return the exit code."""
    code = run(["--cache-clear", *arguments])
    failed = last_failed()
    if code != FAILED or not failed:
        return code
    if len(failed) > MOST:
        print(f"{len(failed)} tests failed: too many to try them again")
        return code
    print(f"\n{len(failed)} failed; once more, alone", flush=True)
    code = run([*arguments, *ALONE])
    again = last_failed()
    for test in sorted(failed - again):
        print(f"unsteady: {test} failed first and passed alone; see CONTRIBUTING.md")
    return code


def run(arguments: list[str]) -> int:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-o", f"cache_dir={CACHE}", *arguments]
    ).returncode


def last_failed() -> set[str]:
    """Return the tests that failed in the last run, from pytest's cache."""
    try:
        return set(json.loads((CACHE / "v" / "cache" / "lastfailed").read_text()))
    except FileNotFoundError:
        return set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
