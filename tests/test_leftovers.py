"""The watcher that looks after every test is itself proven: each kind of leak is caught."""

from __future__ import annotations

import dataclasses
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import models
import sojourn
from sojourn import events
from sojourn.testing import Watch, leftovers, take_snapshot


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
    with open(path, "wb+") as file:
        file.truncate(1)
        with mmap.mmap(file.fileno(), 1):  # or tests beside us would wait for it to go
            assert "leaked-by-a-test is left" in seen(before)
    os.unlink(path)


def test_a_semaphore_of_a_program_beside_us_is_not_ours():
    before = take_snapshot()
    code = (
        "import multiprocessing, sys\n"
        "semaphore = multiprocessing.get_context('spawn').Semaphore()\n"
        "print(semaphore._semlock.name, flush=True); sys.stdin.read()"
    )
    orphaned = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", orphaned, code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        name = program.stdout.readline().strip().replace("/", "sem.")
        program.wait()
        assert os.path.exists(f"/dev/shm/{name}")
        assert name not in seen(before)
        program.communicate()  # all of it has ended


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


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_is_caught(kind):
    before = take_snapshot()
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            listener.listen()
        assert f"{listener.getsockname()[1]} of {os.getpid()}" in seen(before)


def test_shared_memory_is_caught_mapped_or_only_open():
    before = take_snapshot()
    fd = os.memfd_create("leaked")
    os.write(fd, b"x" * (8 * 2**20))
    assert "memory has grown" in "; ".join(leftovers(before, seconds=0.1, growth_bytes=5 * 2**20))
    memory = mmap.mmap(fd, 8 * 2**20)
    os.close(fd)
    memory.read()
    assert "memory has grown" in "; ".join(leftovers(before, seconds=0.1, growth_bytes=5 * 2**20))
    memory.close()


def test_memory_that_a_zygote_gave_back_as_it_ended_hides_none_of_ours():
    before = take_snapshot()
    before = dataclasses.replace(before, zygotes=frozenset([1]), zygote_bytes=2**32)
    kept = bytearray(os.urandom(1) * (20 * 2**20))
    assert "memory has grown" in "; ".join(leftovers(before, seconds=0.1, growth_bytes=5 * 2**20))
    del kept


class HoldsItself:
    """Only the garbage collector ends it."""

    def __init__(self) -> None:
        self.fd, self.me = os.open("/dev/null", os.O_RDONLY), self

    def __del__(self) -> None:
        os.close(self.fd)


def test_what_the_collector_would_close_is_left_only_for_a_strict_look():
    before, strictly_before = take_snapshot(), take_snapshot(strict=True)
    HoldsItself()
    assert "/dev/null" in seen(strictly_before)
    assert leftovers(before) == []


def test_a_descriptor_in_the_place_of_another_is_left_for_a_strict_look():
    fd = os.open("/dev/null", os.O_RDONLY)
    before, strictly_before = take_snapshot(), take_snapshot(strict=True)
    os.close(fd)
    fd = os.open("/dev/zero", os.O_RDONLY)
    assert "/dev/zero" in seen(strictly_before)
    assert leftovers(before) == []
    os.close(fd)


def test_files_removed_changed_or_deep_down_are_reported_by_a_strict_look():
    folder = Path(tempfile.mkdtemp())
    for name in ("removed", "changed"):
        (folder / name).touch()
    before = take_snapshot(strict=True)
    (folder / "removed").unlink()
    (folder / "changed").write_text("more")
    (folder / "new").touch()
    for what in ("removed was removed", "changed was changed", "new is left"):
        assert f"{folder.name}/{what}" in seen(before)
    shutil.rmtree(folder)


def test_a_process_that_has_lost_its_parents_is_known_by_the_mark_of_the_run():
    before = take_snapshot()
    code = "import subprocess as s; print(s.Popen(['sleep', '60'], start_new_session=True).pid)"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True
    ) as program:
        pid = int(program.stdout.readline())
    assert f"process {pid} that a program of this run started" in seen(before)
    os.kill(pid, signal.SIGKILL)


def told(*kinds: str) -> list[str]:
    watch = Watch()
    for kind in kinds:
        watch.hear(events.Event(f"session.{kind}", "it", detail={"serial": 1}))
    return watch.wrong()


def test_transitions_that_are_legal_and_told_once_are_right():
    assert told("opening", "ready", "running", "ready", "draining", "closed") == []
    assert told("ready", "broken") == []  # it was there before


def test_an_illegal_transition_is_caught():
    assert told("opening", "running", "draining", "closed") == [
        "session 'it' was reported to go from opening to running"
    ]


def test_a_transition_that_is_reported_twice_is_caught():
    assert "from ready to ready" in told("opening", "ready", "ready", "draining", "closed")[0]


def test_a_session_that_is_not_closed_is_caught():
    assert told("opening", "ready") == ["session 'it' was opened, and is ready at the end"]
