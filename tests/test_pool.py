"""A pool with real workers: leases, budget, waiting, ends."""

from __future__ import annotations

import gc
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import models
import pool_models
import sojourn
from clients import client, told
from faults.tools import wait_until

pytestmark = pytest.mark.usefixtures("zygote")

SUM = ("output", {"a": 1, "b": 2})
MiB = 2**20


@pytest.fixture
def pool():
    with sojourn.Pool(memory="1GiB") as pool:
        pool.register("sum", models.adder)
        pool.register("other", models.adder)
        yield pool


def opens(pool: sojourn.Pool) -> int:
    return pool.stats().counters["opens"]


@pytest.mark.quick
def test_a_lease_opens_the_model_and_the_next_finds_it_open(pool):
    assert repr(pool) == "<Pool 0.0/1.0 GiB | 0 leased, 0 idle, 0 waiting>"
    with pool.lease("sum") as session:
        assert session.run(*SUM) == 3
        assert "test_pool.py" in str(session.holder)
        assert "1 leased, 0 idle" in repr(pool)
        pid = session.pid
    assert "0 leased, 1 idle" in repr(pool)
    with pool.lease("sum") as session:
        assert session.pid == pid
    assert opens(pool) == 1
    with pytest.raises(sojourn.LeaseExpired, match="given back"):
        session.run(*SUM)


def test_a_lease_of_a_model_that_is_open_takes_a_number_of_seconds_as_any_other(pool):
    pool.preload("sum")
    pool.lease("sum", timeout=5).close()
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not '5'"):
        pool.lease("sum", timeout="5")


def test_leases_that_come_at_once_open_a_model_once_and_share_it(pool):
    with ThreadPoolExecutor(8) as threads:
        leases = list(threads.map(lambda _: pool.lease("sum"), range(8)))
    assert len({lease.pid for lease in leases}) == 1
    assert opens(pool) == 1
    for lease in leases:
        lease.close()


def test_copies_are_opened_while_all_are_busy_and_the_least_loaded_is_chosen(pool):
    pool.register("both", models.adder, copies=2)
    with pool.lease("both") as one, pool.lease("both"):
        wait_until(lambda: sum(copy.model == "both" for copy in pool.stats().copies) == 2)
        wait_until(lambda: pool.stats().opening == 0)
        with pool.lease("both") as another:
            assert another.pid != one.pid


@pytest.mark.quick
def test_an_exclusive_copy_has_one_holder_at_a_time(pool):
    pool.register("mine", models.adder, exclusive=True)
    with pool.lease("mine"), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.lease, "mine", timeout=0.05)
        with pytest.raises(sojourn.PoolTimeout, match=r"leased at .*test_pool.py:\d+"):
            waiting.result()
    with pool.lease("mine", timeout=0) as session:  # whoever timed out has taken nothing along
        assert session.run(*SUM) == 3


def test_a_model_that_is_being_opened_holds_nobody_else_up(pool, tmp_path):
    pool.register("slow", pool_models.slow_to_open(str(tmp_path / "go")))
    pool.preload("sum")
    with ThreadPoolExecutor(1) as threads:
        cold = threads.submit(pool.lease, "slow")
        wait_until(lambda: pool.stats().opening == 1)
        for _ in range(20):
            with pool.lease("sum", timeout=0) as session:
                assert session.run(*SUM) == 3
        with pytest.raises(sojourn.PoolTimeout, match="still being opened"):
            pool.lease("slow", timeout=0)
        assert pool.stats().opening == 1
        (tmp_path / "go").touch()
        cold.result().close()


def test_a_model_that_cannot_be_loaded_is_an_error_for_everybody_who_waits(pool):
    pool.register("broken", lambda: 7)
    with pytest.raises(sojourn.ModelError):
        pool.lease("broken")
    with pytest.raises(sojourn.ModelError, match="no model named 'nobody'"):
        pool.lease("nobody")
    with pytest.raises(sojourn.ModelError):
        pool.register("missing", "/no/such/model")
    assert "0 leased, 0 idle" in repr(pool)


def test_what_can_never_fit_is_refused_at_once_with_the_numbers(pool):
    with pytest.raises(sojourn.BudgetExceeded, match=r"needs 2\.0 GiB.*1\.0 GiB.*never fit"):
        pool.register("huge", models.adder, memory="2GiB")


def test_a_model_larger_than_the_pool_is_found_out_when_it_is_measured():
    with sojourn.Pool(memory="100MiB") as pool:
        pool.register("big", models.holding(150))
        with pytest.raises(sojourn.BudgetExceeded, match=r"big needs 1\d\d MiB.*100 MiB"):
            pool.lease("big")
        wait_until(lambda: pool.stats().charged_bytes == 0)


