"""`sojourn top` sees the sessions of other processes, and only those that are there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from clients import client, told
from faults.tools import wait_until
from sojourn.cli import top_table
from sojourn.cli.main import main
from sojourn.cli.top_view import TopView
from sojourn.probes import status_page
from sojourn.session.listing import Listed, Lister

ONE = Listed(
    name="resnet",
    owner="/somewhere/else/serve.py:12",
    state="ready",
    device="cpu",
    engine="litert 2.3.0 up to 6 rows, onnxruntime 1.31 above",
    isolation="process",
    client_pid=10,
    program="serve.py",
    worker_pid=11,
    held_bytes=452_000_000,
    runs=1234,
    under_way=0,
    runs_per_second=56.7,
    p50_seconds=61e-6,
    p99_seconds=0.0021,
    idle_seconds=3.2,
    open_seconds=100.0,
)
OTHER = replace(
    ONE, name="bert", client_pid=20, worker_pid=21, held_bytes=2**31, runs_per_second=0.0
)

TWO_SESSIONS = """
import threading
busy = sojourn.open(models.adder, name="busy")
quiet = sojourn.open(models.adder, name="quiet", isolation="inline")
go_on = True
def work():
    while go_on:
        busy.run(None, {"a": 1, "b": 2})
        time.sleep(0.001)
thread = threading.Thread(target=work)
thread.start()
while busy._stay.lifecycle.steps < 10:
    time.sleep(0.001)
tell(busy.pid)
sys.stdin.readline()
go_on = False
thread.join()
busy.close()
quiet.close()
tell("closed")
sys.stdin.readline()
"""


def sessions_of(pid: int, lister: Lister | None = None) -> dict[str, Listed]:
    return {s.name: s for s in (lister or Lister()).list() if s.client_pid == pid}


def test_sessions_of_another_process_are_seen_with_their_numbers_until_they_close():
    with client(TWO_SESSIONS) as process:
        [pid] = told(process)
        lister = Lister()
        first = sessions_of(process.pid, lister)
        assert first["busy"].runs_per_second is None
        done = CliRunner().invoke(main, ["top", "--json", "--sort", "runs"])
        assert done.exit_code == 0
        printed = [s for s in json.loads(done.output)["sessions"] if s["client_pid"] == process.pid]
        assert [s["name"] for s in printed] == ["busy", "quiet"]
        seen: dict[str, Listed] = {}

        def have_steps_been_run() -> bool:
            seen.update(sessions_of(process.pid, lister))
            return bool(seen["busy"].runs_per_second)

        wait_until(have_steps_been_run)  # since the look before
        busy, quiet = seen["busy"], seen["quiet"]
        assert busy.worker_pid == int(pid)
        assert busy.runs > first["busy"].runs
        assert 0 < busy.p50_seconds <= busy.p99_seconds
        assert busy.held_bytes > 2**20
        assert busy.state in ("ready", "running")
        assert busy.owner == "<string>:13"
        assert busy.program == "-c"
        assert (quiet.runs, quiet.p50_seconds, quiet.held_bytes) == (0, None, None)
        assert quiet.isolation == "inline"
        table = CliRunner().invoke(main, ["top", "--once"]).output
        assert "busy" in table
        assert "sessions of" in table
        process.stdin.write("\n")
        process.stdin.flush()
        assert told(process) == ["closed"]
        assert not sessions_of(process.pid)


def test_nothing_is_seen_of_a_process_that_was_killed():
    with client(TWO_SESSIONS) as process:
        told(process)
        assert sessions_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not sessions_of(process.pid)


def test_a_fork_does_not_show_the_sessions_of_its_parent_again():
    code = """
