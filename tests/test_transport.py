"""What crosses between two processes arrives as it was, and what cannot be is refused."""

from __future__ import annotations

import fcntl
import os
import runpy
import socket
import struct
import subprocess
import threading
import time
from types import SimpleNamespace

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sojourn.process import callbacks
from sojourn.transport import board, cores, frames, lane, messages, server_lane, strings
from sojourn.transport.messages import Inbox, Outbox, ProtocolError
from sojourn.transport.segment import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SHRINK, Segment, SegmentError
from sojourn.values.dtypes import BY_NAME, name_of


class Wire:
    """An outbox and the inbox that reads it."""

    def __init__(self) -> None:
        self.words = memoryview(bytearray(128)).cast("Q")
        self.ours, self.theirs = socket.socketpair()
        self.out = Outbox(self.words, self.ours)
        self.inbox = Inbox(self.words, self.theirs)

    def send(self, meta: bytes, *arrays: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
        self.out.put(meta, arrays)
        meta, views = self.inbox.take()
        return meta, [view.copy() for view in views]

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
        del self.out, self.inbox  # and with them the memory


@pytest.fixture
def wire():
    wire = Wire()
    yield wire
    wire.close()


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_dtype_crosses(wire, name):
    dtype = BY_NAME[name]
    array = np.zeros((3, 2), dtype) if dtype.names else np.arange(6).reshape(3, 2).astype(dtype)
    _, [got] = wire.send(b"m", array)
    assert got.dtype == dtype
    assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.float32(3.5),
        np.array(7),
        np.zeros((0,)),
        np.zeros((3, 0, 2), np.int64),
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(5, dtype=">i4"),
        np.frombuffer(b"readonly", np.uint8),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([1.5], ml_dtypes.bfloat16),
        np.broadcast_to(np.float64(2), (4, 4)),
    ],
    ids=lambda a: f"{a.dtype}-{a.shape}",
)
def test_every_kind_of_array_crosses(wire, array):
    _, [got] = wire.send(b"m", array)
    np.testing.assert_array_equal(got, array)
    assert got.shape == array.shape
    assert got.dtype.isnative


def test_strings_cross_with_any_bytes_in_them(wire):
    array = np.array([[b"", b"\x00\xff"], ["ä".encode(), b"x" * 1000]], dtype=object)
    _, [got] = wire.send(b"m", array)
    assert got.tolist() == array.tolist()
    _, [text] = wire.send(b"m", np.array(["text", "ü"]))
    assert text.tolist() == [b"text", "ü".encode()]
    _, [scalar] = wire.send(b"m", np.array(b"one", dtype=object))
    assert scalar[()] == b"one"


def test_what_is_no_text_is_refused(wire):
    with pytest.raises(TypeError, match="not NoneType"):
        wire.send(b"m", np.array([None], dtype=object))
    with pytest.raises(TypeError, match="datetime64"):
        wire.send(b"m", np.array(["2020-01-01"], dtype="datetime64[D]"))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        hnp.arrays(
            st.sampled_from([BY_NAME[n] for n in ("float32", "int64", "bool", "complex64")]),
            hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
        ),
        max_size=4,
    )
)
def test_any_list_of_arrays_crosses(arrays):
    wire = Wire()
    for _ in range(2):  # the second time through the remembered layout
        meta, got = wire.send(b"again", *arrays)
        assert meta == b"again"
        assert [g.tobytes() for g in got] == [np.ascontiguousarray(a).tobytes() for a in arrays]
    wire.close()


def test_layouts_alternate_and_memory_grows_on_demand(wire):
    for size in (1, 10, 100_000, 3, 5_000_000, 7, 1):
        _, [a, b] = wire.send(b"m", np.arange(size), np.ones(3))
        assert a.tolist()[-1] == size - 1
        assert b.sum() == 3
        _, [c] = wire.send(b"other", np.full(4, size))
        assert c.tolist() == [size] * 4


