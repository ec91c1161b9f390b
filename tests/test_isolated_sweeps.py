"""Sweeps: what is finished is never lost, whatever happens to the rest."""

from __future__ import annotations

import errno
import io
import itertools
import os
import pickle
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import nullcontext
from enum import Flag
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

import sojourn
from clients import run_program
from faults.tools import press_when
from sojourn.functions import items, submitting, sweeping
from sojourn.functions.options import Options
from sojourn.functions.results_file import ResultsFile
from sojourn.functions.stored import Stored
from sojourn.probes import processes

pytestmark = pytest.mark.usefixtures("zygote")


def workers() -> list[int]:
    """The workers that are alive now."""
    return [found.pid for found in processes.of_client(os.getpid()) if not found.is_zygote]


def square(x: int) -> int:
    if x < 0:
        raise LookupError(f"no root of {x}")
    return x * x


def add(a: int, b: int = 0, *, c: int = 0) -> tuple[int, int, int]:
    return a, b, c


# -- errors ------------------------------------------------------------------------------------


def test_an_error_names_its_item_and_brings_the_results_so_far() -> None:
    with pytest.raises(LookupError, match="no root of -5") as caught:
        sojourn.isolated(square).map([1, 2, -5, 3], workers=1)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in call 2 of the sweep: square(-5)\n2 results are kept: see" in shown
    sweep = caught.value.sweep  # type: ignore[attr-defined]
    assert sweep.results == {0: 1, 1: 4}
    assert repr(sweep) == "<sweep of 'square' | 2 of 4 done>"
    assert workers() == []


def test_an_error_of_a_sweep_reaches_other_processes_with_its_results() -> None:
    with pytest.raises(LookupError) as caught:
        sojourn.isolated(square).map([1, 2, -5], workers=1)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.sweep.results == {0: 1, 1: 4}
    with pytest.raises(RuntimeError, match="copy of a sweep"):
        copy.sweep.run()


def test_errors_can_be_returned_in_place_of_results_or_left_out() -> None:
    isolated = sojourn.isolated(square)
    one, error, nine = isolated.map([1, -2, 3], on_error="return")
    assert (one, nine) == (1, 9)
    assert isinstance(error, LookupError)
    assert isinstance(error.__cause__, sojourn.RemoteTraceback)
    assert isolated.map([1, -2, 3], on_error="skip") == [1, 9]
    with pytest.raises(ValueError, match="on_error must be"):
        isolated.map([1], on_error="ignore")  # type: ignore[arg-type]


def test_also_a_crash_a_timeout_and_an_exit_are_errors_of_their_item() -> None:
    def trouble(what: str) -> str:
        if what == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "exit":
            sys.exit(3)
        if what == "hang":
            threading.Event().wait()
        return what

    isolated = sojourn.isolated(trouble, timeout=3)
    crash, leave, hang, fine = isolated.map(["crash", "exit", "hang", "fine"], on_error="return")
    assert isinstance(crash, sojourn.SessionBroken)
    assert isinstance(leave, SystemExit)
    assert isinstance(hang, sojourn.StepTimeout)
    assert fine == "fine"


def test_a_sweep_that_was_stopped_by_an_error_goes_on_where_it_was(tmp_path: Path) -> None:
    repaired = tmp_path / "repaired"

    def work(x: int) -> tuple[int, int]:
        if x == 1 and not repaired.exists():
            raise RuntimeError("not yet")
        return x, os.getpid()

    sweep = sojourn.isolated(work).sweep([0, 1, 2], workers=1)
    with pytest.raises(RuntimeError):
        sweep.run()
    first = sweep.results[0]
    repaired.touch()
    results = sweep.run()
    assert [x for x, _ in results] == [0, 1, 2]
    assert results[0] == first
    assert sweep.run() == results
    assert len(sweep) == 3


