"""One zygote for each framework: none of them is in the way of another's sessions."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

import onnx_writer
import sojourn
import tflite_models
from clients import client, remaining, told

pytestmark = pytest.mark.skipif(
    None in (importlib.util.find_spec("onnxruntime"), importlib.util.find_spec("ai_edge_litert")),
    reason="the engines are not installed",
)
OPEN = """
del os.environ["SOJOURN_PRELOAD"]
from sojourn.process.zygote import zygote_for
one, other = zygote_for("onnxruntime"), zygote_for("ai_edge_litert")
X = np.ones((1, 4), np.float32)

def first():
    return sojourn.open(FOLDER + "/dense.onnx")

onnx, lite = first(), sojourn.open(FOLDER + "/one.tflite")

def run(session):
    return session.run("y", {"x": X})[0].astype(int).tolist() == [18, 22, 26]
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that has a session of each engine open."""
    folder = tmp_path_factory.mktemp("engines")
    sojourn.isolated(tflite_models.main)(str(folder))
    Path(folder, "dense.onnx").write_bytes(onnx_writer.dense())
    return OPEN.replace("FOLDER", repr(os.fspath(folder)))


def test_a_killed_zygote_is_replaced_and_harms_no_session(opened: str) -> None:
    code = """
pid = one.pid
os.kill(pid, signal.SIGKILL)
tell(run(onnx), run(lite))
with first() as another:
    tell(run(another), one.pid != pid)
tell(onnx.close().clean, lite.close().clean)
"""
    with client(opened + code) as program:
        assert [told(program) for _ in range(3)] == [["True", "True"]] * 3
        program.wait()
        assert not remaining(program.pid)


def test_the_end_of_one_zygote_does_not_end_the_workers_of_another(opened: str) -> None:
    code = """
pid = other.pid
one.end()
tell(run(lite), other.pid == pid)
try:
    run(onnx)
except sojourn.SessionBroken:
    tell("broken", onnx.close() is not None)
with first() as another:
    tell(run(another), run(lite))
"""
    with client(opened + code) as program:
        assert told(program) == ["True", "True"]
        assert told(program) == ["broken", "True"]
        assert told(program) == ["True", "True"]
        program.wait()
        assert not remaining(program.pid)


def test_nothing_of_any_engine_outlives_a_killed_client(opened: str) -> None:
    with client(opened + "tell(run(onnx), run(lite)); time.sleep(60)") as program:
        assert told(program) == ["True", "True"]
        program.kill()
        program.wait()
        assert not remaining(program.pid)


def test_a_fork_of_the_client_has_sessions_and_zygotes_of_its_own(opened: str) -> None:
    code = """
pids = one.pid, other.pid
child = os.fork()
if child == 0:
    with first() as another:
        good = run(another) and one.pid != pids[0]
    one.end()
    os._exit(0 if good else 1)
tell(os.waitpid(child, 0)[1], run(onnx), run(lite), (one.pid, other.pid) == pids)
"""
    with client(opened + code) as program:
        assert told(program) == ["0", "True", "True", "True"]
        program.wait()
        assert not remaining(program.pid)


def test_a_zygote_that_nobody_uses_ends_and_the_next_session_starts_another(opened: str) -> None:
    code = """
lite.close()
pid, theirs = one.pid, other.pid
pidfd = os.pidfd_open(theirs)
select.select([pidfd], [], [])
tell(run(onnx), one.pid == pid)  # one with a worker stays
with sojourn.open(FOLDER + "/one.tflite") as again:
    tell(run(again), other.pid != theirs)
ended = [event for event in heard if event.kind == "zygote.ended"]
tell([event.detail["zygote_pid"] for event in ended] == [theirs], run(onnx))
"""
    with client(_impatient(opened) + code) as program:
        assert [told(program) for _ in range(3)] == [["True", "True"]] * 3
        program.wait()
        assert not remaining(program.pid)


def test_a_zygote_that_is_asked_for_ahead_of_time_stays(opened: str) -> None:
    code = """
onnx.close()
lite.close()
pid = one.pid
pidfd = os.pidfd_open(other.pid)
select.select([pidfd], [], [])
pool = sojourn.Pool()
pool.register("dense", FOLDER + "/dense.onnx")
with pool.lease("dense") as lease:
    tell(run(lease), one.pid is not None)
pid = one.pid
pool.close()
with sojourn.open(FOLDER + "/one.tflite") as again:
    theirs = os.pidfd_open(other.pid)
select.select([theirs], [], [])  # as long as it took this one
with first() as another:
    tell(run(another), one.pid == pid)
"""
    with client(_impatient(opened) + code) as program:
        assert [told(program) for _ in range(2)] == [["True", "True"]] * 2
        program.wait()
        assert not remaining(program.pid)


def _impatient(opened: str) -> str:
    folder = opened.partition("open(")[2].partition(" + ")[0]
    return f"""
import select
os.environ["SOJOURN_ZYGOTE_SECONDS"] = "0.5"
FOLDER = {folder}
heard = []
sojourn.events.subscribe(heard.append)
{opened}"""


def test_a_session_that_is_opened_as_its_zygote_ends_gets_another() -> None:
    code = """
os.environ["SOJOURN_ZYGOTE_SECONDS"] = "0.02"
from sojourn.process.zygote import zygote
pids = set()
for n in range(12):
    assert sojourn.isolated(int)(n) == n
    pids.add(zygote.pid)
    time.sleep(0.015 + n * 0.001)  # about when it ends
tell(len(pids) > 1)
"""
    with client(code) as program:
        assert told(program) == ["True"]
        program.wait()
        assert not remaining(program.pid)
