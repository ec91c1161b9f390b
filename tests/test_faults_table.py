"""The table of faults in the documentation names every fault, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faults_table import named_tests, rows

pytestmark = pytest.mark.quick

TESTS = Path(__file__).parent

# What the table must speak of, a word or two of each.
FAULTS = [
    *("worker killed idle", "in a step", "caller spins", "SEGV", "ABRT", "stopped", "SIGSTOP"),
    *("interpreter lock", "zygote killed idle", "while it imports", "in the middle of a fork"),
    *("client killed in a step", "forked child", "together with its zygote", "uses the session"),
    *("exception", "KeyboardInterrupt", "atexit", "daemon thread", "`__del__`", "torn down"),
    *("exec", "abort", "SIGHUP", "closes at once", "closed twice", "inside a callback"),
    *("memory limit", "memfd", "mmap", "/dev/shm", "no space", "I/O error", "read-only"),
    *("damaged checkpoint", "damaged SavedModel", "descriptors exhausted", "fork refused"),
    *("daemonised", "eviction", "clock", "half-written", "interrupted", "short read", "shrink"),
    *("after it was checked", "overflow", "negative dimension", "extra descriptors"),
]


def existing_tests() -> dict[str, str]:
    found = {}
    for path in TESTS.rglob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE):
            found[name] = str(path.relative_to(TESTS))
    return found


def test_every_test_that_the_table_names_exists():
    exist = existing_tests()
    for fault, _, cell in rows():
        named = re.findall(r"`(test_\w+)`", cell)
        assert named, f"no test for {fault}"
        for name in named:
            assert name in exist, f"{fault}: there is no {name}"


def test_every_fault_test_is_in_the_table():
    here = {name for name, path in existing_tests().items() if path.startswith("faults/")}
    missing = sorted(here - named_tests())
    assert not missing, missing


def test_every_fault_that_is_promised_is_in_the_table():
    faults = "\n".join(fault.lower() for fault, _, _ in rows())
    missing = [
        fault for fault in FAULTS if not re.search(rf"(?<!\w){re.escape(fault.lower())}", faults)
    ]
    assert not missing, missing
