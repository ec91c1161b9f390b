"""Whatever sojourn writes, removes or replaces: what is not its own stays as it was."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sojourn import events
from sojourn.cli.main import main
from sojourn.errors import CheckpointError, ModelError
from sojourn.pool.decisions.terms import CopyId
from sojourn.pool.parking import Parking
from sojourn.process import owned_folders, private_folder
from sojourn.service import notices
from sojourn.service.page.history import History
from sojourn.service.page.points import Point
from sojourn.session import folders
from sojourn.session.conversion import cache
from sojourn.session.conversion.candidates import Examined

FACTS = {"pid": 1, "url": "http://127.0.0.1:1"}


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def full(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


# -- the folder of converted models ------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for converted models that has other things in it."""
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    for name in ("thesis", "sojourn-models", f"sojourn-{'a' * 64}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    (tmp_path / "sojourn-models" / "model.onnx").write_text("mine")
    (tmp_path / "thesis" / "verdicts.json").write_text("mine")
    (tmp_path / f"sojourn-{'b' * 64}").symlink_to(tmp_path / "thesis")
    return tmp_path


def no_pause() -> None:
    raise AssertionError("no other process converts it")


def test_clearing_converted_models_removes_nothing_else(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(shared)
    for n in range(2):
        with cache.NewEntry(f"{n:064}", no_pause) as entry:
            (entry.path / "model.onnx").write_bytes(bytes(1000))
            entry.keep(Examined([], [], []))
    assert cache.find(f"{1:064}") is not None
    assert cache.clear() > 2000
    monkeypatch.setattr(cache, "MOST_BYTES", 0)
    with cache.NewEntry(f"{2:064}", no_pause) as entry:
        entry.keep(Examined([], [], []))  # and makes room
    cache.clear()
    assert contents(shared) == before


def test_a_full_disk_after_converting_is_said_in_words(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(shared)
    monkeypatch.setattr(Path, "write_bytes", full)
    entry = cache.NewEntry("c" * 64, no_pause)
    with entry, pytest.raises(ModelError, match=r"cannot be kept.*No space"):
        entry.keep(Examined([], [], []))
    assert contents(shared) == before


# -- the folder of parked copies ---------------------------------------------------------------


def parked(folder: Path, name: str) -> Path:
    state = folder / name / "model-0-1"
    state.mkdir(parents=True)
    (state / "manifest.json").write_text("{}")
    (state / "state.index").write_text("")
    return folder / name


def test_a_parking_folder_that_was_removed_is_replaced_by_one_that_is_as_private(
    tmp_path: Path,
) -> None:
    place = Parking(str(tmp_path))
    shutil.rmtree(os.path.dirname(place.place_for(CopyId("model", 0, 1))))
    folder = os.path.dirname(place.place_for(CopyId("model", 0, 1)))
    assert stat.S_IMODE(os.stat(folder).st_mode) == stat.S_IRWXU
    assert owned_folders.is_owned(folder)  # or another pool would take it for a leftover
    place.leave()
    assert os.listdir(tmp_path) == []


def test_parking_removes_what_a_killed_program_left_and_nothing_else(tmp_path: Path) -> None:
    for name in ("sojourn-pool-backup", "sojourn-pool-12345678", "other"):
        parked(tmp_path, name)
    kept = parked(tmp_path, f"sojourn-pool-{'1' * 16}")
    (kept / "thesis.txt").write_text("mine")
    (kept / "model-0-1" / "thesis.txt").write_text("mine")
    before = contents(tmp_path)
    gone = [str(path.relative_to(tmp_path)) for path in (kept / "model-0-1").glob("[ms]*")]
    parked(tmp_path, f"sojourn-pool-{'2' * 16}")
    place = Parking(str(tmp_path))
    mine = Path(place.place_for(CopyId("model", 0, 1)))
    assert mine.parent.parent == tmp_path
    (mine.parent / "thesis.txt").write_text("mine")
    place.leave()
    assert (mine.parent / "thesis.txt").read_text() == "mine"
    (mine.parent / "thesis.txt").unlink()
    mine.parent.rmdir()
    assert contents(tmp_path) == {path: data for path, data in before.items() if path not in gone}


def test_a_folder_that_is_being_swept_is_not_parked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.mkdir
    swept: list[int] = []

    def make(path: str, *rest: Any) -> None:
        made(path, *rest)
        if not swept:  # by another program, which is about to remove it
            swept.append(os.open(path, os.O_RDONLY))
            fcntl.flock(swept[0], fcntl.LOCK_EX)

    monkeypatch.setattr(owned_folders.os, "mkdir", make)
    place = Parking(str(tmp_path))
    try:
        found = os.path.dirname(place.place_for(CopyId("model", 0, 1)))
        assert not os.path.samestat(os.stat(found), os.fstat(swept[0]))
    finally:
        place.leave()
        os.close(swept[0])


def test_a_parking_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="nothing can be parked in"):
        Parking(str(tmp_path / "file")).place_for(CopyId("model", 0, 1))


def test_what_a_killed_zygote_and_its_client_have_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living, fd = owned_folders.create(str(tmp_path), "sojourn-zygote-")
    left = tmp_path / f"sojourn-zygote-{'1' * 16}"
    for folder in (left, tmp_path / "sojourn-zygote-mine"):
        (folder / "matplotlib-x").mkdir(parents=True)
    held = [fd]  # as long as a zygote lives
    make = owned_folders.make

    def make_and_note(path: str) -> int:
        held.append(make(path))
        return held[-1]

    monkeypatch.setattr(owned_folders, "make", make_and_note)
    chosen = private_folder.choose()
    try:
        with private_folder.collecting(chosen):
            assert sorted(os.listdir(tmp_path)) == sorted(
                [os.path.basename(living), "sojourn-zygote-mine"]
            )
            made = [tempfile.mkdtemp(), tempfile.mkdtemp()]
        assert {os.path.dirname(one) for one in made} == {chosen}
        with private_folder.collecting(private_folder.choose()):
            assert os.path.isdir(chosen)  # its lock is held
        private_folder.remove(chosen)
    finally:
        for fd in held:
            os.close(fd)


# -- the page's history ------------------------------------------------------------------------


def test_the_database_of_another_program_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE points (model TEXT, at REAL, body BLOB)")
        file.execute("INSERT INTO points VALUES ('a customer', 1.0, '')")
    file.close()
    before = contents(tmp_path)

    async def use() -> str:
        history = History(path, prune_seconds=0)
        await history.open()
        history.add([Point(2e9, "m", 1.0)])
        await history.close()
        return history.problem

    assert "is the database of another program" in asyncio.run(use())
    assert contents(tmp_path) == before


# -- a server's ready file ---------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"print('my program')\n", b"[]", b'{"pid": 1}', b"\xff"])
def test_a_ready_file_replaces_no_other_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ready"
    path.write_bytes(content)
    with (
        pytest.raises(FileExistsError, match="is not replaced"),
        notices.ready_file(str(path), FACTS),
    ):
        pass
    assert contents(tmp_path) == {"ready": content}


def test_a_ready_file_replaces_no_device(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(FileExistsError), notices.ready_file(str(path), FACTS):
        pass
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_what_a_killed_server_has_left_is_gone_before_the_next_one_answers(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_bytes(b'{"pid": 0, "url": "http://127.0.0.1:1"}')
    notices.remove_stale_ready_file(str(path))
    assert not path.exists()
    notices.remove_stale_ready_file(str(path))
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        notices.remove_stale_ready_file(str(path))
    assert path.read_bytes() == b"precious"


def test_a_server_that_ends_leaves_the_ready_file_of_another(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    with notices.ready_file(str(path), FACTS):
        with notices.ready_file(str(path), {**FACTS, "pid": 2}):
            assert b'"pid":2' in path.read_bytes()
            first = notices.ready_file(str(path), {**FACTS, "pid": 3})
            first.__enter__()
        assert b'"pid":3' in path.read_bytes()
    first.__exit__(None, None, None)
    assert contents(tmp_path) == {}


# -- other files -------------------------------------------------------------------------------


def test_a_full_disk_costs_no_program_that_is_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program.py"
    path.write_text("import tensorflow as tf\nsess = tf.compat.v1.Session()\nsess.run(x)\n")
    path.chmod(0o750)
    before = contents(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(folders.os, "fsync", full)
        result = CliRunner().invoke(main, ["lint", "--fix", "--isolated", str(path)])
    assert result.exit_code == 1
    assert "is as it was: [Errno 28]" in result.output
    assert contents(tmp_path) == before
    link = tmp_path / "link.py"
    link.symlink_to(path)
    CliRunner().invoke(main, ["lint", "--fix", "--isolated", str(link)])
    assert path.read_bytes() != before["program.py"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert link.is_symlink()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "events.html"
    path.touch(0o600)
    stop = events.write_lines(path, max_bytes=300)
    for n in range(4):
        events.emit("zygote.started", zygote_pid=n)
    stop()
    return path


def test_events_that_turn_over_stay_as_private_as_they_were(recorded: Path) -> None:
    for path in (recorded, recorded.with_name("events.html.1")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("words", [[], ["--html"], ["--png"], ["--output"]])
def test_a_report_does_not_replace_the_events_it_is_about(recorded: Path, words: list[str]) -> None:
    before = contents(recorded.parent)
    result = CliRunner().invoke(
        main, ["report", str(recorded), *words, *[str(recorded)] * len(words)]
    )
    assert result.exit_code == 2
    assert "holds the events" in result.output
    assert contents(recorded.parent) == before
