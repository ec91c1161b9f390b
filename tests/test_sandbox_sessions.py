"""What code can do that has taken over the worker of an untrusted model, in sessions as users open
them. A model in a file has no code to begin with, so here a function is closed off in its place."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from sojourn.process import limits
from sojourn.session import opening
from sojourn.session.trust import Confinement

pytestmark = pytest.mark.usefixtures("zygote")


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens a session in which this function runs, closed off as an untrusted model is."""

    def open_(function: Callable[..., Any], readable: Any = (), **options: Any) -> Any:
        def confinement(*_: Any) -> Confinement:
            return Confinement([str(path) for path in readable])

        monkeypatch.setattr(opening, "confinement", confinement)
        try:
            return sojourn.open(lambda: function, untrusted=True, **options)
        finally:
            monkeypatch.undo()

    return open_


def test_neither_network_nor_programs_nor_processes(taken_over):
    def errors(port: int) -> list[int]:
        import os
        import socket
        import subprocess

        def connect() -> None:
            socket.create_connection(("127.0.0.1", int(port)))

        told = []
        for way in (connect, lambda: subprocess.run(["/bin/true"]), os.fork):
            try:
                way()
            except OSError as error:
                told.append(error.errno or 0)
            else:
                told.append(0)
        return told

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with taken_over(errors) as session:
            refused = session(port=listener.getsockname()[1])
            assert refused.tolist() == [errno.EPERM] * 3
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_only_its_own_descriptors_are_open(taken_over, tmp_path):
    def descriptors() -> list[str]:
        import fcntl
        import os
        import stat

        def kind(number: int) -> str:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return "socket"
            try:
                fcntl.fcntl(number, 1034)  # F_GET_SEALS
            except OSError:
                return "other"
            return "memory"

        told = []
        for number in range(3, 1024):
            try:
                told.append(kind(number))
            except OSError:
                continue
        return sorted(told)

    ours, theirs = socket.socketpair()
    with (
        open(tmp_path / "private", "w"),
        ours,
        theirs,
        sojourn.open(models.adder) as neighbour,
        taken_over(descriptors) as session,
    ):
        assert neighbour(a=1, b=2) == 3
        assert session().tolist() == [
            *[b"memory"] * 3,  # the board, and the lane's in both directions
            *[b"other"] * 3,  # the client, and the lane's two bells
            *[b"socket"] * 3,  # the control socket, the lifeline and the lane
        ]


def test_another_session_s_memory_is_out_of_reach(taken_over):
    def spy(pid: int) -> list[int]:
        import os

        told = []
        for name in ("mem", "maps", "fd", "environ", "cmdline"):
            try:
                os.close(os.open(f"/proc/{int(pid)}/{name}", os.O_RDONLY))
            except OSError as error:
                told.append(error.errno or 0)
            else:
                told.append(0)
        return told

    with sojourn.open(models.adder) as neighbour, taken_over(spy) as session:
        assert session(pid=neighbour.pid).tolist() == [errno.EACCES] * 5
        assert session(pid=os.getpid()).tolist() == [errno.EACCES] * 5
        assert neighbour(a=1, b=2) == 3


def test_a_bell_that_it_fills_and_would_make_blocking_holds_nobody_up(taken_over):
    def fill(x: float) -> bool:
        import fcntl
        import os

        opened = refused = 0
        for number in range(3, 100):
            try:
                fcntl.fcntl(number, fcntl.F_GETFL)
            except OSError:
                continue
            opened += 1
            try:
                fcntl.fcntl(number, fcntl.F_SETFL, 0)
            except PermissionError:
                refused += 1
            try:
                os.eventfd_write(number, 2**64 - 2)
            except OSError:
                pass  # no bell, or full
        return opened == refused > 5

    with taken_over(fill) as session:
        assert session.run(None, {"x": 1.0}, timeout=20)["output"]
        # Another call rings the bell that is full now.
        assert session.run(None, {"x": 1.0}, timeout=20)["output"]
        assert session.close(timeout=5).clean


def test_a_step_without_end_ends_at_its_deadline(taken_over):
    def endless(x: float) -> float:
        while True:
            x += 1

    with taken_over(endless) as session:
        with pytest.raises(sojourn.StepTimeout):
            session.run(None, {"x": np.float32(1)}, timeout=0.3)
        assert session.close(timeout=0.1).clean