def test_more_layouts_than_are_remembered_still_arrive(wire):
    for n in range(3 * messages.LAYOUTS_KEPT):
        meta = b"%d" % (n % 200)
        _, [got] = wire.send(meta, np.full(n % 7 + 1, n))
        assert got.tolist() == [n] * (n % 7 + 1)


def test_a_layout_is_remembered_however_often_the_others_change(wire):
    wire.send(b"steady", np.arange(3))
    for n in range(3 * messages.LAYOUTS_KEPT):
        wire.send(b"restless", np.zeros(1 + n % 2))
    _, [got] = wire.send(b"steady", np.arange(3))
    assert got.tolist() == [0, 1, 2]


def test_memory_that_is_no_longer_needed_is_given_back(wire):
    large, small = np.ones(2**25, np.uint8), np.arange(10)
    wire.send(b"small", small)
    wire.send(b"large", large)
    assert wire.out.size >= 2**25
    for _ in range(messages.PATIENCE + 1):
        _, [came] = wire.send(b"small", small)
        np.testing.assert_array_equal(came, small)
    assert wire.out.size == wire.inbox.size == messages.FIRST_SEGMENT_BYTES
    wire.send(b"large", large)
    for _ in range(messages.PATIENCE + 1):  # it came back, so this time it is kept for longer
        wire.send(b"small", small)
    assert wire.out.size >= 2**25


def test_memory_that_is_needed_now_and_then_is_kept(wire):
    large, small = np.ones(2**25, np.uint8), np.arange(10)
    for _ in range(5):
        _, [came] = wire.send(b"large", large)
        assert came.nbytes == 2**25
        size = wire.out.size
        for _ in range(messages.PATIENCE // 2):
            wire.send(b"small", small)
        wire.send(b"other", large[1:])
    assert wire.out.size == size


def test_a_gibibyte_crosses(wire):
    array = np.zeros(2**27, np.float64)
    array[-1] = 5
    wire.out.put(b"m", [array])
    _, [view] = wire.inbox.take()
    assert view.nbytes == 2**30
    assert view[-1] == 5


# -- hostile peers -------------------------------------------------------------------------------


def rewrite(wire: Wire, at: int, layout: str, *values: int) -> None:
    """Change the header that the peer is about to read."""
    struct.pack_into(layout, wire.out._buffer, at, *values)


FIRST_ARRAY = struct.calcsize("<II") + len(b"m")


@pytest.mark.parametrize(
    ("at", "layout", "values", "says"),
    [
        (0, "<I", (2**31,), "shorter than what it announces"),
        (4, "<I", (2**31,), "shorter than what it announces"),
        (4, "<I", (0,), "longer than what it announces"),
        (FIRST_ARRAY, "<H", (999,), "no dtype number 999"),
        (FIRST_ARRAY + 2, "<H", (200,), "rank of 200"),
        (FIRST_ARRAY + 8, "<Q", (2**62,), "beyond the memory"),
        (FIRST_ARRAY + 16, "<Q", (2**63,), "does not have 9223372036854775808 bytes"),
        (FIRST_ARRAY + 4, "<I", (1,), "may not attach"),
        (FIRST_ARRAY + 16, "<Q", (16,), "does not have 16 bytes"),
        (FIRST_ARRAY + 24, "<q", (-4,), "dimension of -4"),
        (FIRST_ARRAY + 24, "<qq", (2**62, 4), "does not have 32 bytes"),
    ],
)
def test_a_header_that_cannot_be_is_refused(wire, at, layout, values, says):
    wire.out.put(b"m", [np.ones((2, 2))])
    rewrite(wire, at, layout, *values)
    with pytest.raises(ProtocolError, match=says):
        wire.inbox.take()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (messages.HEADER_BYTES, 2**40),
        (messages.HEADER_BYTES, 3),
        (messages.GENERATION, 7),
    ],
)
def test_words_that_cannot_be_are_refused(wire, word, value):
    wire.out.put(b"m", [np.ones(3)])
    wire.words[word] = value
    with pytest.raises(ProtocolError):
        wire.inbox.take()


