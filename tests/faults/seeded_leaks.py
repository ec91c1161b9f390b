"""Leaks of every kind, made on purpose: the fixture that looks after the tests catches each.

Not collected by itself; `tests/test_seeded_leaks.py` runs it and wants every one to fail, for the
right reason.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import invariants
import models
import sojourn
from sojourn import events
from sojourn.process import marks
from sojourn.process.zygote import zygote

invariants.SECONDS = 0.2  # it need not be patient with what is there to stay
MORE = 8 * 2**20
kept: list[Any] = []  # until the end of the program: nothing may be cleaned up before it is judged
detached: list[int] = []


@pytest.fixture(scope="module", autouse=True)
def files(
    bystanders: invariants.Bystanders, request: pytest.FixtureRequest
) -> Iterator[list[Path]]:
    """The files that are left; they and the processes go when every test has been judged."""
    request.getfixturevalue("zygote")
    bystander = bystanders.one(request.module)
    os.environ["SOJOURN_PRELOAD"] = "none"  # zygotes that take the place of another are there soon
    left: list[Path] = []
    yield left
    for path in left:
        path.unlink(missing_ok=True)
    children = [child.pid for child in kept if isinstance(child, subprocess.Popen)]
    leaked = {*children, *detached, *marks.processes_with(marks.of_client())}
    for pid in leaked - {bystander.pid, zygote.pid}:
        os.kill(pid, signal.SIGKILL)


def test_a_session():
    kept.append(sojourn.open(models.adder))


def test_a_child():
    kept.append(subprocess.Popen(["sleep", "60"]))


def test_a_zombie():
    kept.append(subprocess.Popen(["true"]))
    os.waitid(os.P_PID, kept[-1].pid, os.WEXITED | os.WNOWAIT)


def test_a_daemon_of_a_worker():
    def build() -> Any:
        def spawn() -> Any:
            return np.array(subprocess.Popen(["sleep", "60"], start_new_session=True).pid)

        return spawn

    session = sojourn.open(build)
    session.run("output")
    os.kill(zygote.pid, signal.SIGKILL)
    os.waitid(os.P_PID, zygote.pid, os.WEXITED | os.WNOWAIT)
    marks.kill_marked, kill_marked = lambda mark: [], marks.kill_marked
    os.kill(session.pid, signal.SIGKILL)
    session.close()
    marks.kill_marked = kill_marked


def test_a_grandchild_that_nobody_is_the_parent_of():
    code = "import subprocess as s; print(s.Popen(['sleep', '60'], start_new_session=True).pid)"
    # Its standard output would keep us waiting for the end of the pipe.
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True
    ) as program:
        detached.append(int(program.stdout.readline()))


def test_a_second_zygote():
    kept.append(subprocess.Popen(**STANDING_IN))
    kept[-1].stdout.readline()


def test_a_descriptor():
    kept.append(os.open(os.devnull, os.O_RDONLY))


def test_a_descriptor_in_the_place_of_another():
    os.dup2(kept.pop(), spares.pop())
    fd = os.open(os.devnull, os.O_WRONLY)
    kept.append(os.open("/dev/zero", os.O_RDONLY))
    os.close(fd)


def test_a_descriptor_that_only_the_collector_would_close():
    class Holder:
        def __init__(self) -> None:
            self.fd, self.me = os.open(os.devnull, os.O_RDONLY), self

        def __del__(self) -> None:
            os.close(self.fd)

    Holder()


def test_a_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def test_a_thread_that_python_does_not_know():
    c, thread = ctypes.CDLL(None), ctypes.c_ulong()
    assert c.pthread_create(ctypes.byref(thread), None, c.pause, None) == 0


@pytest.mark.parametrize("folder", ["/dev/shm", "temporary", "runtime"])
def test_a_file(files, folder):
    named = {"temporary": tempfile.gettempdir(), "runtime": os.environ["XDG_RUNTIME_DIR"]}
    files.append(Path(named.get(folder, folder)) / f"leaked-{os.getpid()}")
    file = open(files[-1], "wb+")
    file.truncate(1)
    kept.extend([file, mmap.mmap(file.fileno(), 1)])  # or tests beside us would wait for it to go


@pytest.fixture(scope="module", autouse=True)
def older_files(files: list[Path]) -> Path:
    folder = Path(tempfile.gettempdir()) / "was-there"
    folder.mkdir()
    for name in ("removed", "changed"):
        files.append(folder / name)
        files[-1].touch()
    return folder


def test_a_file_in_a_folder_that_was_there(files, older_files):
    files.append(older_files / "nested")
    files[-1].touch()


def test_a_file_that_is_removed(older_files):
    (older_files / "removed").unlink()


def test_a_file_that_is_changed(older_files):
    (older_files / "changed").write_text("more")


def test_private_memory():
    kept.append(b"x" * MORE)


def test_shared_memory_that_is_only_open():
    kept.append(os.memfd_create("leaked"))
    os.write(kept[-1], b"x" * MORE)
    os.dup2(kept[-1], spares.pop())  # no descriptor more than before
    os.close(kept.pop())


def test_shared_memory_that_is_only_mapped():
    fd = os.memfd_create("leaked")
    os.write(fd, b"x" * MORE)
    kept.append(mmap.mmap(fd, MORE))
    kept[-1].read()
    os.close(fd)


def test_shared_memory_that_is_only_open_beside_more_that_is_mapped():
    fd = os.memfd_create("leaked")
    os.write(fd, b"x" * MORE)
    os.dup2(fd, spares.pop())
    os.close(fd)


def test_private_memory_while_the_zygote_ends():
    os.kill(zygote.pid, signal.SIGKILL)
    os.waitid(os.P_PID, zygote.pid, os.WEXITED | os.WNOWAIT)
    kept.append(b"y" * MORE)


spares = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
def test_a_port(kind):
    kept.append(socket.socket(socket.AF_INET, kind))
    kept[-1].bind(("127.0.0.1", 0))
    if kind == socket.SOCK_STREAM:
        kept[-1].listen()


# One that has the zygote's name, and does what it is told.
STAND_IN = """
import mmap, os, sys, threading
from sojourn.process import limits
limits.set_title("sojourn-zygote of " + sys.argv[1])
print(flush=True)
kept = []
for line in sys.stdin:
    exec(line)
    print(flush=True)