@pytest.mark.quick
def test_the_idle_make_room_and_the_leased_do_not():
    with sojourn.Pool(memory="600MiB") as pool:
        for name in ("a", "b", "c"):
            pool.register(name, models.adder, memory="300MiB")
        with pool.lease("a"):
            pool.lease("b").close()
            with pool.lease("c") as session:
                assert session.run(*SUM) == 3
                assert {copy.model for copy in pool.stats().copies} == {"a", "c"}
                with ThreadPoolExecutor(1) as threads:
                    waiting = threads.submit(pool.lease, "b", timeout=0.1)
                    with pytest.raises(sojourn.BudgetExceeded, match=r"Held: a .*leased at .*c "):
                        waiting.result()
        assert pool.stats().charged_bytes <= 600 * MiB


def test_a_model_that_is_there_can_be_pinned_and_unpinned():
    with sojourn.Pool(max_sessions=1) as pool:
        pool.register("kept", models.adder)
        pool.register("other", models.adder)
        pool.preload("kept")
        pool.pin("kept")
        with pytest.raises(sojourn.BudgetExceeded, match="waiting cannot help"):
            pool.lease("other")
        pool.pin("kept", False)
        with pool.lease("other"):
            assert [copy.model for copy in pool.stats().copies] == ["other"]
        with pytest.raises(sojourn.ModelError, match="no model named 'unknown'"):
            pool.pin("unknown")


def test_idle_sessions_leave_after_their_time_but_pinned_ones_stay():
    with sojourn.Pool(idle_seconds=0.1) as pool:
        pool.register("brief", models.adder)
        pool.register("kept", models.adder, keep_seconds=60)
        pool.register("pinned", models.adder, pinned=True)
        pool.preload()
        wait_until(lambda: len(pool.stats().copies) == 2)
        assert {copy.model for copy in pool.stats().copies} == {"kept", "pinned"}


def test_evicting_lets_idle_copies_go_now_and_leased_ones_later(pool):
    with pool.lease("sum") as session:
        pool.lease("other").close()
        assert pool.evict("other")
        assert pool.evict("sum")
        assert session.run(*SUM) == 3
        assert "1 leased, 0 idle" in repr(pool)
    wait_until(lambda: not pool.stats().copies)
    assert pool.stats().charged_bytes == 0


def test_holders_that_wait_for_each_other_are_reported_with_every_line(pool):
    pool.register("left", models.adder, exclusive=True)
    pool.register("right", models.adder, exclusive=True)
    pool.preload("left", "right")
    meet = threading.Barrier(2)

    def work(first: str, second: str) -> str:
        with pool.lease(first):
            meet.wait()
            try:
                with pool.lease(second):
                    return "served"
            except sojourn.DeadlockDetected as error:
                return str(error)

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(work, ["left", "right"], ["right", "left"]))
    told_error = next(r for r in results if r != "served")
    assert "served" in results
    assert told_error.count("test_pool.py:") == 4
    assert "left" in told_error
    assert "right" in told_error


def test_a_lease_that_was_handed_to_another_thread_is_that_threads(pool):
    pool.register("mine", models.adder, exclusive=True)
    lease = pool.lease("mine")
    may_end = threading.Event()

    def work() -> None:
        lease.run(*SUM)
        used.set()
        may_end.wait(60)
        lease.close()

    used = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(work)
        assert used.wait(60)
        threading.Timer(0.05, may_end.set).start()
        pool.lease("mine").close()  # no deadlock: it is the other thread that has it


def test_a_lease_that_outlives_its_thread_is_not_the_next_threads(pool):
    pool.register("mine", models.adder, exclusive=True)
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(pool.lease, "mine").result()
    with ThreadPoolExecutor(1) as threads:  # the system gives this thread the same ident
        waiting = threads.submit(pool.lease, "mine", timeout=60)
        wait_until(lambda: pool.stats().waiting or waiting.done())
        held.close()
        waiting.result().close()  # no deadlock: the thread that had it is another


