"""Every transition is told once, to whoever listens, and what was written is never lost."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import models
import sojourn
from clients import client, told
from faults.tools import Background, wait_until
from sojourn.events import lines

ADD = {"a": 1, "b": 2}


@pytest.fixture
def heard():
    """What is told during a test, single steps included."""
    events: list[sojourn.events.Event] = []
    stop = sojourn.events.subscribe(events.append, every_step=True)
    yield events
    stop()


def kinds(events):
    """What was told, in order. The sums of steps come by the clock and are left out."""
    return [
        event.kind
        for event in events
        if event.kind.startswith(("session.", "worker.", "lease."))
        and event.kind != "session.steps"
    ]


@pytest.mark.usefixtures("zygote")
class TestALife:
    def test_every_transition_of_a_whole_life_is_reported_once_and_in_order(self, heard):
        with sojourn.open(models.adder, name="told") as session:
            session.run(None, ADD)
            with pytest.raises(TypeError):
                session.run(None, {"a": 1})
            lease = session.lend()
            lease.close()
        assert kinds(heard) == [
            "session.opening",
            "worker.started",
            "session.ready",
            *["session.running", "session.ready", "session.step"] * 2,
            "lease.granted",
            "lease.ended",
            "session.draining",
            "worker.ended",
            "session.closed",
            "session.receipt",
        ]
        assert {event.session for event in heard} == {"told"}
        steps = [event.detail for event in heard if event.kind == "session.step"]
        assert [step["failed"] for step in steps] == [False, True]

    def test_an_event_says_when_where_which_session_and_how_much(self, heard):
        with sojourn.open(models.holding(8), name="eight"):
            pass
        ready, receipt = (
            next(event for event in heard if event.kind == kind)
            for kind in ("session.ready", "session.receipt")
        )
        assert ready.host_bytes > 8 * 2**20
        assert receipt.host_bytes == receipt.detail["receipt"]["returned_bytes"]
        assert ready.detail["serial"] == receipt.detail["serial"]
        for event in (ready, receipt):
            assert event.place.file == __file__
            assert event.pid == os.getpid()
            assert event.monotonic > 0
        assert ready.wall < receipt.wall
        with pytest.raises(AttributeError):
            ready.kind = "other"

    def test_a_death_is_reported_as_one_and_the_comeback_too(self, heard, tmp_path):
        with sojourn.open(models.counter, restart="from-checkpoint") as session:
            session.save(tmp_path / "state")
            os.kill(session.pid, signal.SIGKILL)
            wait_until(lambda: not os.path.exists(f"/proc/{session.pid}"))
            session.run("value")
        seen = [kind for kind in kinds(heard) if kind not in ("session.running", "session.step")]
        assert seen[seen.index("session.saved") :] == [
            "session.saved",
            "worker.died",
            "session.broken",
            "session.opening",
            "worker.started",
            "session.ready",
            "session.restarted",
            "session.ready",
            "session.draining",
            "worker.ended",
            "session.closed",
            "session.receipt",
        ]
        died = next(event for event in heard if event.kind == "worker.died")
        assert died.detail["how"] == "was killed by SIGKILL"

    def test_a_worker_that_died_unnoticed_is_not_called_ended(self, heard):
        with sojourn.open(models.adder) as session:
            fd = os.pidfd_open(session.pid)
            os.kill(session.pid, signal.SIGKILL)
            select.select([fd], [], [], 10)
            os.close(fd)
        assert "worker.died" in kinds(heard)
        assert "worker.ended" not in kinds(heard)

    def test_an_opening_that_fails_ends_as_closed(self, heard):
        def build():
            raise ValueError("no")

        with pytest.raises((sojourn.ModelError, ValueError)):
            sojourn.open(build)
        assert kinds(heard) == [
            "session.opening",
            "worker.started",
            "session.closed",
            "worker.ended",
        ]
        [closed] = [event for event in heard if event.kind == "session.closed"]
        assert closed.detail["error"] == "ValueError: no"

    def test_a_forgotten_session_is_reported_of_with_the_line_that_opened_it(self, heard):
        session = sojourn.open(models.adder)
        with pytest.warns(ResourceWarning):
            del session
        gc.collect()
        for thread in threading.enumerate():
            if thread.name == "sojourn-forgotten":
                thread.join()
        forgotten = next(event for event in heard if event.kind == "session.forgotten")
        assert forgotten.place.file == __file__
        assert kinds(heard)[-1] == "session.receipt"

    def test_whoever_did_not_ask_for_single_steps_gets_their_sum(self):
        heard: list[sojourn.events.Event] = []
        stop = sojourn.events.subscribe(heard.append)
        with sojourn.open(models.adder) as session:
            for _ in range(50):
                session.run(None, ADD)
        stop()
        assert "session.running" not in kinds(heard)
        steps = [event.detail for event in heard if event.kind == "session.steps"]
        assert sum(sum(one["histogram"]) for one in steps) == 50
        assert steps[-1]["runs"] == 50

    def test_a_subscriber_that_raises_disturbs_nobody(self, caplog):
        def bad(event):
            raise RuntimeError("mine")

        stop = sojourn.events.subscribe(bad)
        with sojourn.open(models.adder) as session:
            assert session.run(None, ADD)
        stop()
        assert "a subscriber failed on session.opening" in caplog.text

    def test_a_subscriber_that_exits_ends_no_thread_of_ours(self, caplog):
        def leave(event):
            if event.kind in ("session.ready", "session.closed"):
                sys.exit("mine")

        stop = sojourn.events.subscribe(leave)
        with sojourn.Pool() as pool:
            pool.register("sum", models.adder)
            with pool.lease("sum", timeout=60) as session:
                assert session.run(None, ADD)
            assert pool.evict("sum", timeout=60)
        stop()
        assert "a subscriber failed on session.ready" in caplog.text
        assert "a subscriber failed on session.closed" in caplog.text

    def test_the_log_is_quiet_unless_asked_and_its_records_have_fields(self, caplog):
        with (
            caplog.at_level(logging.INFO, "sojourn"),
            sojourn.open(models.adder, name="logged"),
        ):
            pass
        record = next(r for r in caplog.records if r.sojourn_kind == "session.receipt")
        assert record.name == "sojourn.session"
        assert record.sojourn_session == "logged"
        assert record.sojourn_receipt["clean"]
        caplog.clear()
        with sojourn.open(models.adder):
            pass
        assert not caplog.records


def test_lines_survive_a_kill_in_the_middle(tmp_path):
    path = tmp_path / "events.jsonl"
    code = f"""
