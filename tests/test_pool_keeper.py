"""The pool's one standing thread goes on, whatever it meets."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

import models
import sojourn
from sojourn.pool import keeper
from sojourn.testing.injection import interrupted

pytestmark = pytest.mark.usefixtures("zygote")
SUM = ("output", {"a": 1, "b": 2})


class Shortage:
    """Threads of these names cannot be started, as under a limit of the system's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, prefix: str, refusals: int) -> None:
        self.left = refusals
        start = threading.Thread.start

        def scarce(thread: threading.Thread) -> None:
            if thread.name == prefix and self.left > 0:
                self.left -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", scarce)


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Shortage]:
    return lambda name, refusals: Shortage(monkeypatch, name, refusals)


def test_a_job_for_which_there_is_no_thread_is_done_when_there_is_one(shortage):
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        few = shortage("sojourn-pool-job", 3)
        with pool.lease("sum") as session:
            assert session.run(*SUM) == 3
        assert few.left == 0
        few.left = 2  # closing takes a thread, too


def test_where_there_is_never_a_thread_the_keeper_does_the_jobs_itself(shortage, monkeypatch):
    monkeypatch.setattr(keeper, "_PATIENCE_SECONDS", 0.1)
    none = shortage("sojourn-pool-job", 10**6)
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        pool.register("other", models.adder)
        for name in ("sum", "other"):
            with pool.lease(name) as session:
                assert session.run(*SUM) == 3
                pid = session.pid
        os.kill(pid, signal.SIGKILL)
        while len(pool.stats().copies) == 2:
            time.sleep(0.005)
        with pool.lease(name) as session:  # who has died is buried and replaced
            assert session.run(*SUM) == 3
    assert 0 < none.left < 10**6 - 4
    assert pool.stats().counters["opens"] == 3


def test_a_pool_that_gets_no_thread_at_all_says_so_and_can_be_used_later(shortage):
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        shortage("sojourn-pool", 2)
        for _ in range(2):
            with pytest.raises(sojourn.PlatformError, match=r"needs a thread.*can't start"):
                pool.lease("sum")
        assert repr(pool).endswith("| 0 leased, 0 idle, 0 waiting>")
        with pool.lease("sum") as session:
            assert session.run(*SUM) == 3


def test_a_pool_that_gets_no_descriptor_says_so_and_can_be_used_later(monkeypatch):
    def none_left(*_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        with monkeypatch.context() as short:
            short.setattr(keeper.os, "eventfd", none_left)
            with pytest.raises(sojourn.PlatformError, match="Too many open files"):
                pool.lease("sum")
        with pool.lease("sum") as session:
            assert session.run(*SUM) == 3


def test_those_who_wait_look_when_something_has_happened_and_not_all_the_time():
    looks = []

    def no(scheduler: object) -> bool:
        looks.append(None)
        return False

    with sojourn.Pool() as pool:
        waiting = [
            threading.Thread(target=pool._driver.wait_until, args=(no, 0.2)) for _ in range(2)
        ]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        assert len(looks) <= 6


def test_a_keeper_with_no_lease_to_warn_of_does_not_look_all_the_time(monkeypatch):
    looks = []
    look = keeper.Keeper._mind_leases
    monkeypatch.setattr(keeper.Keeper, "_mind_leases", lambda self: (looks.append(0), look(self)))
    with sojourn.Pool(lease_warning_seconds=0) as pool:
        pool.register("sum", models.adder)
        pool.preload()
        looks.clear()
        time.sleep(0.2)
        assert len(looks) <= 10


def test_a_pool_that_never_got_a_thread_closes(shortage):
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        shortage("sojourn-pool", 1)
        with pytest.raises(sojourn.PlatformError):
            pool.lease("sum")


def test_a_keeper_that_meets_an_error_logs_it_and_goes_on(monkeypatch, caplog):
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        asked = []

        def measure() -> None:
            asked.append(None)
            if len(asked) == 1:
                raise ZeroDivisionError("a bug")

        monkeypatch.setattr(pool._keeper, "_measure_some", measure)
        with caplog.at_level(logging.ERROR, "sojourn.pool"), pool.lease("sum") as session:
            while len(asked) < 2:
                pool.stats()
            assert session.run(*SUM) == 3
    assert "a bug" in caplog.text
    caplog.clear()  # its traceback refers to the bell


def test_the_keepers_bell_is_not_closed_under_somebody_who_rings_it(monkeypatch):
    with sojourn.Pool() as pool:
        pool.register("sum", models.adder)
        pool.preload()
        bell = pool._keeper._bell
        assert bell is not None
        number = bell.fd
    # The keeper has ended, and one who was about to ring has not rung yet: his number is still his.
    assert os.readlink(f"/proc/self/fd/{number}") == "anon_inode:[eventfd]"
    bell.ring()
    pool._keeper.wake()
    del bell
    assert not os.path.exists(f"/proc/self/fd/{number}")


def test_an_interrupt_at_any_point_of_a_close_leaves_nothing_open():
    for point in range(1, 400, 23):
        pool = sojourn.Pool(memory="1GiB")
        pool.register("sum", models.adder)
        with pool.lease("sum", timeout=60) as lease:
            lease.run("output", {"a": 1.0, "b": 2.0})
        try:
            with interrupted(point):
                pool.close()
        except KeyboardInterrupt:
            pool.close()  # where it came too early, nothing has begun
        assert not [t for t in threading.enumerate() if t.name.startswith("sojourn-pool")]


def test_a_model_may_stay_idle_for_longer_than_the_system_can_wait_at_once(caplog):
    with sojourn.Pool(idle_seconds=40 * 86400) as pool:  # more milliseconds than fit into 32 bits
        pool.register("sum", models.adder)
        with caplog.at_level(logging.ERROR, "sojourn.pool"):
            for seconds in (1e300, None):
                with pool.lease("sum") as session:
                    assert session.run(*SUM) == 3
                pool.keep("sum", seconds)
                pool.preload("sum")  # answered by the keeper
        assert pool.stats().idle == 1
    assert not caplog.records
