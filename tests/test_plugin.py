"""The pytest plugin: a suite of somebody else's with seeded leaks, and what it is told."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import functools, mmap, os, socket, subprocess, threading
import pytest
import sojourn
import sojourn.testing

# What is left here stays: no need to look again for long.
sojourn.testing.leftovers = functools.partial(sojourn.testing.leftovers, seconds=0.2)
kept = []

def adder():
    return lambda a, b: a + b

@pytest.fixture(autouse=True, scope="module")
def end():
    yield
    for thing in kept:
        thing()

@pytest.fixture(scope="module")
def shared():
    with sojourn.open(adder, name="shared") as session:
        yield session

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

def test_first_session():  # starts the zygote, which stays
    with sojourn.open(adder) as session:
        session.run(None, {"a": 1, "b": 2})

def test_good(tmp_path, shared):
    with sojourn.open(adder) as session, open(tmp_path / "file", "w"):
        assert session.run(None, {"a": 1, "b": 2}) is not None
    shared.run(None, {"a": 1, "b": 2})
    thread = threading.Thread(target=lambda: None)
    thread.start()
    subprocess.run(["true"], check=True)

def test_leaks_session():
    session = sojourn.open(adder, name="left")
    kept.append(session.close)

def test_leaks_inline_session():
    session = sojourn.open(adder, name="inline", isolation="inline")
    kept.append(session.close)

def test_leaks_process():
    child = subprocess.Popen(["sleep", "60"])
    kept.append(lambda: (child.kill(), child.wait()))

def test_leaks_descriptor():
    fd = os.open("/dev/null", os.O_RDONLY)
    kept.append(lambda: os.close(fd))

def test_leaks_thread():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="forgotten-thread")
    thread.start()
    kept.append(lambda: (stop.set(), thread.join()))

def test_leaks_segment():
    file = open("/dev/shm/left-by-the-suite", "wb+")
    file.truncate(1)
    mapped = mmap.mmap(file.fileno(), 1)  # or the tests beside us would wait for it to go
    kept.extend([file.close, mapped.close, lambda: os.unlink(file.name)])

def test_leaks_port():
    server = socket.create_server(("127.0.0.1", 0))
    kept.append(server.close)

def test_file_of_somebody_else(tmp_path_factory):
    import tempfile
    fd, path = tempfile.mkstemp()
    os.close(fd)
    kept.append(lambda: os.unlink(path))
"""


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "SOJOURN_PRELOAD": "none", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(SUITE)
    code, output = run_pytest(folder, "-rE")
    assert code == 1, output
    return output


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ("session", r"session 'left', opened at \S*test_suite.py:\d+, is open; worker process \d+"),
        ("inline_session", r"session 'inline', opened at \S*test_suite.py:\d+, is open"),
        ("process", r"child process \d+ is left"),
        ("descriptor", r"descriptors are left: .*/dev/null"),
        ("thread", r"thread forgotten-thread \(\d+\) is left"),
        ("segment", r"left-by-the-suite is left in /dev/shm"),
        ("port", r"a port is open"),
    ],
)
def test_each_kind_of_leak_fails_its_test_and_says_what_it_is(told, test, says):
    [line] = re.findall(rf"^ERROR test_suite.py::test_leaks_{test} .*", told, re.M)
    whole = told.partition(f"ERROR at teardown of test_leaks_{test} ")[2]
    assert line
    assert re.search(f"left behind: .*{says}", whole), whole[:600]


def test_what_is_clean_passes_and_the_temporary_folder_is_nobodys(told):
    assert "7 errors" in told
    assert "10 passed" in told
    errors = re.findall(r"^ERROR test_suite.py::(\w+)", told, re.M)
    assert len(errors) == 7
    assert not {"test_first_session", "test_good", "test_file_of_somebody_else"} & set(errors)


def test_it_is_found_by_pytest_and_loads_no_framework():
    [entry] = importlib.metadata.entry_points(group="pytest11", name="sojourn")
    assert entry.value == "sojourn.testing.pytest_plugin"
    code = (
        "import sys, threading, sojourn.testing.pytest_plugin\n"
        "heavy = {'tensorflow', 'keras', 'matplotlib', 'rich', 'libcst', 'textual', 'pynvml'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert 'sojourn.audit' not in sys.modules\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_can_be_turned_off(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one(nothing_left_behind): pass\n")
    assert run_pytest(tmp_path)[0] == 0
    code, output = run_pytest(tmp_path, "-p", "no:sojourn")
    assert code == 1
    assert "fixture 'nothing_left_behind' not found" in output