sojourn.events.write_lines({str(path)!r})
session = sojourn.open(models.adder, name="killed")
session.run(None, {{"a": 1, "b": 2}})
tell("now")
os.kill(os.getpid(), signal.SIGKILL)
"""
    with client(code) as process:
        assert told(process) == ["now"]
        process.wait()
    written = [json.loads(line) for line in path.read_text().splitlines()]
    told_of = [one["kind"] for one in written if one["kind"].startswith(("session.", "worker."))]
    assert told_of[:3] == ["session.opening", "worker.started", "session.ready"]
    assert any(one["host_bytes"] > 0 for one in written)
    assert all(one["pid"] == process.pid for one in written)


def test_the_file_is_named_by_the_environment_and_shared_by_processes(tmp_path):
    path = tmp_path / "events.jsonl"
    code = "import sojourn; [sojourn.events.emit('test.told', 'x' * 500) for _ in range(200)]"
    environment = {**os.environ, "SOJOURN_EVENTS": str(path)}
    writers = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(written) == 600
    assert len({one["pid"] for one in written}) == 3
    assert len({one["run_id"] for one in written}) == 3  # a file outlives pids


@pytest.mark.parametrize("first", ["sojourn.events.emit('test.told')", ""])
def test_a_program_that_changes_its_folder_goes_on_with_its_file(tmp_path, first):
    (tmp_path / "deep").mkdir()
    code = f"""