def test_ctrl_c_while_waiting_leaves_the_queue_as_it_was(pool):
    pool.register("mine", models.adder, exclusive=True)
    held = ThreadPoolExecutor(1).submit(pool.lease, "mine").result()
    ctrl_c = (threading.get_ident(), signal.SIGINT)
    timer = threading.Timer(0.1, signal.pthread_kill, ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pool.lease("mine")
    timer.join()
    assert pool.stats().waiting == 0
    held.close()
    pool.lease("mine", timeout=5).close()


def test_a_forgotten_lease_is_given_back_with_a_warning(pool):
    lease = pool.lease("sum")
    with pytest.warns(ResourceWarning, match=r"taken at .*test_pool.py:\d+, was never returned"):
        del lease
    assert "0 leased, 1 idle" in repr(pool)


def test_a_lease_held_too_long_is_reported_with_its_holder():
    seen = threading.Event()
    overdue = []

    def listen(event):
        if event.kind == "lease.overdue":
            overdue.append(event)
            seen.set()

    stop = sojourn.events.subscribe(listen)
    with sojourn.Pool(lease_warning_seconds=0.1) as pool:
        pool.register("sum", models.adder)
        with pool.lease("sum"):
            assert seen.wait(60)
    stop()
    assert len(overdue) == 1
    assert "test_pool.py" in str(overdue[0].place)


# -- ends ---------------------------------------------------------------------------------------


@pytest.mark.quick
def test_closing_ends_everything_and_may_be_done_twice(pool):
    pool.preload()
    pool.close()
    pool.close()
    assert repr(pool) == "<Pool 0.0/1.0 GiB | 0 leased, 0 idle, 0 waiting>"
    with pytest.raises(sojourn.SessionClosed, match=r"closed at .*test_pool.py:\d+"):
        pool.lease("sum")
    assert "sojourn-pool" not in [thread.name for thread in threading.enumerate()]


def test_closing_waits_for_leases_and_refuses_whoever_waits(pool):
    pool.register("mine", models.adder, exclusive=True)
    leased, may_end = threading.Event(), threading.Event()

    def hold() -> int:
        with pool.lease("mine") as session:
            leased.set()
            assert may_end.wait(60)
            return session.run(*SUM)

    with ThreadPoolExecutor(3) as threads:
        holding = threads.submit(hold)
        assert leased.wait(60)
        waiting = threads.submit(pool.lease, "mine")
        wait_until(lambda: pool.stats().waiting == 1)
        closing = threads.submit(pool.close)
        with pytest.raises(sojourn.SessionClosed, match="the pool was closed"):
            waiting.result()
        may_end.set()
        assert holding.result() == 3
        closing.result()


def test_leases_that_are_not_given_back_in_time_expire(pool):
    leases = ThreadPoolExecutor(1).submit(lambda: [pool.lease("sum")]).result()
    mine = pool.lease("other")
    pool.close(timeout=0.05)
    for lease in (*leases, mine):
        with pytest.raises(sojourn.LeaseExpired, match="closed"):
            lease.run(*SUM)


def test_closing_does_not_wait_for_a_model_that_is_still_being_opened(pool, tmp_path):
    pool.register("slow", pool_models.slow_to_open(str(tmp_path / "never")))
    with ThreadPoolExecutor(1) as threads:
        cold = threads.submit(pool.lease, "slow")
        wait_until(lambda: pool.stats().opening == 1)
        pool.close()
        with pytest.raises(sojourn.SessionClosed):
            cold.result()


def test_a_forgotten_pool_is_closed_with_a_warning():
    pool = sojourn.Pool()
    pool.register("sum", models.adder)
    lease = pool.lease("sum")
    del pool
    gc.collect()
    assert lease.run(*SUM) == 3  # a lease keeps its pool
    lease.close()
    with pytest.warns(ResourceWarning, match=r"pool made at .*test_pool.py:\d+ was never closed"):
        del lease


def test_a_program_may_end_with_its_pool_open():
    code = """
pool = sojourn.Pool()
pool.register("sum", models.adder)
lease = pool.lease("sum")
tell(lease(a=1, b=2))
"""
    with client(code) as process:
        assert told(process) == ["3"]
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "Exception" not in errors


def test_a_fork_gets_a_clear_error_and_the_parent_goes_on():
    code = """
pool = sojourn.Pool()
pool.register("sum", models.adder)
lease = pool.lease("sum")
child = os.fork()
if child == 0:
    for attempt in (lambda: pool.lease("sum"), lambda: lease.run("output", {"a": 1, "b": 2})):
        try:
            attempt()
        except sojourn.SessionClosed as error:
            tell(error)
    with sojourn.Pool() as own:
        own.register("sum", models.adder)
        with own.lease("sum") as session:
            tell(session(a=2, b=2))
    lease.close()
    pool.close()
    os._exit(0)
os.waitpid(child, 0)
tell(lease(a=1, b=2))
lease.close()
pool.close()
tell(pool)
"""
    with client(code) as process:
        assert "make the pool after the fork" in " ".join(told(process))
        assert "fork" in told(process)
        assert told(process) == ["4"]
        assert told(process) == ["3"]
        assert told(process)[:2] == ["<Pool", "0.0"]
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_what_is_not_for_a_pool_is_refused_when_registered(pool):
    with pytest.raises(ValueError, match="inline"):
        pool.register("inline", models.adder, isolation="inline")
    with pytest.raises(ValueError, match="restart"):
        pool.register("again", models.adder, restart="from-checkpoint")
    with pytest.raises(ValueError, match="registered already"):
        pool.register("sum", models.adder)
    assert "sum" in pool
    assert "again" not in pool