def test_a_layout_that_was_never_sent_is_refused(wire):
    wire.send(b"m", np.ones(3))
    wire.words[messages.HEADER_BYTES] = 0
    wire.words[messages.LAYOUT] = 99
    with pytest.raises(ProtocolError, match="never sent"):
        wire.inbox.take()


def test_a_peer_cannot_have_us_keep_as_much_as_it_likes(wire, monkeypatch):
    wire.out.put(b"m" * 17, [np.ones(3)])  # too long to come again, so it has no number
    wire.words[messages.LAYOUT] = 1
    with pytest.raises(ProtocolError, match="too large to be kept"):
        wire.inbox.take()
    monkeypatch.setattr(messages, "MAX_HEADER_BYTES", 10_000)
    many = [np.zeros(0)] * 100  # 3,200 bytes of header
    for _ in range(10):
        wire.send(b"other", *many)  # one layout is kept once
    wire.send(b"second", *many)
    wire.send(b"third", *many)
    with pytest.raises(ProtocolError, match="too large to be kept"):
        wire.send(b"fourth", *many)


def test_alternating_shapes_are_each_remembered(wire):
    shapes = [(n, 3) for n in range(1, 40)]
    for shape in shapes:
        wire.send(b"m", np.ones(shape))
    for shape in shapes:
        _, [got] = wire.send(b"m", np.full(shape, 2.0))
        assert wire.words[messages.HEADER_BYTES] == 0, "its layout was written again"
        assert got.shape == shape
        assert got.min() == 2


def test_a_message_with_very_many_arrays_is_not_remembered(wire):
    many = [np.zeros(0)] * 20_000
    for _ in range(2):
        _, got = wire.send(b"m", *many)
        assert len(got) == len(many)
        assert wire.words[messages.HEADER_BYTES] > 0


def test_a_segment_larger_than_what_a_peer_may_send_is_refused():
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 2**40)  # costs it nothing
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
        with pytest.raises(SegmentError, match=r"has 1024 GiB, and 1\.0 GiB are the most"):
            Segment.receive(fd, most_bytes=2**30)
    finally:
        os.close(fd)


def test_more_strings_than_the_peer_can_have_had_are_refused(wire):
    wire.inbox = Inbox(wire.words, wire.theirs, most_bytes=2**20)
    fits = 2**20 // 24
    _, [got] = wire.send(b"m", np.full(fits, b"", object))
    assert got.size == fits
    with pytest.raises(ProtocolError, match="strings are more than"):
        wire.send(b"m", np.full(fits // 2 + 1, b"", object), np.full(fits // 2 + 1, b"", object))
    _, [got] = wire.send(b"m", np.array([b"x" * 500_000], object))  # one long one is no matter
    assert len(got[0]) == 500_000


def test_what_is_changed_after_it_was_checked_changes_nothing(wire):
    wire.out.put(b"m", [np.ones((2, 2))])
    _, [view] = wire.inbox.take()
    rewrite(wire, FIRST_ARRAY + 24, "<qq", 2**40, 2**40)
    assert view.shape == (2, 2)
    assert view.sum() == 4
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 3


def test_memory_that_the_peer_could_shrink_is_refused():
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    with pytest.raises(SegmentError, match="not sealed against shrinking"):
        Segment.receive(fd)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_GROW)
    with pytest.raises(SegmentError, match="not sealed against shrinking"):
        Segment.receive(fd)
    os.close(fd)


def test_a_descriptor_that_is_no_memory_is_refused():
    fd = os.open("/dev/null", os.O_RDWR)
    with pytest.raises(SegmentError):
        Segment.receive(fd)
    os.close(fd)


def test_our_own_memory_cannot_be_shrunk():
    _, fd = Segment.create(10_000)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(fd, 0)
    os.close(fd)


def test_memory_that_was_announced_but_never_sent_is_not_waited_for(wire):
    wire.words[messages.GENERATION] = 1
    with pytest.raises(ProtocolError, match="did not come"):
        wire.inbox.take()


def test_descriptors_that_were_not_announced_are_closed(wire):
    wire.out.put(b"m", [np.ones(3)])
    wire.theirs.recv(1)  # take the announced one away
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    socket.send_fds(wire.ours, [b"s"], fds)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ProtocolError, match="one descriptor"):
        wire.inbox.take()
    assert len(os.listdir("/proc/self/fd")) == before
    for fd in fds:
        os.close(fd)