import os, sojourn
sojourn.events.write_lines("lines.jsonl")
{first}
os.chdir("deep")
sojourn.events.emit("test.told")
"""
    environment = {**os.environ, "SOJOURN_EVENTS": "events.jsonl"}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)
    for name in ("events.jsonl", "lines.jsonl"):
        assert (tmp_path / name).read_text().count("test.told") == (2 if first else 1)
    assert not any((tmp_path / "deep").iterdir())


def test_a_folder_that_is_gone_is_a_warning_and_no_failure(tmp_path):
    code = "import os; os.rmdir(os.getcwd()); import sojourn; sojourn.events.emit('test.told')"
    environment = {**os.environ, "SOJOURN_EVENTS": "events.jsonl"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "no events are recorded, events.jsonl cannot be written" in done.stderr


def test_the_file_is_bounded_and_the_one_before_is_kept(tmp_path):
    path = tmp_path / "events.jsonl"
    stop = sojourn.events.write_lines(str(path), max_bytes=2000)
    for number in range(100):
        sojourn.events.emit("test.told", number=number)
    stop()
    before = tmp_path / "events.jsonl.1"
    assert path.stat().st_size <= 2000
    assert before.stat().st_size <= 2000
    numbers = [
        json.loads(line)["number"]
        for file in (before, path)
        for line in file.read_text().splitlines()
    ]
    assert numbers == list(range(numbers[0], 100))


def test_processes_that_share_a_full_file_turn_it_over_once_and_lose_nothing(tmp_path):
    path = tmp_path / "events.jsonl"
    code = (
        "import sys, sojourn\n"
        f"sojourn.events.write_lines({str(path)!r}, max_bytes=40_000)\n"
        "for n in range(100):\n"
        "    sojourn.events.emit('test.told', 'x' * 50, number=n)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    files = (tmp_path / "events.jsonl.1", path)
    written = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(written) == 300
    for writer in writers:
        numbers = [one["number"] for one in written if one["pid"] == writer.pid]
        assert numbers == list(range(100))
    assert max(file.stat().st_size for file in files) <= 40_000


def test_a_full_file_that_cannot_be_turned_over_stops_nobody(tmp_path, caplog):
    path = tmp_path / "events.jsonl"
    (tmp_path / "events.jsonl.1").mkdir()
    # As two processes would: a lock belongs to what was opened, not to who opened it.
    stops = [sojourn.events.write_lines(str(path), max_bytes=300) for _ in range(2)]
    telling = Background(lambda: [sojourn.events.emit("test.told") for _ in range(10)])
    telling.result(30)
    for stop in stops:
        stop()
    assert path.stat().st_size <= 300
    assert "a subscriber failed on test.told" in caplog.text


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path):
    path = tmp_path / "events.jsonl"
    stop = sojourn.events.write_lines(str(path))
    sojourn.events.emit("test.before")
    path.rename(tmp_path / "rotated")
    sojourn.events.emit("test.after")
    stop()
    assert "test.before" in (tmp_path / "rotated").read_text()
    assert "test.after" in path.read_text()


def test_a_fork_writes_lines_of_its_own_even_if_another_thread_was_writing(tmp_path):
    path = tmp_path / "events.jsonl"
    stop = sojourn.events.write_lines(str(path))
    [writer] = [writer for writer in lines._writers if writer._fd >= 0]
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with writer._lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    code = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: a fork with threads
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            sojourn.events.emit("test.child")
            code = 0
        finally:
            os._exit(code)
    release.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    stop()
    assert json.loads(path.read_text())["pid"] == child


def test_a_finalizer_that_tells_while_a_line_is_written_does_not_hang(tmp_path, monkeypatch):
    stop = sojourn.events.write_lines(str(tmp_path / "events.jsonl"))
    really_write = os.write
    depth = 0

    def write_and_be_interrupted(fd, data):
        nonlocal depth
        depth += 1
        if depth == 1:
            sojourn.events.emit("test.inner")
        return really_write(fd, data)

    monkeypatch.setattr(lines.os, "write", write_and_be_interrupted)
    sojourn.events.emit("test.outer")
    monkeypatch.undo()
    stop()
    written = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in written] == ["test.inner", "test.outer"]


def test_every_kind_that_is_reported_is_on_the_page_and_no_other():
    root = Path(__file__).parent.parent
    page = (root / "docs" / "events.md").read_text()
    kinds = r"(?:session|worker|spare|zygote|lease|pool)\.[a-z_]+"
    told_of = {f"session.{state}" for state in sojourn.State}
    for folder in ("session", "process", "pool"):
        for file in (root / "src" / "sojourn" / folder).rglob("*.py"):
            told_of |= set(re.findall(f'"({kinds})"', file.read_text()))
    assert told_of == set(re.findall(f"`({kinds})`", page))


@pytest.mark.usefixtures("zygote")
def test_the_code_of_the_page_runs(capsys):
    page = (Path(__file__).parent.parent / "docs" / "events.md").read_text()
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)
    assert "session.receipt adder" in capsys.readouterr().out
    assert issubclass(names["Metrics"], names["BaseHTTPRequestHandler"])


def test_a_path_that_is_not_valid_text_costs_no_line(tmp_path):
    path = tmp_path / "events.jsonl"
    stop = sojourn.events.write_lines(path)
    sojourn.events.emit("session.saved", path="/tmp/\udcff")
    stop()
    [line] = path.read_text().splitlines()
    assert json.loads(line)["path"] == "/tmp/\\udcff"


def test_a_log_handler_that_fails_disturbs_nobody(zygote):
    class Failing(logging.Handler):
        def emit(self, record):
            raise ValueError("no room for a log")

    handler = Failing()
    logger = logging.getLogger("sojourn")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with sojourn.open(models.adder) as session:
            assert session.run("output", ADD) == 3
            os.kill(session.pid, signal.SIGKILL)
            with pytest.raises(sojourn.SessionBroken):
                session.run("output", ADD)
        assert session.receipt.clean
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def test_a_log_handler_that_exits_ends_no_thread_of_ours():
    class Exiting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sys.exit("mine")

    handler, reached = Exiting(), []
    logger = logging.getLogger("sojourn")

    def work() -> None:
        sojourn.events.emit("worker.died", "resnet")
        reached.append(True)

    logger.addHandler(handler)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
    finally:
        logger.removeHandler(handler)
    assert reached
