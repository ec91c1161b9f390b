"""Run pytest; what fails runs again once, alone. Only what fails twice fails the run.

    python tests/steady.py [arguments of pytest]

Machines that are shared stall for seconds, and a test beside others may find no processor when it
needs one. Its first failure stays in the output, and it is named as unsteady at the end: a bug of
the test, or of what it tests. So many failures that it cannot be the machine are not tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache") / "steady"
MOST = 20
ALONE = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
FAILED = 1  # what pytest exits with after failures; other codes are for other troubles


def main(arguments: list[str]) -> int:
    """What to exit with."""
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
    """The tests that failed in the last run, as pytest remembers them."""
    try:
        return set(json.loads((CACHE / "v" / "cache" / "lastfailed").read_text()))
    except FileNotFoundError:
        return set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