# -- Ctrl-C ------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_is_finished_and_the_sweep_goes_on_later(tmp_path: Path) -> None:
    marker = tmp_path / "third"

    def work(x: int) -> int:
        if x == 2 and not marker.exists():
            marker.touch()
            threading.Event().wait()
        return x

    sweep = sojourn.isolated(work).sweep(range(4), workers=1)
    thread = press_when(marker)
    with pytest.raises(KeyboardInterrupt) as caught:
        sweep.run()
    thread.join()
    assert caught.value.sweep is sweep  # type: ignore[attr-defined]
    assert sweep.results == {0: 0, 1: 1}
    assert workers() == []
    assert sweep.run() == [0, 1, 2, 3]


INTERRUPTED = """
import os, random, signal, threading, sojourn
from sojourn.probes import processes

@sojourn.isolated
def work(x): return x * x

sojourn.warm_up(wait=True)
sweep = work.sweep(range(8), workers=2, results="out")
moments, is_armed, is_over = random.Random(12), threading.Event(), threading.Event()

def interrupt(number, frame):
    if is_armed.is_set():
        is_armed.clear()
        raise KeyboardInterrupt

def press():
    while not is_over.wait(moments.random() * 0.2):
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, interrupt)
threading.Thread(target=press, daemon=True).start()
results, had = None, {}
while results is None:
    try:
        is_armed.set()
        results = sweep.run()
    except KeyboardInterrupt:
        assert had.items() <= sweep.results.items()
        had = dict(sweep.results)
    is_armed.clear()
is_over.set()
assert results == [x * x for x in range(8)]
assert work.sweep(range(8), results="out").results == sweep.results
assert [found for found in processes.of_client(os.getpid()) if not found.is_zygote] == []
"""


