"""System calls that fail, one after the other until none is left: memory, descriptors, the disk."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from sojourn.session import checkpoints, folders
from sojourn.testing import leftovers, take_snapshot
from sojourn.testing.injection import Refusals
from sojourn.transport import frames

ROUNDS = 200  # more than there are calls of a kind


@pytest.fixture
def refusals(number: int) -> Iterator[Refusals]:
    with Refusals(lambda: OSError(number, os.strerror(number))) as refusals:
        yield refusals


@pytest.mark.parametrize(
    ("owner", "names", "number"),
    [
        (os, ["memfd_create"], errno.EMFILE),
        (os, ["memfd_create", "ftruncate"], errno.ENOMEM),
        (mmap, ["mmap"], errno.ENOMEM),
        (os, ["eventfd", "pidfd_open"], errno.EMFILE),
        (socket, ["socketpair"], errno.ENFILE),
        (socket, ["send_fds"], errno.ENOBUFS),
        (frames, ["receive_fds"], errno.ENOBUFS),
        (fcntl, ["fcntl"], errno.EPERM),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_whatever_is_refused_while_opening_and_running_leaves_nothing(
    refusals, owner, names, number
):
    for name in names:
        refusals.cover(owner, name)
    before = take_snapshot()
    refused = 0
    for n in range(1, ROUNDS):
        refusals.at(n)
        try:
            with sojourn.open(models.adder) as session:
                for size in (1, 100_000):  # the second needs more memory
                    ones = np.ones(size)
                    assert session.run("output", {"a": ones, "b": ones}).sum() == 2 * size
        except OSError as error:
            # As it is: Python has the right words.
            assert error.errno == number  # noqa: PT017
            refused += 1
        except sojourn.SojournError:
            refused += 1
        left = leftovers(before)
        assert not left, (n, left)
        if not refusals.has_failed:
            break
    refusals.stop()
    assert 0 < refused < ROUNDS - 1


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [("os", "memfd_create", errno.EMFILE), ("mmap", "mmap", errno.ENOMEM)],
)
def test_memory_that_is_refused_to_a_worker_is_the_steps_error_or_the_sessions(
    module, name, number
):
    def build() -> Any:
        def double(x: Any) -> Any:
            import importlib
            import os

            def refuse(*args: Any, **kwargs: Any) -> Any:
                raise OSError(number, os.strerror(number))

            if x.size == 1:
                setattr(importlib.import_module(module), name, refuse)
            return np.repeat(x, 2)

        return double

    with sojourn.open(build) as session:
        assert session.run("output", {"x": np.ones(1)}).size == 2
        with pytest.raises((OSError, sojourn.SessionBroken), match=os.strerror(number)):
            session.run("output", {"x": np.ones(1_000_000)})  # the answer needs more memory
    assert session.receipt.clean


CALLS = (
    "open mkdir makedirs fsync rename listdir stat fstat lstat fchmod rmdir unlink posix_fadvise"
).split()


@pytest.fixture(scope="module")
def counting(zygote: None) -> Any:
    with sojourn.open(models.counter, name="saved") as session:
        session.run("total", {"amount": 1.0})
        yield session


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "replacing"])
def test_a_save_that_fails_at_any_call_harms_nothing(
    refusals, counting, tmp_path, monkeypatch, number, is_there
):
    path = tmp_path / "saved"
    if is_there:
        counting.save(path)
    old = contents(path)
    counting.run("total", {"amount": 1.0})
    value = counting.run("value")
    for name in CALLS:
        refusals.cover(os, name)
    refusals.cover(folders, "_exchange")
    monkeypatch.setattr(checkpoints, "open", Files(refusals).open, raising=False)
    failed = in_place = 0
    for n in range(1, ROUNDS):
        there = identity(path)
        refusals.at(n)
        try:
            counting.save(path)
            refusals.stop()
        except sojourn.CheckpointError as error:
            failed += 1
            assert "cannot be saved" in str(error)  # noqa: PT017
            refusals.stop()
            # Only the very last call, which syncs the folder that now has it, comes too late.
            is_new = identity(path) != there
            assert is_new == ("the new state is in place" in str(error))  # noqa: PT017
            assert is_new or contents(path) == old
            in_place += is_new
            _clear_what_could_not_be_removed(tmp_path)
        old = contents(path)
        assert len(os.listdir(tmp_path)) <= 2, n  # what could not be removed goes with the next
        if old:
            counting.restore(path)
        assert counting.run("value") in (value, value - 1)
        counting.run("store", {"amount": value})
        if not refusals.has_failed:
            break
    refusals.stop()
    assert 3 < failed < ROUNDS - 1
    assert in_place == 1
    assert os.listdir(tmp_path) == ["saved"]
    counting.run("total", {"amount": 1.0})
    counting.restore(path)
    assert counting.run("value") == value


class Files:
    """Opens files whose every call counts, and may fail."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._file: Any = None

    def open(self, *args: Any, **kwargs: Any) -> Files:
        self._refusals.count()
        opened = Files(self._refusals)
        opened._file = open(*args, **kwargs)
        return opened

    def __getattr__(self, name: str) -> Any:
        self._refusals.count()
        return getattr(self._file, name)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()
        if raised[0] is None:
            self._refusals.count()  # what was written may turn out to be too much as it is closed


def identity(path: Path) -> int:
    """By which one folder is told from another; 0 if there is none."""
    return path.stat().st_ino if path.exists() else 0


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a saved state."""
    return {p.name: p.read_bytes() for p in path.iterdir()} if path.exists() else {}


def _clear_what_could_not_be_removed(folder: Path) -> None:
    """A file system that fails may fail to remove as well; the next save does it."""
    for left in folder.glob(".sojourn-*"):
        shutil.rmtree(left)