def test_descriptors_that_came_are_not_inherited_by_programs_we_start():
    ours, theirs = frames.pair()
    with ours, theirs, open(os.devnull) as some:
        frames.send(ours, 1, [some.fileno()])
        _, [fd] = frames.receive(theirs, msgspec.msgpack.Decoder(int))
        assert not os.get_inheritable(fd)
        os.close(fd)


@given(st.binary(max_size=80), st.lists(st.integers(0, 4), max_size=3))
def test_any_bytes_as_strings_are_refused_or_read_never_worse(block, shape):
    try:
        array = strings.unpack(block, tuple(shape))
    except ValueError:
        return
    assert array.shape == tuple(shape)


def test_names_of_dtypes():
    assert name_of(np.dtype(">f4")) == "float32"
    assert name_of(np.dtype("U3")) == "string"
    assert name_of(np.dtype("datetime64[s]")) is None


# -- lanes -------------------------------------------------------------------------------------


class Lanes:
    """Both ends of a lane in this process, and another process that counts as the peer."""

    def __init__(self) -> None:
        memory, fd = Segment.create(board.BYTES)
        os.close(fd)
        rows = board.rows(memory, 0)
        ours, theirs = socket.socketpair()
        bells = (lane.new_bell(), lane.new_bell())
        self.peer = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self.pidfd = os.pidfd_open(self.peer.pid)
        self.caller = lane.CallerLane(0, rows, ours, bells, self.pidfd)
        self.server = server_lane.ServerLane(rows, theirs, (os.dup(bells[0]), os.dup(bells[1])))

    def step(self) -> None:
        """Send a request, have it answered, and take the answer, all on this thread."""
        self.caller.send(b"m", [])
        self.server.answer(0, self.server.wait()[0], [])
        self.caller.wait()
        self.caller.take()

    def end_peer(self) -> None:
        with self.peer:
            self.peer.kill()

    def close(self) -> None:
        self.end_peer()
        os.close(self.pidfd)
        self.caller.close()
        self.server.close()
        del self.caller, self.server  # and with them the memory


@pytest.fixture
def lanes():
    lanes = Lanes()
    yield lanes
    lanes.close()


def test_a_bell_that_others_keep_ringing_does_not_hide_that_the_peer_has_ended(lanes):
    lanes.end_peer()
    stop = threading.Event()

    def ring() -> None:
        while not stop.is_set():
            lane.ring(lanes.server._their_bell)

    ringing = threading.Thread(target=ring)
    ringing.start()
    try:
        with pytest.raises(lane.PeerGone):
            lanes.caller.exchange(b"m", [], deadline=time.monotonic() + 60)
    finally:
        stop.set()
        ringing.join()


def test_the_last_answer_of_a_peer_that_has_ended_counts(lanes):
    lanes.end_peer()

    def answer() -> None:
        lanes.server.wait()
        lanes.server.answer(0, b"done", [])

    answering = threading.Thread(target=answer)
    answering.start()
    lanes.caller.outbox.put(b"m", [])
    lanes.caller._mine[messages.SEQUENCE] = 1
    lane.ring(lanes.server._my_bell)
    answering.join()
    lanes.caller._block(1, None, None)
    assert lanes.caller.inbox.take()[0] == b"done"