def test_interrupts_at_random_moments_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED)
    done = run_program(program, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_interrupted_sweep_over_an_iterator_loses_no_item(tmp_path: Path) -> None:
    marker = tmp_path / "begun"

    def work(x: int) -> int:
        if x == 3 and not marker.exists():
            marker.touch()
            threading.Event().wait()
        return x

    sweep = sojourn.isolated(work).sweep(itertools.islice(itertools.count(), 6), workers=2)
    thread = press_when(marker)
    with pytest.raises(KeyboardInterrupt):
        sweep.run()
    thread.join()
    assert sweep.run() == [0, 1, 2, 3, 4, 5]


class Bar:
    """Like a progress bar around an iterator, whose length it does not know either."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@pytest.mark.parametrize("items", [Bar(itertools.count()), range(2**70)])
def test_items_that_cannot_be_counted_are_taken_one_by_one(items: Any) -> None:
    sweep = sojourn.isolated(square).sweep(items, workers=1)
    assert [done.value for done in itertools.islice(sweep, 3)] == [0, 1, 4]
    assert len(sweep) == 3


def test_a_sweep_whose_iterator_failed_does_not_pretend_to_be_whole() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk")

    sweep = sojourn.isolated(square).sweep(broken())
    with pytest.raises(OSError, match="the disk"):
        sweep.run()
    assert sweep.results in ({}, {0: 1})
    with pytest.raises(RuntimeError, match="its rest is lost"):
        sweep.run()


# -- as they come ------------------------------------------------------------------------------


def test_results_arrive_as_they_are_completed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def work(x: int) -> int:
        while x == 0 and not gate.exists():
            time.sleep(0.005)
        return x * 10

    seen = []
    for done in sojourn.isolated(work).sweep(iter([0, 1, 2]), workers=2):
        seen.append((done.index, done.item, done.value))
        if done.item == 2:
            gate.touch()
    assert seen == [(1, 1, 10), (2, 2, 20), (0, 0, 0)]


def test_leaving_the_loop_ends_the_workers_and_keeps_the_results() -> None:
    def work(x: int) -> int:
        time.sleep(1000 if x else 0)
        return x

    sweep = sojourn.isolated(work).sweep([0, 1, 2], workers=3)
    for done in sweep:
        assert done.value == 0
        break
    assert workers() == []
    assert sweep.results == {0: 0}


def test_a_loop_meets_every_item_once_also_those_that_were_done_before() -> None:
    sweep = sojourn.isolated(square).sweep([1, -2, 3], workers=1, on_error="return")
    seen = {done.item: done.value or type(done.error) for done in sweep}
    assert seen == {1: 1, -2: LookupError, 3: 9}
    assert [done.item for done in sweep] == [1, 3, -2]
    skipping = sojourn.isolated(square).sweep([1, -2], workers=1, on_error="skip")
    assert [done.item for done in skipping] == [1]
    assert list(skipping.errors) == [1]


def test_a_sweep_runs_once_at_a_time() -> None:
    sweep = sojourn.isolated(square).sweep([1, 2], workers=1)
    for _ in sweep:
        with pytest.raises(RuntimeError, match="running already"):
            sweep.run()


# -- submit ------------------------------------------------------------------------------------


def test_submit_gives_a_future() -> None:
    isolated = sojourn.isolated(add)
    futures = [isolated.submit(i, c=1) for i in range(5)]
    assert [future.result(timeout=60) for future in futures] == [(i, 0, 1) for i in range(5)]
    failed = sojourn.isolated(square).submit(-1)
    assert isinstance(failed.exception(timeout=60), LookupError)
    _wait_until_no_thread_is_left()


def test_a_submitted_call_that_has_not_begun_can_be_cancelled(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def work() -> None:
        while not gate.exists():
            time.sleep(0.005)

    isolated = sojourn.isolated(work)
    futures = [isolated.submit() for _ in range(len(os.sched_getaffinity(0)) + 1)]
    assert futures[-1].cancel()
    gate.touch()
    assert [future.result(60) for future in futures[:-1]] == [None] * (len(futures) - 1)
    _wait_until_no_thread_is_left()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("time is up")])
def test_what_interrupts_a_submit_is_not_lost_and_the_call_is_never_made(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    may_end = threading.Event()
    calls: list[str] = []

    def interrupted(thread: threading.Thread) -> None:
        raise error

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    first = submitting.submit(may_end.wait)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(type(error)):
            submitting.submit(lambda: calls.append("interrupted"))
    last = submitting.submit(lambda: calls.append("last"))
    may_end.set()
    wait([first, last])
    _wait_until_no_thread_is_left()
    assert calls == ["last"]


def test_another_system_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    isolated = sojourn.isolated(square)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    for call in (
        lambda: isolated.map([1]),
        lambda: isolated.sweep([1]),
        lambda: isolated.submit(1),
    ):
        with pytest.raises(sojourn.PlatformError, match="needs Linux, and this is darwin"):
            call()


def test_a_callback_that_ends_its_thread_holds_up_no_other_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(_: Any) -> None:
        sys.exit("in a callback")

    isolated = sojourn.isolated(add)
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    first, second = isolated.submit(1), isolated.submit(2)
    first.add_done_callback(leave)
    assert second.result(timeout=60) == (2, 0, 0)
    assert isolated.submit(3).result(timeout=60) == (3, 0, 0)
    assert [args.exc_type for args in reported] == [SystemExit]
    _wait_until_no_thread_is_left()


def _wait_until_no_thread_is_left() -> None:
    for thread in threading.enumerate():
        if thread.name == "sojourn-submit":
            thread.join(60)


# -- arguments ---------------------------------------------------------------------------------


def test_items_of_a_grid_are_passed_by_keyword() -> None:
    isolated = sojourn.isolated(add)
    choices = sojourn.grid(a=[1, 2], c=(3, 4))
    assert choices == [{"a": 1, "c": 3}, {"a": 1, "c": 4}, {"a": 2, "c": 3}, {"a": 2, "c": 4}]
    assert isolated.map(choices) == [(1, 0, 3), (1, 0, 4), (2, 0, 3), (2, 0, 4)]
    mixed = [sojourn.Keywords(b=1), sojourn.Keywords(c=2)]
    assert isolated.map([5, 6], mixed) == [(5, 1, 0), (6, 0, 2)]
    assert isolated.map([{"a": 1}]) == [({"a": 1}, 0, 0)]  # a plain dict is an argument
    with pytest.raises(TypeError, match="'a', not 'text'"):
        sojourn.grid(a="text")
    with pytest.raises(TypeError, match="an item has 'c' twice, from two grids"):
        isolated.map(sojourn.grid(a=[1], c=[2]), sojourn.grid(c=[3]))


# -- the results file --------------------------------------------------------------------------


def noted(x: Any) -> int:
    """Notes that it ran, in the folder that the environment names."""
    fd = os.open(os.environ["RAN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b".")
    os.close(fd)
    return square(int(x))


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAN", str(tmp_path / "ran"))
    return tmp_path / "ran"


def test_a_rerun_continues_from_the_file(tmp_path: Path, ran: Path) -> None:
    file = tmp_path / "sweep.results"
    isolated = sojourn.isolated(noted)
    with pytest.raises(LookupError):
        isolated.map([1, 2, -3, 4], workers=1, results=file)
    assert ran.read_text() == "..."
    assert isolated.sweep([4, 2, 1], results=file).results == {1: 4, 2: 1}
    assert isolated.map([1, 2, 3, 2], workers=1, results=file) == [1, 4, 9, 4]
    assert ran.read_text() == "....."  # 3, and the second 2
    assert isolated.map(iter([2, 1, 2]), results=file) == [4, 1, 4]
    assert [done.value for done in isolated.sweep(iter([1]), results=file)] == [1]
    assert ran.read_text() == "....."
    # Another seed is another computation.
    assert sojourn.isolated(noted, seed=1).map([1], results=file) == [1]
    assert ran.read_text() == "......"


def test_a_record_that_was_cut_short_is_computed_again(tmp_path: Path, ran: Path) -> None:
    file = tmp_path / "sweep.results"
    isolated = sojourn.isolated(noted)
    isolated.map([1, 2, 3], workers=1, results=file)
    whole = file.read_bytes()
    header = whole.index(b"\n") + 1
    for length in {0, 5, header, header + 3, header + 50, len(whole) - 1, len(whole)}:
        file.write_bytes(whole[:length])
        assert isolated.map([1, 2, 3], workers=1, results=file) == [1, 4, 9]
        assert file.read_bytes() == whole
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # damaged
    assert isolated.map([1, 2, 3], workers=1, results=file) == [1, 4, 9]
    assert file.read_bytes() == whole


def test_a_damaged_first_line_is_said_to_be_damaged(tmp_path: Path, ran: Path) -> None:
    file = tmp_path / "sweep.results"
    isolated = sojourn.isolated(noted)
    isolated.map([1], results=file)
    data = bytearray(file.read_bytes())
    data[data.index(b"noted")] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(sojourn.ResultsError, match="first line cannot be read"):
        isolated.map([1], results=file)


def test_damage_to_one_result_costs_no_other(tmp_path: Path, ran: Path) -> None:
    file = tmp_path / "sweep.results"
    isolated = sojourn.isolated(noted)
    isolated.map([1, 2, 3, 4], workers=1, results=file)
    data = bytearray(file.read_bytes())
    data[data.index(b"\n") + 46] ^= 1  # in the first result
    file.write_bytes(data)
    assert isolated.sweep([1, 2, 3, 4], results=file).results == {1: 4, 2: 9, 3: 16}
    assert isolated.map([1, 2, 3, 4], results=file) == [1, 4, 9, 16]
    assert ran.read_text() == "....."
    assert isolated.sweep([1, 2, 3, 4], results=file).results == {0: 1, 1: 4, 2: 9, 3: 16}


def test_damage_anywhere_in_a_record_costs_no_other_result(tmp_path: Path) -> None:
    path = str(tmp_path / "sweep.results")
    keys = [bytes([n]) * 32 for n in range(4)]
    values = [1, "x" * 100_000, [2, b"\x80\x05" * 40], 3]
    with (file := ResultsFile(path, "f")).writing():
        starts = []
        for key, value in zip(keys, values, strict=True):
            starts.append(os.path.getsize(path))
            file.append(key, value)
    whole = (tmp_path / "sweep.results").read_bytes()
    for record in range(3):
        others = {keys[n]: [values[n]] for n in range(4) if n != record}
        for place in (*range(0, 50, 3), starts[record + 1] - starts[record] - 1):
            for change in (0x01, 0x80):
                data = bytearray(whole)
                data[starts[record] + place] ^= change
                (tmp_path / "sweep.results").write_bytes(data)
                assert ResultsFile(path, "f").read() == others
    with file.writing():
        file.append(b"k" * 32, "new")
    assert file.read() == {**others, b"k" * 32: ["new"]}


def test_a_result_is_read_to_its_end_however_little_the_kernel_reads_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweep.results"
    sojourn.isolated(square).map([1, 2], results=file)
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: read(fd, [parts[0][:7]], at))
    assert sojourn.isolated(square).sweep([1, 2], results=file).results == {0: 1, 1: 4}


def test_a_program_that_is_killed_loses_no_result_that_it_had(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sojourn\n"
        "@sojourn.isolated\n"
        "def work(x): return x * x\n"
        "for done in work.sweep(range(6), workers=2, results='out'):\n"
        "    print(done.index, flush=True)\n"
        "    if os.environ.get('DIE') and done.index == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = run_program(program, folder=tmp_path, DIE="1")
    assert killed.returncode == -signal.SIGKILL
    had = killed.stdout.split()
    again = run_program(program, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert sorted(again.stdout.split()) == ["0", "1", "2", "3", "4", "5"]
    assert again.stdout.split()[: len(had)] == sorted(had)


def test_results_of_an_earlier_run_are_objects_of_the_programs_own_classes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import dataclasses, enum, os, sojourn\n"
        "class Kind(enum.Enum):\n"
        "    GOOD = 1\n"
        "class Outer:\n"
        "    @dataclasses.dataclass\n"
        "    class Loss:\n"
        "        value: float\n"
        "if os.environ.get('ONCE'):\n"
        "    class Gone:\n"
        "        value = 3\n"
        "@sojourn.isolated\n"
        "def work(x): return Outer.Loss(x), Kind.GOOD, Gone()\n"
        "sweep = work.sweep([1.0], results='out', quiet=True)\n"
        "[(loss, kind, gone)] = sweep.run()\n"
        "assert loss == Outer.Loss(1.0) and isinstance(loss, Outer.Loss), loss\n"
        "assert kind is Kind.GOOD and gone.value == 3\n"
    )
    for more in {"ONCE": "1"}, {"ONCE": "1"}, {}:
        done = run_program(program, folder=tmp_path, **more)
        assert done.returncode == 0, done.stderr


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "sweep.results"
    sojourn.isolated(square).map([1], results=file)
    before = file.read_bytes()
    with pytest.raises(sojourn.ResultsError, match=r"has results of '.*\.square', not of '.*add'"):
        sojourn.isolated(add).map([1], results=file)
    assert file.read_bytes() == before
    file.write_bytes(before.replace(b"results 1 ", b"results 2 "))
    with pytest.raises(sojourn.ResultsError, match=r"version 2 .* reads version 1"):
        sojourn.isolated(square).map([1], results=file)
    file.write_text("my thesis\n")
    with pytest.raises(sojourn.ResultsError, match="is not a file of results"):
        sojourn.isolated(square).map([1], results=file)
    assert file.read_text() == "my thesis\n"


def test_a_place_where_no_file_can_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(sojourn.ResultsError, match="is a folder"):
        sojourn.isolated(square).sweep([1], results=tmp_path)
    with pytest.raises(sojourn.ResultsError, match=r"there is no folder .*/nowhere"):
        sojourn.isolated(square).sweep([1], results=tmp_path / "nowhere" / "out")
    os.mkfifo(pipe := tmp_path / "pipe")  # whose opening would wait for a writer
    for path in (pipe, os.devnull):
        with pytest.raises(sojourn.ResultsError, match="is no plain file"):
            sojourn.isolated(square).sweep([1], results=path)


def test_what_cannot_be_recognised_again_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sweep.results"
    with pytest.raises(TypeError, match="not a lambda"):
        sojourn.isolated(lambda x: x).map([1], results=file)
    with pytest.raises(TypeError, match="can be recognised in another run"):
        sojourn.isolated(square).map([lambda: 1], results=file)
    with pytest.raises(TypeError, match="path"):
        sojourn.isolated(square).map([1], results=3)  # type: ignore[arg-type]


def experiment(dataset: Any, *, depth: int = 1) -> Any:
    def prepared(rate: int) -> str:
        return f"{dataset} {rate}"

    @sojourn.isolated
    def train(rate: int, times: int = depth) -> str:
        assert train.receipt is None  # it has closed over itself
        return prepared(rate) * times

    return train


def test_what_a_function_has_closed_over_and_its_defaults_belong_to_its_results(
    tmp_path: Path,
) -> None:
    file = tmp_path / "sweep.results"
    assert experiment("mnist").map([1], results=file) == ["mnist 1"]
    assert experiment("cifar").map([1], results=file) == ["cifar 1"]
    assert experiment("cifar", depth=2).map([1], results=file) == ["cifar 1cifar 1"]
    assert experiment("mnist").sweep([1], results=file).results == {0: "mnist 1"}
    assert experiment("cifar", depth=2).sweep([1], results=file).results == {0: "cifar 1cifar 1"}
    with pytest.raises(TypeError, match=r"train is bound to or has closed over cannot: .*lambda"):
        experiment(lambda: 1).map([1], results=file)


def test_functions_that_have_closed_over_nothing_keep_their_results(tmp_path: Path) -> None:
    def context(function: Any) -> Any:
        return Stored(tmp_path / "out", function, Options())._context

    assert context(square) == ([], None, False)
    assert context(partial(square, 1)) == ([ANY], None, False)
    assert context(Point(1).where) == ([ANY], None, False)


class Looked:
    """It counts how often somebody looks what it is made of."""

    def __init__(self) -> None:
        self.looks = 0

    def __reduce__(self) -> tuple[Any, ...]:
        self.looks += 1
        return Looked, ()


def test_what_is_bound_is_looked_at_once_however_many_items_there_are(tmp_path: Path) -> None:
    data = Looked()
    isolated = sojourn.isolated(partial(pick, data))
    file = tmp_path / "sweep.results"
    assert isolated.sweep(range(100), results=file).results == {}
    assert data.looks == 1


def test_results_are_found_again_though_the_bound_object_changes_meanwhile(tmp_path: Path) -> None:
    data, file = [0], tmp_path / "sweep.results"
    for done in sojourn.isolated(partial(pick, data)).sweep([1, 2, 3], workers=1, results=file):
        data[0] = done.value
    again = sojourn.isolated(partial(pick, [0])).sweep([1, 2, 3], results=file)
    assert again.results == {0: 1, 1: 2, 2: 3}


def test_results_are_found_again_though_their_items_change_meanwhile(tmp_path: Path) -> None:
    def choices() -> list[Any]:
        common: dict[str, Any] = {"depth": 2}
        return [{"rate": rate, "common": common} for rate in (1, 2, 3)]

    isolated, file = sojourn.isolated(rate_of), tmp_path / "sweep.results"
    for done in isolated.sweep(choices(), workers=1, results=file, quiet=True):
        done.item["common"]["best"] = done.item["loss"] = done.value
    assert isolated.sweep(choices(), results=file).results == {0: 1, 1: 2, 2: 3}


def rate_of(item: Any) -> Any:
    return item["rate"]


def pick(_: Any, item: Any) -> Any:
    return item


def test_what_is_shown_last_of_a_sweep_that_failed_has_nothing_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[tuple[int, int, int]] = []

    def note(*counts: int) -> None:
        shown.append(counts)

    monkeypatch.setattr(sweeping, "showing", lambda *_: nullcontext(note))
    with pytest.raises(ZeroDivisionError):
        sojourn.isolated(one_over).map([1, 0, 2], workers=1)
    assert shown[-2:] == [(1, 0, 1), (1, 0, 0)]


def one_over(x: float) -> float:
    return 1 / x


def test_a_full_disk_loses_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sweep.results"
    sweep = sojourn.isolated(square).sweep([1, 2, 3], workers=1, results=file)
    room = 150
    write = os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: room - offset], offset)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left") as raised:
        patch.setattr(os, "pwrite", pwrite)
        sweep.run()
    had = len(sweep.results)
    if sys.version_info >= (3, 11):  # notes
        [note] = raised.value.__notes__
        assert note.endswith(f"kept in {file}, but for 1: see `sweep.results` of this exception")
    assert had > len(sojourn.isolated(square).sweep([1, 2, 3], results=file).results)
    assert sweep.run() == [1, 4, 9]
    # What was in memory when the disk was full is computed again by another run, and stored then.
    assert sojourn.isolated(square).map([1, 2, 3], results=file) == [1, 4, 9]
    assert len(sojourn.isolated(square).sweep([1, 2, 3], results=file).results) == 3


def test_two_sweeps_do_not_write_one_file_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "sweep.results"
    isolated = sojourn.isolated(square)
    for _ in isolated.sweep([1], results=file):
        with pytest.raises(sojourn.ResultsError, match="in use by another sweep"):
            isolated.map([1, 2], results=file)
    assert isolated.map([1, 2], results=file) == [1, 4]


def test_a_fork_that_stays_does_not_keep_the_file_in_use(tmp_path: Path) -> None:
    file = tmp_path / "sweep.results"
    isolated = sojourn.isolated(square)
    for _ in isolated.sweep([1], results=file, quiet=True):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        assert isolated.map([1, 2], results=file, quiet=True) == [1, 4]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_equal_items_have_equal_keys_and_others_have_others() -> None:
    shared = "a" * 3
    equal = [
        ({"x": 1, "y": {1, 2}}, {"y": {2, 1}, "x": 1}),
        ([shared, shared], ["aaa", "a" * 3]),
        (np.arange(4).reshape(2, 2).T, np.array([[0, 2], [1, 3]])),
        (Path("a/b"), Path("a") / "b"),
        (np.float32(1.5), np.float32(1.5)),
        (Point(1), Point(1)),
        (re.compile("a"), re.compile("a")),
        (Sides(0), Sides.LEFT & Sides.RIGHT),
    ]
    for one, other in equal:
        assert items.key(one) == items.key(other)
    different: list[Any] = [1, 1.0, True, "1", b"1", [1], (1,), {1}, {1: 1}, None, np.int64(1)]
    different += [np.array([1]), np.array([[1]]), np.array([1.0]), Point(1), Point(2), Path("1")]
    different += [["a", "b"], ["ab"], [["a"], "b"], square, add]
    different += [re.compile("a"), re.compile("a", re.I), Sides(0), Sides.LEFT, ~Sides(0)]
    assert len({items.key(value) for value in different}) == len(different)


class Sides(Flag):
    LEFT = 1
    RIGHT = 2


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def where(self) -> int:
        return self.x


# -- what is shown -----------------------------------------------------------------------------


def test_prints_of_parallel_calls_are_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    def talk(x: int) -> None:
        print("one")
        print("two", end="")
        sys.stderr.write("aside\n")

    sojourn.isolated(talk).map([7, 8], workers=2)
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == [
        "[0: 7] one",
        "[0: 7] two",
        "[1: 8] one",
        "[1: 8] two",
    ]
    assert sorted(shown.err.splitlines()) == ["[0: 7] aside", "[1: 8] aside"]
    sojourn.isolated(talk).map([7], workers=1)
    assert capsys.readouterr().out == "one\ntwo"


def test_a_stream_that_takes_nothing_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(x: int) -> int:
        print("one", end="")
        return x

    class Failing(io.StringIO):
        def write(self, text: str) -> int:
            raise RuntimeError("no")

    monkeypatch.setattr(sys, "stdout", Failing())
    assert sojourn.isolated(talk).map([7, 8], workers=2) == [7, 8]


def test_of_a_line_that_is_drawn_again_the_last_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def draw(x: int) -> None:
        for percent in (0, 50, 100):
            sys.stderr.write(f"\r{percent}%")
        sys.stderr.write("\nnext\r\n10%\r20%\r")

    sojourn.isolated(draw).map([7, 8], workers=2)
    lines = sorted(capsys.readouterr().err.split("\n")[:-1])
    left = ("100%", "20%", "next")
    assert lines == [f"{label} {text}" for label in ("[0: 7]", "[1: 8]") for text in left]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_while_the_first_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from sojourn.functions import sweeping

    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    seen: list[str] = []
    monkeypatch.setattr(sweeping, "_wait_for_zygote", lambda: seen.append(screen.getvalue()))
    sojourn.isolated(square).map([1, -1], on_error="skip")
    assert "square" in seen[0]
    assert "0/2" in seen[0]
    assert "1 failed" in screen.getvalue()
