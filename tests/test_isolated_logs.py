"""What a worker logs reaches the caller's handlers."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sojourn
from clients import run_program
from sojourn.process import log_records

pytestmark = pytest.mark.usefixtures("zygote")


def test_a_record_keeps_its_level_its_logger_and_its_facts(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        log = logging.getLogger("study.trial")
        log.debug("too fine")
        log.info("loss %.1f", 0.5, extra={"epoch": 3})
        sys.stderr.write("no newline")
        try:
            raise KeyError("lost")
        except KeyError:
            log.exception("with \udcff")

    with caplog.at_level(logging.INFO, "study"):
        sojourn.isolated(work)()
    records = [record for record in caplog.records if record.name == "study.trial"]
    assert [(r.levelname, r.getMessage()) for r in records] == [
        ("INFO", "loss 0.5"),
        ("ERROR", "with \\udcff"),
    ]
    assert records[0].epoch == 3  # type: ignore[attr-defined]
    assert records[0].funcName == "work"
    assert records[0].process != os.getpid()
    assert "KeyError: 'lost'" in caplog.text
    assert capsys.readouterr().err == "no newline"


def test_a_record_arrives_whatever_a_function_prints_to(caplog: pytest.LogCaptureFixture) -> None:
    class Tee:
        def write(self, text: str) -> int:
            return sys.__stderr__.write(text)

    def work() -> None:
        sys.stderr = Tee()  # type: ignore[assignment]
        logging.getLogger("study").warning("got it")

    sojourn.isolated(work)()
    assert [r.getMessage() for r in caplog.records if r.name == "study"] == ["got it"]


def test_records_of_a_sweep_and_of_a_session_arrive_too(caplog: pytest.LogCaptureFixture) -> None:
    def work(x: Any) -> Any:
        logging.getLogger("study").warning("got %s", int(x))
        return x

    sojourn.isolated(work).map([1, 2], workers=2)
    with sojourn.open(lambda: work) as session:
        session.run("output", {"x": np.int64(3)})
    assert sorted(r.getMessage() for r in caplog.records if r.name == "study") == [
        "got 1",
        "got 2",
        "got 3",
    ]


def test_handlers_that_fail_change_no_result() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ZeroDivisionError

    def work() -> int:
        logging.getLogger("broken").error("oh")
        return 7

    logger, handler = logging.getLogger("broken"), Broken()
    logger.addHandler(handler)
    logger.propagate = False
    try:
        assert sojourn.isolated(work)() == 7
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


def test_the_last_words_of_a_worker_have_what_it_logged() -> None:
    def crash() -> None:
        logging.getLogger("study").error("it diverged")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(sojourn.SessionBroken, match="ERROR:study:it diverged"):
        sojourn.isolated(crash)()


def complaints_of(folder: Path, text: str) -> str:
    program = folder / "program.py"
    program.write_text(text)
    done = run_program(program)
    assert done.returncode == 0, done.stderr
    return done.stderr


WORK = """
import logging, sojourn
{caller}
@sojourn.isolated
def work():
    {worker}
    logging.info("fine")
    logging.warning("coarse")
work()
"""


@pytest.mark.parametrize(
    ("caller", "worker", "shown"),
    [
        ("", "pass", "coarse\n"),
        ("logging.basicConfig(level='INFO')", "pass", "INFO:root:fine\nWARNING:root:coarse\n"),
        ("", "logging.basicConfig(level='INFO')", "INFO:root:fine\nWARNING:root:coarse\n"),
        ("logging.basicConfig()", "logging.basicConfig(level='INFO')", "WARNING:root:coarse\n"),
        ("logging.disable()", "pass", ""),
    ],
)
def test_who_sets_up_logging_decides_what_is_shown(
    tmp_path: Path, caller: str, worker: str, shown: str
) -> None:
    lines = complaints_of(tmp_path, WORK.format(caller=caller, worker=worker)).splitlines(True)
    assert "".join(line for line in lines if "sojourn" not in line) == shown


def test_a_record_may_come_in_pieces() -> None:
    record = logging.makeLogRecord(
        {"name": "a", "levelno": 20, "levelname": "INFO", "msg": "hello"}
    )
    frame = log_records._BEGIN + log_records._encoded(record) + log_records._END
    data = b"before " + frame + b"between\0" + frame + b" after"
    for cut in range(len(data) + 1):
        printed, first, begun = log_records.separate(data[:cut])
        rest, second, left = log_records.separate(begun + data[cut:])
        assert printed + rest == b"before between\0 after"
        assert [r.getMessage() for r in first + second] == ["hello", "hello"]
        assert left == b""