@pytest.mark.parametrize("seconds", [3e6, 1e300])
def test_a_deadline_may_be_further_away_than_the_system_can_wait_at_once(lanes, seconds):
    lanes.caller.send(b"m", [])
    lanes.server.answer(0, lanes.server.wait()[0], [])
    lanes.caller.wait(may_spin=False, deadline=time.monotonic() + seconds)
    assert lanes.caller.take()[1] == b"m"


def test_what_a_worker_may_not_send_costs_it_no_lane(lanes):
    asking = callbacks.Asking()
    asking.add(lanes.caller)
    with pytest.raises(TypeError, match="cannot be sent"):
        asking.ask(b"m", [np.zeros(1, "M8[s]")])
    answering = threading.Thread(target=lambda: lanes.server.answer(0, lanes.server.wait()[0], []))
    answering.start()
    assert asking.ask(b"m", []) == (0, b"m", [])
    answering.join()


# -- cores -------------------------------------------------------------------------------------


@pytest.mark.skipif(board.CORES < 2, reason="there is no other core")
def test_a_server_leaves_the_core_of_its_caller_and_may_still_use_every_core(lanes):
    allowed = os.sched_getaffinity(0)
    for _ in range(100):  # the kernel may move this thread, which is both of them, in between
        lanes.step()
        row = lanes.caller._mine[lane.CORE], lanes.caller._theirs[lane.CORE]
        if row[0] != row[1]:
            break
    assert row[0] != row[1]
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize("chosen", [{0, 1, 2, 3}, {0, 1}], ids=["all", "some"])
def test_a_server_that_has_moved_uses_what_cores_its_container_is_given_later(monkeypatch, chosen):
    asked = [chosen]  # Linux remembers it for each thread, beside what its container may use
    usable = {0, 1, 2}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: asked[-1] & usable)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, wanted: asked.append({*wanted}))
    assert cores.leave_core(1)
    assert 1 not in asked[1]
    usable = {0, 1, 2, 3}
    assert os.sched_getaffinity(0) == chosen


def test_a_server_that_is_brought_back_stays_for_a_while(lanes, monkeypatch):
    moves = []
    for end in (lane, server_lane):
        monkeypatch.setattr(end, "current_core", lambda: 1)
    monkeypatch.setattr(server_lane, "leave_core", lambda core: moves.append(core) or True)
    for _ in range(20):
        lanes.step()
    assert moves == [1] * cores.MOVES_IN_A_ROW
    time.sleep(2 * cores.STAY_SECONDS)
    lanes.step()
    assert len(moves) == cores.MOVES_IN_A_ROW + 1


def test_a_caller_does_not_look_for_the_answer_of_a_server_on_its_own_core(lanes, monkeypatch):
    monkeypatch.setattr(server_lane, "leave_core", lambda core: False)  # a sandbox may refuse
    for core, looks in ((1, False), (2, True)):
        monkeypatch.setattr(lane, "current_core", lambda: 1)
        lanes.caller.send(b"m", [])
        monkeypatch.setattr(server_lane, "current_core", lambda core=core: core)
        lanes.server.answer(0, lanes.server.wait()[0], [])
        blocked: list[object] = []
        monkeypatch.setattr(lanes.caller, "_block", lambda *asked, all=blocked: all.append(asked))
        lanes.caller.wait()
        lanes.caller.take()
        assert bool(blocked) is not looks


def test_where_the_system_does_not_say_each_process_has_a_core_of_its_own(monkeypatch):
    silent = SimpleNamespace(sched_getcpu=lambda: -1)  # as in a sandbox that refuses it
    monkeypatch.setattr("ctypes.PyDLL", lambda name: silent)
    known = runpy.run_path(cores.__file__)
    assert known["current_core"]() == 2**32 + os.getpid()