"""


STANDING_IN: dict[str, Any] = {
    "args": [sys.executable, "-c", STAND_IN, str(os.getpid())],
    "env": {**os.environ, marks.NAME: marks.for_zygote()},
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "text": True,
}


@pytest.fixture(scope="module", autouse=True)
def stand_in(files: list[Path]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(**STANDING_IN) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


@pytest.mark.parametrize(
    "leak",
    {
        "descriptor": "os.open(os.devnull, os.O_RDONLY)",
        "thread": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "private memory": f"kept.append(b'x' * {MORE})",
        "shared memory": "fd = os.memfd_create('it'); "
        f"os.write(fd, b'x' * {MORE}); kept.append(mmap.mmap(fd, {MORE})); "
        "kept[-1].read(); os.close(fd)",
        "zombie": "os.fork() or os._exit(0)",
        "child": "os.fork() or os.execvp('sleep', ['sleep', '60'])",
        "port": "import socket; kept.append(socket.create_server(('127.0.0.1', 0)))",
    }.items(),
    ids=lambda leak: leak[0],
)
def test_in_the_zygote(stand_in, leak):
    stand_in.stdin.write(leak[1] + "\n")
    stand_in.stdin.flush()
    stand_in.stdout.readline()


@pytest.mark.parametrize(
    "kinds",
    [
        ["opening", "ready", "ready", "draining", "closed"],
        ["opening", "running", "ready", "draining", "closed"],
        ["opening", "ready"],
        ["opening", "ready", "draining", "closed", "closed"],
    ],
    ids=["told twice", "illegal", "never closed", "closed twice"],
)
def test_a_transition(kinds):
    for kind in kinds:
        events.emit(f"session.{kind}", "it", serial=-len(kept))
    kept.append(kinds)


def test_other_bits_for_others():
    invariants.MATRIX = invariants.MATRIX + 1


@pytest.mark.parametrize("is_replaced", [False, True], ids=["zygote stays", "zygote is replaced"])
def test_the_next_open_is_slow(is_replaced):
    if is_replaced:
        zygote.end()

    def build() -> Any:
        time.sleep(1.5)
        return lambda a, b: a + b

    models.adder = build


def test_the_next_open_fails():
    models.adder = None
