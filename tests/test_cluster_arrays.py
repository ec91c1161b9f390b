"""What goes to a node: large arrays, and models from a URL or from the caller's own machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import models
import served_models
import sojourn
from cluster_stand_in import StandIn, copies_of, stand_in
from faults.tools import Background, wait_until
from sojourn.cluster import Cluster, files
from sojourn.cluster.wire.sharing import Sharing
from sojourn.transport.placed import file_of
from sojourn.transport.segment import SegmentError

pytestmark = pytest.mark.usefixtures("zygote")


def by_network(everywhere: Cluster) -> None:
    """From now on agents are reached by TCP, as those of other machines are."""
    for link in everywhere._links.values():
        link.facts = replace(link.facts, local="")


@pytest.mark.parametrize("is_local", [True, False])
def test_large_arrays_are_the_callers_own(everywhere: Cluster, is_local: bool) -> None:
    if not is_local:
        by_network(everywhere)
    x = np.random.default_rng(2).normal(size=(400, 784)).astype(np.float32)
    placed = sojourn.empty(x.shape)
    placed[:] = x
    everywhere.register("echo", lambda: lambda a: a)

    async def awaited(session: Any) -> list[Any]:
        return await asyncio.gather(*(session.arun("output", {"a": x + i}) for i in range(4)))

    with everywhere.lease("echo", timeout=30) as session:
        kept = session.run("output", {"a": x})
        again = session.run("output", {"a": placed})
        kept[0] = 7  # it is nobody else's
        third = session.run("output", {"a": x[::2]})
        assert np.array_equal(again, x)
        assert np.array_equal(third, x[::2])
        assert np.array_equal(kept[1:], x[1:])
        assert (kept[0] == 7).all()
        assert [np.array_equal(y, x + i) for i, y in enumerate(asyncio.run(awaited(session)))]
        for i in range(5):  # the files of results that are gone are used again
            assert np.array_equal(session.run("output", {"a": x - i}), x - i)
        big_endian = session.run("output", {"a": x.astype(">f4")})
        assert np.array_equal(big_endian, x)
    assert np.array_equal(again, x)  # also when all is closed


def test_a_peer_cannot_name_any_file(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, open(tmp_path / "file", "w+b") as file:
        sharing = Sharing.with_peer(ours)
        file.truncate(2**20)
        inode = os.fstat(file.fileno()).st_ino
        with pytest.raises(SegmentError, match="not a sealable memory file"):
            sharing.asked((0, file.fileno(), inode, 0), (4,), np.dtype("float32"))
        memory = sojourn.empty(2**20, "uint8")
        held = file_of(memory)
        assert held is not None
        inode = os.fstat(held.fd).st_ino
        with pytest.raises(SegmentError, match="not what it announced"):
            sharing.answered((0, held.fd, inode + 1, 0), (4,), np.dtype("float32"))
        with pytest.raises(SegmentError, match="beyond"):
            sharing.asked((0, held.fd, inode, 2**20), (4,), np.dtype("float32"))
        sharing.close()


def test_a_result_of_another_node_that_a_fork_has_is_not_released() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sharing = Sharing.with_peer(ours)
        memory = sojourn.empty(2**20, "uint8")
        held = file_of(memory)
        assert held is not None
        inode = os.fstat(held.fd).st_ino
        result = sharing.answered((0, held.fd, inode, 0), (2**20,), np.dtype("uint8"))
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        del result
        assert sharing.take_released() == []
        result = sharing.answered((0, held.fd, inode, 0), (2**20,), np.dtype("uint8"))
        del result
        assert sharing.take_released() == [inode]
        sharing.close()


def test_a_model_is_brought_from_a_url(everywhere: Cluster) -> None:
    memory = fsspec.filesystem("memory")
    try:
        memory.pipe("/shelf/times/model.onnx", served_models.times(3))
        everywhere.register("times", "memory://shelf/times/model.onnx", copies=2, pinned=True)
        wait_until(lambda: len(copies_of(everywhere, "times")) == 2)
        with everywhere.lease("times", timeout=30) as session:
            assert session.run("y", {"x": served_models.X}).tolist() == [[12.0]]
        everywhere.register("none", "memory://shelf/nothing")
        with pytest.raises(sojourn.ModelError, match="memory://shelf/nothing cannot be read"):
            everywhere.lease("none", timeout=30)
    finally:
        memory.rm("/shelf", recursive=True)


def test_a_node_that_brings_files_answers_while_another_model_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = fsspec.filesystem("memory")
    begun, go = threading.Event(), threading.Event()
    get_file = type(memory).get_file

    def slowly(*given: Any, **named: Any) -> Any:
        begun.set()
        go.wait(20)
        begun.clear()
        return get_file(*given, **named)

    monkeypatch.setattr(type(memory), "get_file", slowly)
    memory.pipe("/shelf/times/model.onnx", served_models.times(3))
    try:
        with stand_in("a") as nodes, nodes.connect() as everywhere:
            everywhere.register("add", models.adder)
            everywhere.register("other", models.counter)
            everywhere.register("times", "memory://shelf/times/model.onnx")
            with everywhere.lease("add", timeout=30) as session:
                bringing = Background(lambda: everywhere.lease("times", timeout=30).close())
                assert begun.wait(30)
                everywhere.unregister("other")
                assert session.run("output", {"a": 1, "b": 2}) == 3
                assert begun.is_set()  # it is still being brought
                go.set()
                bringing.result()
    finally:
        memory.rm("/shelf", recursive=True)


def test_two_callers_may_send_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").write_bytes(b"model")
    digest = files._checksum(str(tmp_path / "model"))
    checksum, both = files._checksum, threading.Barrier(2)

    def check_together(path: str) -> str:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return checksum(path)

    monkeypatch.setattr(files, "_checksum", check_together)
    (tmp_path / "there").mkdir()
    there = files.Files(str(tmp_path / "there"))
    data = np.frombuffer(b"model", np.uint8)
    callers = [Background(there.store, digest, 0, 5, data) for _ in range(2)]
    assert [caller.result() for caller in callers] == [5, 5]
    assert there.read(digest, 0)[1].tobytes() == b"model"


def test_a_model_is_sent_along_once_and_outlives_its_path(
    nodes: StandIn, everywhere: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.cluster.files.SENT_TO", 1)
    path = tmp_path / "times.onnx"
    path.write_bytes(served_models.times(3))
    everywhere.register("times", path, send=True, copies=2, pinned=True)
    path.unlink()
    wait_until(lambda: len(copies_of(everywhere, "times")) == 2)  # one has it from the other
    nodes.kill("a")
    with everywhere.lease("times", timeout=30) as session:
        assert session.run("y", {"x": served_models.X}).tolist() == [[12.0]]
    everywhere.unregister("times")
    models_of_b = nodes.nodes.actors["b"].agent._files._folder
    wait_until(lambda: not os.listdir(models_of_b))


def test_a_model_that_no_node_has_any_more_says_so(
    nodes: StandIn, everywhere: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.cluster.files.SENT_TO", 1)
    (tmp_path / "times.onnx").write_bytes(served_models.times(3))
    everywhere.register("times", tmp_path / "times.onnx", send=True)
    nodes.kill("a")  # the first is the one that it was sent to
    wait_until(lambda: len(everywhere.status()["nodes"]) == 1)
    with pytest.raises(sojourn.ModelError, match="no node has its files any more"):
        everywhere.lease("times", timeout=30)
