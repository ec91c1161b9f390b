"""`sojourn report` tells what the events tell, also when they end in the middle."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

import models
import sojourn
from sojourn.audit.event_report import read, tell
from sojourn.audit.event_report.drawing import lanes_of, stepped
from sojourn.audit.event_report.page import render
from sojourn.cli.main import main
from sojourn.probes.status_page import BUCKETS

MIB = 2**20


def line(kind: str, at: float, serial: int = 1, name: str = "resnet", **more: object) -> str:
    event = {"kind": kind, "wall": 1000.0 + at, "pid": 7, "serial": serial, "session": name}
    return json.dumps({"place": "serve.py:3", **event, **more})


def histogram(**buckets: int) -> list[int]:
    return [buckets.get(f"b{index}", 0) for index in range(BUCKETS)]


LIFE = [
    line("session.opening", 0.0),
    line("session.ready", 0.5, host_bytes=100 * MIB),
    line("session.steps", 1.5, host_bytes=120 * MIB, runs=10, histogram=histogram(b6=9, b10=1)),
    line("session.draining", 2.0, runs=12),
    line("session.steps", 2.1, runs=12, histogram=histogram(b6=2)),
    line("session.closed", 2.1, runs=12),
    line(
        "session.receipt",
        2.1,
        receipt={"held_bytes": 130 * MIB, "returned_bytes": 130 * MIB, "seconds": 0.1,
                 "runs": 12, "clean": True},
    ),
]  # fmt: skip


class _Page(HTMLParser):
    """Every tag is closed where it should be, and nothing comes from elsewhere."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href") or value.startswith("#")

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.words.append(data)


def test_a_life_is_put_together_from_its_events():
    story = tell(LIFE)
    [session] = story.sessions
    assert (session.opened_at, session.ready_at, session.closed_at) == (
        0.0,
        0.5,
        pytest.approx(2.1),
    )
    assert session.runs == 12
    assert sum(session.histogram) == 12
    assert session.fate == "closed"
    assert story.peak_bytes == 130 * MIB
    held = dict(story.held)
    assert held[0.5] == 100 * MIB
    assert held[session.closed_at] == 0


@pytest.mark.parametrize("run_ids", [("", ""), ("a", "b")])
def test_runs_of_a_container_with_the_same_pid_are_told_apart(run_ids: tuple[str, str]) -> None:
    first, second = run_ids
    told = tell(
        [
            line("session.opening", 0.0, run_id=first),
            line("session.ready", 1.0, run_id=first),
            line("session.steps", 2.0, run_id=first, runs=100),  # and killed
            line("session.opening", 5.0, run_id=second),
            line("session.ready", 6.0, run_id=second),
            line("session.steps", 7.0, run_id=second, runs=50),
            line("session.closed", 8.0, run_id=second),
        ]
    )
    assert [(s.fate, s.runs) for s in told.sessions] == [("not closed", 100), ("closed", 50)]


@pytest.mark.parametrize("run_id", ["", "a"])
@pytest.mark.parametrize("sleep", ["session.broken", "session.parked"])
def test_a_session_that_opens_again_is_one_session(run_id: str, sleep: str) -> None:
    told = tell(
        [
            line("session.opening", 0.0, run_id=run_id),
            line("session.ready", 1.0, run_id=run_id),
            line(sleep, 2.0, run_id=run_id),
            line("session.receipt", 2.5, run_id=run_id),
            line("session.opening", 3.0, run_id=run_id),
            line("session.ready", 4.0, run_id=run_id),
            line("session.closed", 5.0, run_id=run_id),
        ]
    )
    assert len(told.sessions) == 1


def test_what_several_sessions_hold_is_added_up_over_time():
    other = [text.replace('"serial": 1', '"serial": 2') for text in LIFE]
    assert tell(LIFE + other).peak_bytes == 260 * MIB
    assert len(tell(LIFE + other).sessions) == 2


def test_fates_are_told_apart():
    def fate(*lines: str) -> str:
        return tell(lines).sessions[0].fate

    opening, ready, closed = line("session.opening", 0), line("session.ready", 1), LIFE[5]
    assert fate(opening, ready) == "not closed"
    assert fate(opening, closed) == "failed to open"
    assert fate(opening, ready, line("session.broken", 1.5), closed) == "broke, closed"
    assert fate(opening, ready, line("session.forgotten", 1.5), closed) == "forgotten"


@pytest.mark.parametrize(
    "damage",
    ["", "null", "[]", "{", '{"kind": 3}', '{"kind": "x"}', LIFE[1][:30], "\x00\ufffd",
     line("session.steps", 1, histogram="no"), line("session.receipt", 1, receipt=3),
     line("session.ready", 1, pid="x"), line("session.ready", 1, pid=[1]),
     line("session.ready", 1, runs="many"), line("session.ready", 1, host_bytes={}),
     line("session.ready", 1, serial=[]), line("session.ready", 1, wall=10**400), "[" * 100_000,
     line("session.receipt", 1, receipt={"held_bytes": "much", "seconds": []}),
     line("session.receipt", 1, receipt={"held_bytes": 1, "residue": 3})],
)  # fmt: skip
def test_damaged_lines_are_counted_and_passed_over(damage):
    story = tell([*LIFE[:3], damage, *LIFE[3:]])
    assert story.sessions[0].fate == "closed"
    assert story.unreadable <= 1
    _Page(render(story, "damaged"))


