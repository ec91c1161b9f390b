"""A line of the log has every fact of its event."""

from __future__ import annotations

import logging
import os
import signal

import pytest

import models
import sojourn
from sojourn.events.bus import Event
from sojourn.events.logs import line
from sojourn.values import Place


def test_a_line_says_what_whose_where_and_every_fact():
    event = Event(
        "pool.overrun",
        "resnet",
        Place("app.py", 3),
        detail={"held_bytes": 3 * 2**20, "seconds": 1.5, "error": "disk full", "copy": "r[0]#1"},
    )
    assert line(event) == (
        "pool.overrun resnet at app.py:3: held_bytes=3.0MiB seconds=1.5s error='disk full' "
        "copy=r[0]#1"
    )
    assert line(Event("zygote.ended")) == "zygote.ended"


def test_words_of_several_lines_stay_in_one():
    event = Event("worker.died", "bert", detail={"last_words": "first\nsecond", "status": None})
    assert line(event) == r"worker.died bert: last_words='first\nsecond'"


@pytest.mark.usefixtures("zygote")
def test_the_log_tells_bytes_signals_and_seconds(caplog):
    with caplog.at_level(logging.INFO, "sojourn"):
        with sojourn.open(models.adder, name="closed"):
            pass
        with sojourn.open(models.adder, name="killed") as session:
            pid = session.pid
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(sojourn.SessionBroken):
                session.run("output", {"a": 1, "b": 2})
        with sojourn.open(models.adder, name="lent") as session, session.lend() as lease:
            lease._terms.tell_overdue(2.5)
    lines = {
        record.getMessage().partition(" at ")[0].partition(":")[0]: record.getMessage()
        for record in caplog.records
    }
    receipt = lines["session.receipt closed"]
    for fact in ("held_bytes=", "returned_bytes=", "peak_bytes=", "runs=0", "clean=True"):
        assert fact in receipt
    died = lines["worker.died killed"]
    assert f"worker_pid={pid}" in died
    assert "SIGKILL" in died
    assert "seconds=2.5s runs=0" in lines["lease.overdue lent"]
