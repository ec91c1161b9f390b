"""Messages that come in pieces or not at all, and system calls that are interrupted."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

import models
import sojourn
from faults.tools import Background
from sojourn.process.protocol import Forked, Refused, from_zygote
from sojourn.transport import frames

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    one, other = frames.pair()
    with one, other:
        yield one, other


def test_a_half_written_message_is_no_message(ends):
    ours, theirs = ends
    whole = msgspec.msgpack.encode(Forked(3, 4711))
    for size in range(1, len(whole)):
        ours.send(whole[:size])
        with pytest.raises(msgspec.DecodeError):
            frames.receive(theirs, from_zygote)
    frames.send(ours, Forked(3, 4711))  # boundaries are kept: the next one is whole
    assert frames.receive(theirs, from_zygote) == (Forked(3, 4711), [])


def test_a_message_longer_than_the_room_for_it_is_refused_with_its_descriptors(ends):
    ours, theirs = ends
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(ours, [b"x" * 100_000], [0, 0, 0])
    with pytest.raises(ValueError, match="truncated"):
        frames.receive(theirs, from_zygote)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_large_message_arrives_whole_with_its_descriptors(ends):
    ours, theirs = ends
    reason = "x" * 3_000_000
    frames.send(ours, Refused(1, reason), [0])
    message, fds = frames.receive(theirs, from_zygote)
    assert message == Refused(1, reason)
    for fd in fds:
        os.close(fd)
    assert len(fds) == 1


@pytest.mark.parametrize("size", [None, 0, 2**40], ids=["no-memory", "empty", "huge"])
def test_a_large_message_that_cannot_be_is_refused(ends, size):
    ours, theirs = ends
    if size is None:
        ours.send(b"\xc1")
    else:
        fd = os.memfd_create("hostile")
        os.ftruncate(fd, size)
        socket.send_fds(ours, [b"\xc1"], [fd])
        os.close(fd)
    with pytest.raises((ValueError, msgspec.DecodeError)):
        frames.receive(theirs, from_zygote)


def test_a_peer_that_says_nothing_is_waited_for_no_longer_than_asked(ends):
    with pytest.raises(TimeoutError):
        frames.receive(ends[1], from_zygote, 0.05)
    ends[0].close()
    with pytest.raises(EOFError):
        frames.receive(ends[1], from_zygote, 5.0)


def test_system_calls_that_are_interrupted_again_and_again_still_do_their_work():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        with sojourn.open(models.sleeper) as session:
            for n in range(20):
                assert session.run("output", {"seconds": n / 1000}) == n / 1000
            big = np.ones(500_000)
            with sojourn.open(models.adder) as other:
                assert other.run("output", {"a": big, "b": big}).sum() == 1_000_000
        assert session.receipt.clean
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(heard) > 10


def test_a_copy_that_is_evicted_while_it_runs_finishes_and_the_next_lease_opens_another():
    with sojourn.Pool(memory="1GiB") as pool:
        pool.register("slow", models.sleeper)
        pool.register("sum", models.adder)

        enough = threading.Event()

        def work(name: str, feeds: dict[str, float], result: float) -> int:
            count = 0
            while not enough.is_set() or not count:
                with pool.lease(name, timeout=60) as lease:
                    for _ in range(3):
                        assert lease.run("output", feeds) == result
                        count += 1
            return count

        workers = [
            Background(work, "slow", {"seconds": 0.002}, 0.002),
            Background(work, "sum", {"a": 1, "b": 2}, 3),
            Background(work, "sum", {"a": 2, "b": 2}, 4),
        ]
        until = time.monotonic() + 120
        while any(worker.thread.is_alive() for worker in workers):
            if time.monotonic() > until or pool.stats().counters["opens"] > 8:
                enough.set()
            pool.evict("sum")
            pool.evict("slow")
            time.sleep(0.02)
        assert all(worker.result() > 0 for worker in workers)


def test_a_copy_whose_state_is_parked_while_others_use_it_loses_no_step():
    with sojourn.Pool(memory="1GiB") as pool:
        pool.register("count", models.counter)
        enough = threading.Event()
        until = time.monotonic() + 120

        def work() -> int:
            acknowledged = 0
            while not enough.is_set():
                with pool.lease("count", timeout=60) as lease:
                    for _ in range(3):
                        lease.run("total", {"amount": 1.0})
                        acknowledged += 1
            return acknowledged

        workers = [Background(work) for _ in range(3)]
        while pool.stats().counters["parks"] < 5 and time.monotonic() < until:
            pool.evict("count", timeout=60)
            time.sleep(0.01)
        enough.set()
        acknowledged = sum(worker.result() for worker in workers)
        assert pool.stats().counters["parks"] >= 5
        with pool.lease("count", timeout=60) as lease:
            assert lease.run("value") == acknowledged
