"""Ctrl-C during isolated calls, and sweeps over many of them."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sojourn
from faults.tools import press_when
from sojourn.probes import processes

pytestmark = pytest.mark.usefixtures("zygote")


def workers() -> list[int]:
    """The workers that are alive now."""
    return [found.pid for found in processes.of_client(os.getpid()) if not found.is_zygote]


@contextmanager
def interrupting(marker: Path, times: int = 1) -> Iterator[threading.Thread]:
    """Press Ctrl-C as soon as the marker is there, on this thread."""
    thread = press_when(marker, times)
    try:
        yield thread
    finally:
        thread.join()


def busy(marker: Path) -> None:
    marker.touch()
    while True:
        pass


def test_ctrl_c_ends_the_call_and_its_worker(tmp_path: Path) -> None:
    spin = sojourn.isolated(busy)
    with interrupting(tmp_path / "begun"), pytest.raises(KeyboardInterrupt):
        spin(tmp_path / "begun")
    assert workers() == []
    assert spin.receipt is not None
    assert spin.receipt.clean
    assert sojourn.isolated(lambda: 5)() == 5


def test_pressing_it_again_and_again_changes_nothing(tmp_path: Path) -> None:
    caught = 0
    with interrupting(tmp_path / "begun", times=10) as presser:
        try:
            sojourn.isolated(busy)(tmp_path / "begun")
        except KeyboardInterrupt:
            caught += 1
        is_over = False
        while not is_over:  # those that came after the call was over
            try:
                presser.join()
                time.sleep(0.05)  # the last one may be on its way
                is_over = True
            except KeyboardInterrupt:
                caught += 1
    assert caught
    assert workers() == []


def test_ctrl_c_ends_a_stream(tmp_path: Path) -> None:
    @sojourn.isolated
    def stuck() -> Iterator[int]:
        yield 1
        busy(tmp_path / "begun")

    stream = stuck()
    assert next(stream) == 1
    with interrupting(tmp_path / "begun"), pytest.raises(KeyboardInterrupt):
        next(stream)
    assert workers() == []
    assert list(stream) == []


# -- sweeps ------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_items() -> None:
    def late(i: int) -> int:
        time.sleep(0.3 if i == 0 else 0)
        return i * i

    assert sojourn.isolated(late).map(range(5), workers=3) == [0, 1, 4, 9, 16]
    assert sojourn.isolated(pow).map([2, 3], (n for n in (3, 2)), workers=2) == [8, 9]
    assert sojourn.isolated(late).map([]) == []


def test_no_more_workers_than_asked_for_run_at_a_time(tmp_path: Path) -> None:
    def crowd(i: int) -> int:
        (tmp_path / str(i)).touch()
        time.sleep(0.1)
        seen = len(list(tmp_path.iterdir()))
        (tmp_path / str(i)).unlink()
        return seen

    assert max(sojourn.isolated(crowd).map(range(6), workers=2)) <= 2


def test_the_first_error_ends_the_others_and_is_raised() -> None:
    def fail_or_hang(i: int) -> int:
        if i == 2:
            raise LookupError(f"item {i}")
        time.sleep(1000 if i > 2 else 0)
        return i

    with pytest.raises(LookupError, match="item 2"):
        sojourn.isolated(fail_or_hang).map(range(100), workers=4)
    assert workers() == []


def test_an_error_of_the_iterable_ends_the_calls_too() -> None:
    def items() -> Iterator[int]:
        yield 1000
        raise RuntimeError("no more items")

    with pytest.raises(RuntimeError, match="no more items"):
        sojourn.isolated(time.sleep).map(items(), workers=2)
    assert workers() == []


def test_ctrl_c_ends_a_sweep(tmp_path: Path) -> None:
    marker = tmp_path / "begun"
    with interrupting(marker), pytest.raises(KeyboardInterrupt):
        sojourn.isolated(busy).map([marker] * 6, workers=3)
    assert workers() == []


def test_wrong_sweeps_are_refused() -> None:
    @sojourn.isolated
    def yields(x: int) -> Iterator[int]:
        yield x

    with pytest.raises(TypeError, match="'yields' yields"):
        yields.map([1])
    with pytest.raises(TypeError, match="returned a generator"):
        sojourn.isolated(lambda x: (i for i in x)).map([[1]])
    with pytest.raises(ValueError, match="workers"):
        sojourn.isolated(len).map([[1]], workers=0)
    with pytest.raises(TypeError, match="iterable"):
        sojourn.isolated(len).map()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_sweep_has_a_progress_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    double = sojourn.isolated(lambda x: x * 2, name="double")
    for stream, quiet, shows in (
        (Terminal(), False, True),
        (Terminal(), True, False),
        (io.StringIO(), False, False),
    ):
        monkeypatch.setattr(sys, "stderr", stream)
        assert double.map([1, 2, 3], workers=2, quiet=quiet) == [2, 4, 6]
        assert ("3/3" in stream.getvalue()) == shows
        assert ("double" in stream.getvalue()) == shows


class BrokenTerminal(Terminal):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream",
    [
        BrokenTerminal(),
        closed(),
        object(),
        None,
    ],
    ids=["hung up", "closed", "no stream", "none"],
)
def test_a_bar_that_cannot_be_shown_costs_no_result(
    monkeypatch: pytest.MonkeyPatch, stream: Any
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    double = sojourn.isolated(lambda x: x * 2, name="double")
    assert double.map([1, 2, 3], workers=2) == [2, 4, 6]
