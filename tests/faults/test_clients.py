"""A client in trouble: forks that keep its descriptors, limits, clocks, and a full /dev/shm."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

import models
import sojourn
from clients import client, remaining, told
from faults.mounts import run_with_mounts
from faults.programs import STRICT, run_to_end
from sojourn.session.listing import Lister

SUM = ("output", {"a": 1, "b": 2})

OPEN = """
session = sojourn.open({model})
tell(session.pid)
"""
FORKED_BY_C = """
import ctypes
c = ctypes.PyDLL(None)  # Python's own handlers for forks hear nothing of this
child = c.fork()
if child == 0:
    c.sleep(120)
    c._exit(0)
tell(child)
"""
SPAWNED = """
tell(os.posix_spawn("/bin/sleep", ["sleep", "120"], os.environ))
"""


@pytest.mark.parametrize("how", [FORKED_BY_C, SPAWNED], ids=["forked-by-c", "spawned"])
@pytest.mark.parametrize(
    ("model", "step"),
    [("models.adder", "time.sleep(120)"), ("models.holds_the_interpreter_lock", "RUN")],
    ids=["idle", "in-a-step-that-holds-the-interpreter-lock"],
)
def test_a_child_that_keeps_descriptors_keeps_no_worker_of_a_dead_client(how, model, step):
    code = OPEN.format(model=model) + how
    code += step.replace("RUN", "session.run('output', {'seconds': 120})")
    with client(STRICT + code) as process:
        told(process)
        [child] = map(int, told(process))
        try:
            time.sleep(0.3)  # the step is under way
            process.kill()
            assert remaining(process.pid) == []
            assert os.path.exists(f"/proc/{child}")
        finally:
            os.kill(child, 9)
            process.wait()


def test_a_child_of_a_client_that_was_killed_with_its_zygote_keeps_no_worker():
    code = OPEN.format(model="models.adder") + FORKED_BY_C + "tell(zygote_pid()); time.sleep(120)"
    with client(STRICT + code) as process:
        told(process)
        [child] = map(int, told(process))
        [zygote] = map(int, told(process))
        try:
            os.kill(zygote, 9)
            process.kill()
            assert remaining(process.pid) == []
        finally:
            os.kill(child, 9)


def test_a_client_that_may_not_open_files_gets_an_error_and_loses_none():
    code = """
import resource
session = sojourn.open(models.adder)
session.run(*SUM)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
before, refused = descriptors(), 0
for limit in range(before - 1, before + 60):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with sojourn.open(models.adder) as other:
            other.run(*SUM)
        break
    except OSError as error:
        assert error.errno == 24, error
        refused += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        now = descriptors()
        assert now == before, (limit, before, now)
        assert session.run(*SUM) == 3
tell(refused > 5)
resource.setrlimit(resource.RLIMIT_NOFILE, (before - 1, hard))
tell(session.run(*SUM))  # a session that is open needs no more
tell(session.close().clean)
"""
    assert run_to_end(code) == ["True", "3", "True"]


def test_a_first_session_that_may_not_open_files_leaves_nothing():
    code = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
before, refused = descriptors(), 0
for limit in range(before - 1, before + 60):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with sojourn.open(models.adder) as session:
            session.run(*SUM)
        break
    except (OSError, sojourn.SojournError) as error:
        refused += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        from sojourn.process.zygote import zygote
        if zygote.pid is not None:
            zygote.end()
        now = descriptors()
        assert now == before, (limit, before, now)
tell(refused > 5)
"""
    assert run_to_end(code, may_complain=True) == ["True"]


def test_an_environment_of_a_megabyte_reaches_the_worker():
    code = """
for n in range(12):
    os.environ[f"LARGE_{n}"] = "x" * 100_000
with sojourn.open(lambda: lambda: np.array(sum(map(len, os.environ.values())))) as session:
    tell(session.run("output") > 1_000_000)
"""
    assert run_to_end(code) == ["True"]


FULL = """
mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k")
try:
    with open("/dev/shm/full", "wb") as full:
        full.write(b"x" * 8192)
    raise SystemExit("it is not full")
except OSError as error:
    assert error.errno == errno.ENOSPC
"""


def test_a_full_dev_shm_has_no_effect():
    code = """
with sojourn.open(lambda: lambda x: x + 1) as session:
    big = np.ones(4_000_000)
    assert session.run("output", {"x": big}).sum() == 8_000_000
    # Nothing of ours is there at all.
    for pid in (os.getpid(), session.pid, zygote_pid()):
        with open(f"/proc/{pid}/maps") as maps:
            assert "/dev/shm" not in maps.read()
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")
                 if os.path.lexists(f"/proc/{pid}/fd/{fd}")]
        assert not [link for link in links if link.startswith("/dev/shm")]
del big
tell(session.receipt.clean)
"""
    assert run_with_mounts(FULL + code) == ["True"]


def test_a_clock_that_jumps_changes_nothing(monkeypatch):
    """The clock that people set says something else, ages before or after, each time it is read."""
    real = {"time": time.time, "time_ns": time.time_ns, "clock_gettime": time.clock_gettime}
    jumps = itertools.cycle([10**9, 0, -(10**9)])

    def jumping(name: str, unit: int) -> Callable[..., Any]:
        def clock(*which: int) -> Any:
            if which and which[0] != time.CLOCK_REALTIME:
                return real[name](*which)
            return real[name](*which) + next(jumps) * unit

        return clock

    for name in real:
        monkeypatch.setattr(time, name, jumping(name, 10**9 if name.endswith("ns") else 1))
    listing = Lister()
    with (
        sojourn.Pool(idle_seconds=3600, lease_warning_seconds=3600) as pool,
        sojourn.open(models.sleeper, name="jumps") as session,
        session.lend(max_seconds=3600) as lease,
    ):
        pool.register("sum", models.adder)
        for _ in range(3):
            assert session.run("output", {"seconds": 0.01}, timeout=60) == 0.01
            assert lease.run("output", {"seconds": 0.0}, timeout=60) == 0.0
            with pool.lease("sum", timeout=60) as leased:
                assert leased.run(*SUM, timeout=60) == 3
            [listed] = [one for one in listing.list() if one.worker_pid == session.pid]
            assert 0 < listed.open_seconds < 600
            assert 0 <= listed.idle_seconds < 600
        started = time.monotonic()
        with pytest.raises(sojourn.StepTimeout):
            session.run("output", {"seconds": 60}, timeout=0.1)
        assert time.monotonic() - started < 30
        assert 0 <= lease.held_seconds < 600
        counters = pool.stats().counters
        assert (counters["opens"], counters["evictions"]) == (1, 0)  # nobody was idle for an hour
        receipt = session.close(timeout=0.1)
    assert receipt.clean
    assert 0 <= receipt.seconds < 600
