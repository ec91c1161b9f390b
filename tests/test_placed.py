"""Arrays that lie outside their message: placed by the caller, or handed over as results."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import socket
import sys
from collections.abc import Callable

import numpy as np
import pytest

import sojourn
from models import softmax_regression
from sojourn.testing import snapshots
from sojourn.transport import attachments, board, messages, placed
from sojourn.transport.headers import ProtocolError
from sojourn.transport.messages import Inbox, Outbox
from sojourn.values.rows import Rows

LARGE = 300_000  # floats: enough to be attached and handed over


def held_bytes() -> int:
    return snapshots.held_bytes([os.getpid()])


# -- the array itself ------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_placed_array_is_an_ordinary_array():
    array = sojourn.empty((3, 4), "int64")
    assert type(array) is np.ndarray
    assert array.shape == (3, 4)
    assert array.dtype == np.int64
    assert not array.any()
    array += 5
    assert pickle.loads(pickle.dumps(array)).sum() == 60
    like = sojourn.empty_like(np.ones((2, 2), np.float16))
    assert (like.shape, like.dtype) == ((2, 2), np.float16)
    assert sojourn.empty(7).shape == (7,)
    assert sojourn.empty((0, 3)).shape == (0, 3)


def test_what_cannot_be_placed_is_refused():
    with pytest.raises(TypeError, match="object"):
        sojourn.empty(3, object)
    with pytest.raises(ValueError, match="must not be negative"):
        sojourn.empty((2, -1))


def test_small_arrays_share_a_file_and_never_memory():
    arrays = [sojourn.empty(1000) for _ in range(3000)]  # more than fits in one file
    for number, array in enumerate(arrays):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(arrays))
    files = {id(placed.file_of(array)) for array in arrays}
    assert 1 < len(files) < 10


@pytest.mark.quick
def test_its_memory_and_descriptor_come_back_with_the_last_part_of_it():
    gc.collect()
    descriptors, before = len(os.listdir("/proc/self/fd")), held_bytes()
    array = sojourn.empty((64, 2**20), np.uint8)
    array[...] = 1
    part = array[3:5].reshape(-1)
    del array
    assert len(os.listdir("/proc/self/fd")) == descriptors + 1
    assert part.all()
    del part
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert held_bytes() < before + 32 * 2**20


def forked(check: Callable[[], bool]) -> Callable[[], bool]:
    """A child that checks something when it is called."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(reading, 1)
            os._exit(not check())
        finally:
            os._exit(2)

    def call() -> bool:
        os.write(writing, b".")
        os.close(writing)
        os.close(reading)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    return call


def test_a_fork_keeps_a_placed_array_that_its_parent_lets_go_of():
    held = [sojourn.empty(LARGE)]
    held[0][...] = 3
    is_unchanged = forked(lambda: (held[0] == 3).all())
    held.clear()
    assert is_unchanged()


def test_a_fork_does_not_give_back_what_its_parent_uses():
    array = sojourn.empty(LARGE)
    array[...] = 3
    child = os.fork()
    if child == 0:
        del array
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == 3).all()


# -- on their way ----------------------------------------------------------------------------------


class Wire:
    """An outbox with placed arrays and the inbox of the worker that reads them."""

    def __init__(self) -> None:
        self.words = memoryview(bytearray(128)).cast("Q")
        self.ours, self.theirs = socket.socketpair()
        self.out = Outbox(self.words, self.ours)
        self.inbox = Inbox(self.words, self.theirs, attached=attachments.MappedFiles())
        self.placed = attachments.PlacedFiles()

    def send(self, *arrays: np.ndarray) -> tuple[bool, list[np.ndarray]]:
        is_attached = self.out.put(b"m", arrays, adoptable=True, attacher=self.placed)
        return is_attached, self.inbox.take()[1]


@pytest.fixture
def wire():
    wire = Wire()
    yield wire
    wire.ours.close()
    wire.theirs.close()
    wire.inbox.close()
    del wire.out, wire.inbox


def test_only_the_place_of_a_placed_array_crosses(wire):
    array = sojourn.empty((3, LARGE))
    array[...] = np.arange(3)[:, None]
    for part in (array, array[1:], array.reshape(-1)[5:]):
        is_attached, [view] = wire.send(part)
        assert is_attached
        assert view.tobytes() == part.tobytes()
        assert view.ctypes.data % 64 == part.ctypes.data % 64
    is_attached, [view] = wire.send(array)
    array[0, 0] = 77
    assert view[0, 0] == 77, "it was copied"
    del view


def test_what_is_no_whole_piece_of_it_is_copied(wire):
    array = sojourn.empty((LARGE, 3))
    for part in (array[:, 1], array[::2], array.T, np.array(array), sojourn.empty(10)):
        is_attached, [view] = wire.send(part)
        assert not is_attached
        assert np.array_equal(view, part)
        del view


def test_more_files_than_are_remembered_take_turns(wire):
    arrays = [sojourn.empty(LARGE) for _ in range(40)]
    for _ in range(2):
        for number, array in enumerate(arrays):
            array[...] = number
            _, [view] = wire.send(array)
            assert (view == number).all()
            del view