session = sojourn.open(models.adder, name="parents")
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
tell(child)
sys.stdin.readline()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
session.close()
tell("done")
"""
    with client(code) as process:
        [child] = told(process)
        assert set(sessions_of(process.pid)) == {"parents"}
        assert not sessions_of(int(child))
        process.stdin.write("\n")
        process.stdin.flush()
        assert told(process) == ["done"]


@pytest.mark.parametrize(
    "text",
    [
        '{"serial": NaN}',
        '{"worker_pid": Infinity, "isolation": "process"}',
        '{"worker_pid": 1.5}',
        '{"opened": -Infinity}',
        '{"opened": 1' + "0" * 400 + "}",
        "[" * 7000,
    ],
    ids=lambda text: text[:20],
)
def test_a_page_that_only_looks_like_one_is_passed_over(text):
    fd = os.memfd_create(status_page.NAME)
    try:
        os.write(fd, (b"\0" * 512 + text.encode()).ljust(8192, b"\0"))
        assert not [one for one in Lister().list() if one.client_pid == os.getpid()]
    finally:
        os.close(fd)


def test_the_table_is_plain_and_aligned():
    lines = top_table.render([ONE, OTHER]).splitlines()
    titles = "name worker state engine device holds runs runs/s p50 p99 idle owner opened at"
    assert lines[0].split() == titles.split()
    assert lines[1].split()[-12:-1] == "MiB 1234 57 61 us 2.1 ms 3 s 10 serve.py".split()
    assert "…" in lines[1].split()[-1] or lines[1].endswith("serve.py:12")
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "2 sessions of 2 processes, 2.4 GiB held, 57 runs/s"
    assert top_table.render([]) == "no sessions"


def test_every_column_sorts_numbers_from_the_largest():
    for key in top_table.KEYS:
        there = top_table.ordered([ONE, OTHER], key)
        back = top_table.ordered([ONE, OTHER], key, reverse=True)
        assert {s.name for s in there} == {s.name for s in back} == {"bert", "resnet"}
    assert [s.name for s in top_table.ordered([ONE, OTHER], "bytes")] == ["bert", "resnet"]
    assert [s.name for s in top_table.ordered([ONE, OTHER], "rate")] == ["resnet", "bert"]
    assert [s.name for s in top_table.ordered([ONE, OTHER], "name")] == ["bert", "resnet"]


def test_a_name_cannot_move_the_cursor_and_a_place_is_kept_short():
    evil = replace(ONE, name="\x1b[2Jgone\n", owner=os.path.abspath("a/b.py") + ":7")
    shown = top_table.render([evil])
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone\\n" in shown
    assert " a/b.py:7\n" in shown
    assert "x" * 27 + "… " in top_table.render([replace(ONE, name="x" * 100)])
    assert len(top_table.place("/long" * 30 + "/x.py:1")) == 36


def test_places_are_shown_where_the_current_folder_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert top_table.place("/a/b.py:7") == "/a/b.py:7"


def test_an_unknown_column_is_a_usage_error():
    assert CliRunner().invoke(main, ["top", "--sort", "nope"]).exit_code == 2


class _Fixed(Lister):
    def list(self) -> list[Listed]:
        return [ONE, OTHER]


def test_the_live_view_shows_sorts_pauses_and_quits():
    async def drive() -> None:
        view = TopView("name", False, 60.0)
        view._lister = _Fixed()
        async with view.run_test(size=(140, 20)) as pilot:
            await view.workers.wait_for_complete()
            await pilot.pause()
            table = view.query_one("DataTable")

            def names() -> list[str]:
                return [str(table.get_row_at(row)[0]) for row in range(table.row_count)]

            assert names() == ["bert", "resnet"]
            await pilot.press("r")
            assert names() == ["resnet", "bert"]
            await pilot.press("r", *"sssss")
            assert view._sort == "bytes"
            assert names() == ["bert", "resnet"]
            await pilot.press("space")
            summary = str(view.query_one("#summary").render())
            assert summary == "2 sessions of 2 processes, 2.4 GiB held, 57 runs/s (paused)"
            await pilot.press("q")
        assert view.return_code == 0

    asyncio.run(drive())


def test_without_textual_the_table_is_printed_with_a_hint():
    ours, theirs = os.openpty()
    code = (
        "import sys; sys.modules['textual'] = None\n"
        "from sojourn.cli.main import main; main(['top'])"
    )
    program = [sys.executable, "-c", code]
    process = subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    while read := _read(ours):
        text += read
    os.close(ours)
    assert process.wait() == 0
    assert b"pip install 'sojourn[top]'" in text
    assert b"session" in text.partition(b"[top]'")[2]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""  # the other end was closed
