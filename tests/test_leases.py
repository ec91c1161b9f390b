"""Sessions that are lent: used by others, closed by nobody but their owner."""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import threading
import time
import typing

import pytest

import models
import sojourn

pytestmark = pytest.mark.usefixtures("zygote")

SUM = ("output", {"a": 1, "b": 2})


@pytest.fixture
def session():
    with sojourn.open(models.adder, name="sum") as session:
        yield session


@pytest.mark.quick
def test_a_borrower_can_run_and_giving_back_does_not_close(session):
    with session.lend() as lease:
        assert lease.run(*SUM) == 3
        assert lease(a=2, b=2) == 4
        assert lease.runs == 2
        assert "test_leases.py" in str(lease.holder)
        assert lease.signature == session.signature
    assert session.run(*SUM) == 3
    assert "ended" in repr(lease)


def test_a_lease_that_was_given_back_is_refused(session):
    lease = session.lend()
    lease.close()
    lease.close()
    with pytest.raises(sojourn.LeaseExpired, match=r"taken at .*test_leases.py.* given back"):
        lease.run(*SUM)


@pytest.mark.quick
def test_the_owners_close_ends_every_lease_and_names_its_line():
    session = sojourn.open(models.adder)
    lease = session.lend()
    session.close()
    with pytest.raises(sojourn.LeaseExpired, match=r"closed by its owner at .*test_leases.py:\d+"):
        lease.run(*SUM)
    assert not lease.is_active


def test_the_owners_close_waits_for_a_borrowers_step():
    session = sojourn.open(models.sleeper)
    lease = session.lend()
    results = []
    borrower = threading.Thread(
        target=lambda: results.append(lease.run("output", {"seconds": 0.3}))
    )
    borrower.start()
    while session.state is not sojourn.State.RUNNING:
        time.sleep(0.005)
    session.close()
    borrower.join()
    assert results == [0.3]


def test_a_borrowers_step_is_cut_off_after_the_timeout_with_an_error():
    session = sojourn.open(models.sleeper)
    lease = session.lend()
    errors = []

    def borrow():
        try:
            lease.run("output", {"seconds": 60})
        except sojourn.LeaseExpired as error:
            errors.append(str(error))  # not itself: its frames refer to this list

    borrower = threading.Thread(target=borrow)
    borrower.start()
    while session.state is not sojourn.State.RUNNING:
        time.sleep(0.005)
    session.close(timeout=0.1)
    borrower.join()
    assert "closed by its owner" in errors[0]


def test_a_lease_ends_by_itself_after_its_time(session):
    lease = session.lend(max_seconds=0.05)
    assert lease.run(*SUM) == 3
    time.sleep(0.06)
    with pytest.raises(sojourn.LeaseExpired, match=r"its 0.05 s are over"):
        lease.run(*SUM)


@pytest.mark.parametrize(
    "ask",
    [
        lambda lease: not lease.is_active,
        lambda lease: repr(lease).startswith("<Lease of 'sum' ended |"),
    ],
    ids=["is_active", "repr"],
)
def test_a_lease_whose_time_is_over_says_so_to_the_first_that_asks(session, ask):
    told: list[sojourn.events.Event] = []
    stop = sojourn.events.subscribe(told.append)
    lease = session.lend(max_seconds=0)
    time.sleep(0.001)
    assert ask(lease)
    assert ask(lease)
    stop()
    assert [e.detail["why"] for e in told if e.kind == "lease.ended"] == ["its 0 s are over"]


def test_a_lease_whose_time_is_over_is_not_called_forgotten(session):
    told: list[sojourn.events.Event] = []
    stop = sojourn.events.subscribe(told.append)
    lease = session.lend(max_seconds=0)
    time.sleep(0.001)
    del lease  # a warning would be an error
    gc.collect()
    stop()
    assert [e.detail["why"] for e in told if e.kind == "lease.ended"] == ["its 0 s are over"]


def test_a_forgotten_lease_is_given_back_with_a_warning(session):
    lease = session.lend()
    with pytest.warns(ResourceWarning, match=r"taken at .*test_leases.py:\d+, was never returned"):
        del lease
    gc.collect()
    assert session._stay.leases == set()


def test_a_lease_held_too_long_is_reported_with_its_holder(session):
    seen = threading.Event()
    overdue = []

    def listen(event):
        if event.kind == "lease.overdue":
            overdue.append(event)
            seen.set()

    stop = sojourn.events.subscribe(listen)
    with session.lend(lease_warning_seconds=0.05):
        assert seen.wait(60)
    stop()
    assert "test_leases.py" in str(overdue[0].place)


def test_a_lease_may_be_held_for_longer_than_the_system_can_wait(session, monkeypatch):
    failed = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    with session.lend(lease_warning_seconds=1e12) as lease:
        timer = lease._terms._timer
        timer.join(0.05)  # one that cannot wait that long ends at once
        assert timer.is_alive()
    timer.join()
    assert not failed


def test_a_closed_session_cannot_be_lent():
    session = sojourn.open(models.adder)
    session.close()
    with pytest.raises(sojourn.SessionClosed):
        session.lend()


def test_the_default_belongs_to_the_block_the_thread_and_the_task(session):
    assert sojourn.current() is None
    with session.as_default():
        assert sojourn.current() is session
        in_thread = []
        thread = threading.Thread(target=lambda: in_thread.append(sojourn.current()))
        thread.start()
        thread.join()
        assert in_thread == [None]
        with session.lend() as lease, lease.as_default():
            assert sojourn.current() is lease
        assert sojourn.current() is session

        async def tasks():
            async def other():
                with sojourn.open(models.adder) as own, own.as_default():
                    await asyncio.sleep(0.01)
                    return sojourn.current() is own

            async def same():
                await asyncio.sleep(0.005)
                return sojourn.current() is session

            return await asyncio.gather(other(), same())

        assert asyncio.run(tasks()) == [True, True]
    assert sojourn.current() is None


def test_what_belongs_to_this_process_cannot_be_pickled_and_says_what_to_send(zygote):
    with sojourn.open(models.adder) as session, sojourn.Pool(memory="1GiB") as pool:
        for thing in (session, session.lend()):
            with pytest.raises(TypeError, match="open a session there"):
                pickle.dumps(thing)
        with pytest.raises(TypeError, match="one pool per process"):
            pickle.dumps(pool)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="overloads cannot be looked at")
@pytest.mark.parametrize("handle", [sojourn.Session, sojourn.Lease, sojourn.cluster.RemoteLease])
@pytest.mark.parametrize("method", ["run", "arun"])
def test_type_checkers_know_what_a_step_returns(handle, method):
    overloads = typing.get_overloads(getattr(handle, method))
    kinds = [str(one.__annotations__["return"]) for one in overloads]
    if method == "arun":
        kinds = [kind.removeprefix("Coroutine[Any, Any, ").removesuffix("]") for kind in kinds]
    assert kinds == ["dict[str, Any]", "Any", "list[Any]"]
