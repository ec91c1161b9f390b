"""The watcher that looks after every test is itself proven: each kind of leak is caught."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading

import pytest

import models
import sojourn
from sojourn.testing import leftovers, take_snapshot


def seen(before) -> str:
    return "; ".join(leftovers(before, seconds=0.1))


def test_a_clean_test_has_none():
    assert leftovers(take_snapshot()) == []


def test_a_descriptor_is_caught():
    before = take_snapshot()
    fd = os.open("/dev/null", os.O_RDONLY)
    assert "/dev/null" in seen(before)
    os.close(fd)


def test_a_child_process_is_caught():
    before = take_snapshot()
    child = subprocess.Popen(["sleep", "60"])
    assert f"child process {child.pid}" in seen(before)
    child.kill()
    child.wait()


def test_a_zombie_is_caught():
    before = take_snapshot()
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert f"child process {child.pid}" in seen(before)
    child.wait()


def test_a_thread_is_caught():
    before = take_snapshot()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="leaked")
    thread.start()
    assert "thread leaked" in seen(before)
    stop.set()
    thread.join()


@pytest.mark.parametrize("folder", ["/dev/shm", None])
def test_a_file_is_caught(folder):
    before = take_snapshot()
    path = os.path.join(folder or tempfile.gettempdir(), "leaked-by-a-test")
    with open(path, "w"):
        pass
    assert "leaked-by-a-test is left" in seen(before)
    os.unlink(path)


def test_memory_is_caught():
    before = take_snapshot()
    kept = bytearray(os.urandom(1) * (20 * 2**20))
    assert "memory has grown" in "; ".join(leftovers(before, seconds=0.1, growth_bytes=5 * 2**20))
    del kept


def test_a_worker_is_caught(zygote):
    before = take_snapshot()
    session = sojourn.open(models.adder)
    assert f"worker process {session.pid}" in seen(before)
    session.close()