def test_no_memory_file_grows_beyond_the_limit(taken_over):
    def grow(x: int) -> list[int]:
        import os

        memory = os.memfd_create("large")
        told = []
        for way in (
            lambda: os.ftruncate(memory, 2**40),
            lambda: os.pwrite(memory, b"x", 2**40),
            lambda: os.posix_fallocate(memory, 0, 2**40),
            lambda: os.pwrite(1, b"x", 2**40),  # what it prints is memory, too
        ):
            try:
                way()
            except OSError as error:
                told.append(error.errno or 0)
            else:
                told.append(0)
        os.close(memory)
        return told

    with taken_over(grow, memory="256MiB") as session:
        assert session(x=1).tolist()[:3] == [errno.EFBIG] * 3


def test_an_answer_beyond_the_limit_is_not_even_mapped(taken_over, monkeypatch):
    # The worker's own limits are what they are: here only its client believes in smaller ones.
    monkeypatch.setattr(limits, "answer_bytes", lambda memory_bytes: 2**20)
    with taken_over(lambda n: np.zeros(int(n), np.uint8), memory="256MiB") as session:
        assert session(n=1000).size == 1000
        with pytest.raises(sojourn.SessionBroken, match=r"4.0 MiB, and 1.0 MiB are the most"):
            session(n=2**22 - 10_000)
    assert session.receipt.clean


def test_descriptors_that_nobody_takes_run_out_for_it_alone(taken_over):
    def send(x: int) -> int:
        import os
        import socket

        memory = os.memfd_create("sent")
        sent = 0
        for number in range(3, 100):
            try:
                lane = socket.socket(fileno=os.dup(number))
            except OSError:
                continue
            try:
                while True:
                    socket.send_fds(lane, [b"x"], [memory] * 200, socket.MSG_DONTWAIT)
                    sent += 200
            except OSError:
                pass  # full, or too many
        opened = 0
        try:
            while opened < 10_000:
                os.dup(0)
                opened += 1
        except OSError:
            pass
        return max(sent, opened)

    with taken_over(send) as session:
        assert int(session.run("output", {"x": 1}, timeout=30)) <= 1024
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(ours, [b"x"], [0])  # we still can
    with sojourn.open(models.adder) as neighbour:  # and so can everybody, once it is gone
        assert neighbour(a=1, b=2) == 3


def test_its_last_words_and_errors_are_plain_and_short(taken_over):
    def fail(how: int) -> int:
        import os

        if how == 1:
            os.write(2, b"\x1b[2Jpwned")
            os.abort()
        raise type("\x1b[2J", (Exception,), {})("x" * 10**6)

    def told(session: Any, how: int) -> tuple[type, str, str]:
        try:
            session(how=how)
        except Exception as error:
            return type(error), str(error), str(error.__cause__)
        raise AssertionError

    with taken_over(fail) as session:
        kind, text, cause = told(session, 0)
        assert kind is sojourn.EngineError
        assert text.startswith("\\x1b[2J: xxx")
        assert re.search(r"xxx \.\.\. \(\d+ more characters\)$", text)
        assert len(cause) < 25_000
        kind, text, _ = told(session, 1)
        assert kind is sojourn.SessionBroken
        assert "\\x1b[2Jpwned" in text
        assert "\x1b" not in text


def test_nothing_is_imported_from_the_model(taken_over, tmp_path, monkeypatch):
    def found() -> list[str]:
        import importlib.util
        import sys

        assert importlib.util.find_spec("came_with_the_model") is None
        return sys.path

    (tmp_path / "came_with_the_model.py").write_text("")
    monkeypatch.chdir(tmp_path)
    for entry in ("", ".", str(tmp_path), str(tmp_path / "below")):
        monkeypatch.syspath_prepend(entry)
    with taken_over(found, readable=[tmp_path]) as session:
        path = [os.fsdecode(entry) for entry in session()]
    assert path
    assert all(os.path.isabs(entry) for entry in path)
    assert not any(entry.startswith(str(tmp_path)) for entry in path)


def test_no_library_of_ops_is_loaded(taken_over):
    def load(x: int) -> int:
        import tensorflow as tf

        tf.load_op_library("/no/such/library.so")
        return x

    with (
        taken_over(load) as session,
        pytest.raises(sojourn.ModelError, match="cannot load a library of ops"),
    ):
        session(x=1)


def test_secrets_of_the_environment_are_not_there(taken_over, monkeypatch):
    def environment() -> list[str]:
        import os

        return [f"{name}={value}" for name, value in os.environ.items()]

    monkeypatch.setenv("SOME_API_KEY", "the secret")
    with taken_over(environment) as session:
        told = session()
        assert len(told)
        assert not any(b"the secret" in text for text in told)