def test_more_files_in_one_message_than_are_remembered_are_never_mixed_up(wire):
    arrays = [sojourn.empty(LARGE) for _ in range(40)]
    for number, array in enumerate(arrays):
        array[...] = number
    for _ in range(2):
        _, views = wire.send(*arrays)
        assert [view[0] for view in views] == [array[0] for array in arrays]
        del views
        arrays.reverse()


def test_a_file_at_the_address_of_an_earlier_one_is_never_mixed_up(wire, monkeypatch):
    monkeypatch.setattr(attachments, "id", lambda file: file.size, raising=False)
    sizes = range(LARGE, LARGE + 17 * 1024, 1024)  # whole pages apart, so that no two are alike
    arrays = [sojourn.empty(size) for size in sizes[:16]]  # as many as are remembered
    for array in arrays:
        wire.send(array)
    del arrays[0]
    first, second = sojourn.empty(sizes[0]), sojourn.empty(sizes[16])
    first[...], second[...] = 1, 2
    _, views = wire.send(first, second)
    assert [view[0] for view in views] == [1, 2]
    del views


def test_a_file_that_could_not_be_handed_over_takes_nobodys_number(wire, monkeypatch):
    arrays = [sojourn.empty(LARGE) for _ in range(17)]
    for number, array in enumerate(arrays):
        array[...] = number
    *known, new = arrays
    for array in known:
        wire.send(array)

    def fail(*_: object) -> None:
        raise OSError(errno.ETOOMANYREFS, "too many descriptors on their way")

    with monkeypatch.context() as patch:
        patch.setattr(wire.out, "_hand_over", fail)
        with pytest.raises(OSError, match="on their way"):
            wire.send(new)
    _, views = wire.send(new, *known[1:])
    assert [view[0] for view in views] == [16, *range(1, 16)]
    del views


def test_a_file_that_was_never_attached_is_refused(wire):
    wire.send(sojourn.empty(LARGE))
    described = messages.headers.parse(bytes(wire.out._buffer[: wire.words[2]]))[1][0]
    assert described.attached == 1
    other = attachments.MappedFiles()
    with pytest.raises(ProtocolError, match="no attached file 1"):
        other.view(described, 0)
    with pytest.raises(ProtocolError, match="no attached file 99"):
        other.receive(99, 0)


def test_rows_of_several_arrays_are_written_as_one(wire):
    parts = [np.full((n, 5), n, np.float32) for n in (1, 4, 2)]
    _, [view] = wire.send(Rows(parts))
    assert np.array_equal(view, np.concatenate(parts))
    _, [view] = wire.send(Rows(parts[::-1]))
    assert np.array_equal(view, np.concatenate(parts[::-1]))
    del view


def test_rows_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="one dtype"):
        Rows([np.zeros((1, 2)), np.zeros((1, 3))])
    with pytest.raises(ValueError, match="at least one"):
        Rows([])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("part", "says"),
    [
        (np.ma.array([1.0, 99.0], mask=[0, 1]), "what is masked would be sent"),
        ([np.ma.array([1.0, 99.0], mask=[0, 1])], "what is masked would be sent"),
        (["a", 1], "got the element 1"),
    ],
)
def test_rows_that_numpy_would_damage_are_refused(part, says):
    with pytest.raises(ValueError, match=says):
        Rows([part])


@pytest.mark.quick
def test_rows_of_lists_keep_all_of_their_bytes():
    assert Rows([[b"a\0"], ["b\0"]]).joined().tolist() == [b"a\0", b"b\0"]


# -- results ------------------------------------------------------------------------------------


class Results:
    """The worker's end that hands results over and the caller's that takes them."""

    def __init__(self) -> None:
        self.callers = memoryview(bytearray(128)).cast("Q")
        self.words = memoryview(bytearray(128)).cast("Q")
        self.ours, self.theirs = socket.socketpair()
        self.out = Outbox(self.words, self.ours)
        self.files = attachments.ResultFiles(self.callers)
        self.taken = attachments.HandedOverFiles(self.callers)
        self.inbox = Inbox(self.words, self.theirs, attached=self.taken)

    def answer(self, *arrays: np.ndarray) -> list[np.ndarray]:
        self.files.sequence += 1
        self.out.put(b"m", arrays, attacher=self.files)
        self.words[messages.SEQUENCE] = self.files.sequence
        self.files.tidy()
        return self.inbox.take_owned()[1]

    def segments(self) -> int:
        return sum(file is not None for file in self.files._files)


@pytest.fixture
def results():
    results = Results()
    yield results
    results.ours.close()
    results.theirs.close()
    results.inbox.close()
    del results.out, results.inbox, results.files, results.taken


def test_a_large_result_is_the_callers_own(results):
    source = np.arange(LARGE, dtype=np.float32)
    [result] = results.answer(source)
    assert np.array_equal(result, source)
    assert result.flags.writeable
    result += 1  # seen by nobody else
    [again] = results.answer(source)
    assert np.array_equal(again, source)
    assert result[0] == 1