def test_the_full_file_before_is_read_too(tmp_path):
    (tmp_path / "e.jsonl.1").write_text("\n".join(LIFE[:3]) + "\n")
    (tmp_path / "e.jsonl").write_text("\n".join(LIFE[3:]) + "\n")
    assert read(tmp_path / "e.jsonl").sessions[0].ready_at == 0.5


@pytest.mark.parametrize("end_of_line", ["\u2028", "\x85", "\u2029"])
def test_a_text_with_an_end_of_line_in_it_is_one_event(tmp_path, end_of_line):
    events = (line("session.ready", 1), {"session": f"a{end_of_line}b"})
    text = json.dumps({**json.loads(events[0]), **events[1]}, ensure_ascii=False)
    (tmp_path / "e.jsonl").write_text(f"{text}\n{text}\n", encoding="utf-8")
    story = read(tmp_path / "e.jsonl")
    assert (story.counts["session.ready"], story.unreadable) == (2, 0)
    assert story.sessions[0].name == f"a{end_of_line}b"


def test_the_page_is_whole_shows_the_numbers_and_runs_nothing_of_others():
    lines = [text.replace("resnet", "<script>x</script>") for text in LIFE]
    text = render(tell(lines), "<b>&")
    words = "".join(_Page(text).words)
    assert "130 MiB" in words
    assert "<script>x</script>" in words
    assert "nothing" in words
    assert text.count("<script>") == 1
    assert "http" not in re.sub(r"http-equiv", "", text)


def test_no_session_at_all_makes_a_page_too():
    story = tell([json.dumps({"kind": "zygote.started", "wall": 5.0})])
    assert "No session was opened." in render(story)
    assert story.peak_bytes == 0


def test_many_sessions_share_the_lane_of_their_line_and_long_lines_are_thinned():
    lines = [text.replace('"serial": 1', f'"serial": {n}') for n in range(100) for text in LIFE]
    story = tell(lines)
    [(label, sessions)] = lanes_of(story.sessions)
    assert label == "serve.py:3  x100"
    assert len(sessions) == 100
    points = stepped([(float(n), n % 7) for n in range(10_000)])
    assert len(points) <= 1700
    assert max(size for _, size in points) == 6


def test_the_command_writes_page_and_picture_from_real_events(tmp_path, zygote):
    events = tmp_path / os.fsdecode(b"events\xff.jsonl")
    stop = sojourn.events.write_lines(str(events))
    with sojourn.open(models.holding(16), name="real") as session:
        for _ in range(3):
            session.run("sum")
    stop()
    # In a process of its own: matplotlib keeps its fonts open.
    program = [sys.executable, "-m", "sojourn.cli.main", "report", str(events)]
    done = subprocess.run(program, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr
    assert "1 session in" in done.stdout
    page, picture = events.with_suffix(".html"), events.with_suffix(".png")
    assert "real" in "".join(_Page(page.read_text()).words)
    assert picture.read_bytes().startswith(b"\x89PNG")
    plain = json.loads(CliRunner().invoke(main, ["report", str(events), "--json"]).output)
    [told] = plain["sessions"]
    assert told["receipt"]["returned_bytes"] == session.receipt.returned_bytes
    assert told["runs"] == 3
    assert told["place"].startswith(__file__)
    assert told["peak_bytes"] >= 16 * MIB


def test_what_cannot_be_done_is_said_with_its_exit_code(tmp_path, monkeypatch):
    def run(*arguments: str | Path) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["report", *map(str, arguments)])
        return done.exit_code, done.output

    events = tmp_path / "events.jsonl"
    assert run(events)[0] == 2
    events.write_text("not an event\n")
    assert run(events) == (1, f"Error: {events} holds no events\n")
    events.write_text("\n".join(LIFE))
    code, output = run(events, "--html", tmp_path / "no" / "x.html")
    assert code == 2
    assert "No such folder" in output
    for name in [name for name in sys.modules if name.startswith("matplotlib.backends")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(events, "--png", tmp_path / "x.png")[0] == 1
    code, output = run(events)
    assert code == 0
    assert "sojourn[plot]" in output
    assert sorted(os.listdir(tmp_path)) == ["events.html", "events.jsonl"]


def test_what_went_wrong_is_reported_with_all_its_facts() -> None:
    story = tell(
        [
            *LIFE,
            line("worker.died", 1.8, worker_pid=71, how="killed by SIGKILL", last_words="out <of>"),
            line("lease.overdue", 1.9, seconds=12.5),
            line("pool.overrun", 1.95, held_bytes=131 * MIB),
        ]
    )
    died, overdue, overrun = story.to_dict()["incidents"]
    assert (died["how"], died["worker_pid"], died["pid"]) == ("killed by SIGKILL", 71, 7)
    assert (overdue["seconds"], overrun["held_bytes"]) == (12.5, 131 * MIB)
    page = render(story)
    for fact in ("killed by SIGKILL", "worker pid 71", "out &lt;of&gt;", "12.5 s", "131 MiB"):
        assert fact in page, fact