@pytest.mark.quick
def test_kept_results_are_never_written_to_again(results):
    kept = [results.answer(np.full(LARGE, n, np.float32))[0] for n in range(50)]
    assert all((result == n).all() for n, result in enumerate(kept))
    assert results.segments() <= board.RESULT_FILES


def test_memory_of_results_that_were_let_go_of_is_used_again(results):
    descriptors = len(os.listdir("/proc/self/fd"))
    before = held_bytes()
    for n in range(200):
        [result] = results.answer(np.full(4 * LARGE, n, np.float32))
        assert result[-1] == n
        del result
    assert results.segments() <= board.RESULT_FILES
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2 * board.RESULT_FILES
    assert held_bytes() < before + 64 * 2**20


def test_several_large_results_of_one_answer_do_not_share_memory(results):
    arrays = [np.full(LARGE, n, np.float32) for n in range(7)]  # more than there are files
    got = results.answer(*arrays)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, got, strict=True))


def test_a_file_of_results_that_is_not_needed_is_given_up(results):
    results.answer(np.zeros(LARGE, np.float32))
    for _ in range(200):
        results.answer(np.zeros(3))
    assert results.segments() == 0


def test_a_fork_keeps_a_result_that_its_parent_lets_go_of(results):
    held = results.answer(np.full(LARGE, 1, np.float32))
    is_unchanged = forked(lambda: (held[0] == 1).all())
    held.clear()
    for _ in range(2 * board.RESULT_FILES):  # each place is used again
        results.answer(np.full(LARGE, 2, np.float32))
    assert is_unchanged()


def test_results_that_came_after_a_fork_are_used_again(results):
    assert forked(lambda: True)()
    results.answer(np.zeros(LARGE, np.float32))
    handed_over = results.out._handed_over
    for _ in range(20):
        results.answer(np.zeros(LARGE, np.float32))
    assert results.out._handed_over == handed_over


# -- sessions -----------------------------------------------------------------------------------


@pytest.fixture
def session(zygote):
    with sojourn.open(softmax_regression) as session:
        yield session


def test_placed_and_ordinary_arrays_give_the_same(session):
    rows = 4096
    array = session.empty("x", rows)
    assert array.shape == (rows, 784)
    array[...] = np.random.default_rng(1).normal(size=array.shape)
    ordinary = np.array(array)
    expected = session.run("y", {"x": ordinary})
    assert np.array_equal(session.run("y", {"x": array}), expected)
    assert np.array_equal(
        session.run("y", {"x": array[10:2000]}), session.run("y", {"x": ordinary[10:2000]})
    )
    parts = sojourn.Rows([ordinary[:7], ordinary[7:]])
    assert np.array_equal(session.run("y", {"x": parts}), expected)


def test_an_array_that_the_signature_does_not_know_is_refused(session):
    with pytest.raises(sojourn.InputError, match="has no input 'nope'"):
        session.empty("nope", 3)
    with pytest.raises(sojourn.InputError, match="1 unknown dimension"):
        session.empty("x")


def test_a_variable_never_lives_in_a_placed_array(zygote):
    def build():
        import tensorflow as tf

        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [LARGE], name="x")
        kept = v1.get_variable("kept", [LARGE], use_resource=True)
        return {"x": x}, {"set": kept.assign(x), "kept": kept.read_value()}

    array = sojourn.empty(LARGE)
    array[...] = 1
    with sojourn.open(build) as session:
        session.run("set", {"x": array})
        array[...] = 2
        assert (session.run("kept") == 1).all()


def memory_files() -> dict[tuple[int, int], int]:
    """The bytes of each memory file that this process holds a descriptor of."""
    sizes = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            if os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:sojourn"):
                stat = os.fstat(int(fd))
                sizes[stat.st_dev, stat.st_ino] = stat.st_size
    return sizes


def test_memory_of_a_result_that_the_worker_has_given_up_is_kept_by_nobody(zygote):
    with sojourn.open(lambda: lambda n: np.ones(int(n))) as session:
        for is_kept in (False, True):  # while it is given up
            before = memory_files()
            result = session.run("output", {"n": 2**20})
            [large] = [
                file for file, size in memory_files().items() - before.items() if size > 2**20
            ]
            if not is_kept:
                del result
            for _ in range(70):
                session.run("output", {"n": 10})
            assert large not in memory_files()
        assert result.all()
        del result
        again = session.run("output", {"n": 2**20})
    assert again.all()


def test_results_outlive_their_session(zygote):
    with sojourn.open(lambda: lambda x: x * 2) as session:
        result = session.run("output", {"x": np.ones(LARGE, np.float32)})
    assert (result == 2).all()
    result[0] = 9
    assert sys.getrefcount(result) == 2


@pytest.mark.parametrize("size", [10**14, 10**18, 10**19, 10**30])
def test_an_array_that_no_memory_can_hold_is_refused_as_numpy_does(size):
    with pytest.raises(MemoryError, match=rf"shape \({size},\) and dtype float32 takes .*B, more"):
        sojourn.empty(size)
