"""What is saved comes back from every path that can be made, and nothing else changes there."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import models
import sojourn
from faults.tools import wait_until
from sojourn.session import checkpoints, folders

pytestmark = pytest.mark.usefixtures("zygote")

# What TensorFlow takes for a pattern, what is no text, what is long, and the rest of Unicode.
_characters = (
    st.sampled_from("[]*?\\{}!^$~ .-'\"\n\t%:@#")
    | st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"])
    | st.integers(0x80, 0xFF).map(lambda byte: os.fsdecode(bytes([byte])))
)
_names = (
    st.text(_characters, min_size=1, max_size=40)
    | st.builds(lambda one, length: one * length, _characters, st.integers(60, 255))
    | st.sampled_from(["state.index", "manifest.json", "checkpoint", "...", "-", "~", "[!a]", "."])
).map(lambda name: os.fsdecode(os.fsencode(name)))
_names = _names.filter(lambda name: len(os.fsencode(name)) <= 255 and name not in (".", ".."))
_paths = st.lists(_names, min_size=1, max_size=4)
_EXPLORE = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def session(zygote: None) -> Iterator[sojourn.Session]:
    with sojourn.open(models.counter) as opened:
        opened.run("store", {"amount": 1.0})
        yield opened


def everything_in(folder: str) -> dict[str, Any]:
    """Every file and folder, however it is called."""
    found: dict[str, Any] = {}
    for above, below, files in os.walk(folder):
        for name in (*below, *files):
            path = os.path.join(above, name)
            mode = os.lstat(path).st_mode
            found[path] = (mode, Path(path).read_bytes() if stat.S_ISREG(mode) else None)
    return found


def others_than(path: str, folder: str) -> dict[str, Any]:
    """What is neither there, nor in it, nor a folder above it."""
    return {
        name: facts
        for name, facts in everything_in(folder).items()
        if os.path.commonpath([name, path]) not in (name, path)
    }


def through_a_link(folder: str, parts: list[str]) -> Any:
    os.symlink("top", os.path.join(folder, "link"))
    return os.path.join(folder, "link", *parts)


def as_a_link(folder: str, parts: list[str]) -> Any:
    os.symlink(os.path.join("top", *parts), os.path.join(folder, "last"))
    return os.path.join(folder, "last")


# The same place in other words.
SPELLINGS = [
    lambda folder, parts: os.path.join(folder, "top", *parts),
    lambda folder, parts: Path(folder, "top", *parts),
    lambda folder, parts: os.fsencode(os.path.join(folder, "top", *parts)),
    lambda folder, parts: os.path.relpath(os.path.join(folder, "top", *parts)),
    lambda folder, parts: os.path.join(folder, "top", *parts, ""),
    lambda folder, parts: os.path.join(folder, ".", "top", "..", "top", *parts, "."),
    through_a_link,
    as_a_link,
]


@_EXPLORE
@given(parts=_paths, neighbour=_names, spelled=st.sampled_from(SPELLINGS), twice=st.booleans())
def test_what_was_saved_comes_back_from_any_path(session, parts, neighbour, spelled, twice):
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        top = os.path.join(folder, "top")
        os.mkdir(top)
        if neighbour != parts[0]:
            Path(top, neighbour).write_bytes(b"mine")
        real = os.path.join(top, *parts)
        path = spelled(folder, parts)
        before = others_than(real, folder)
        value = float(session.run("value")) + 1
        session.run("store", {"amount": value})
        session.save(path)
        if twice:
            session.save(path)
        session.run("store", {"amount": -1.0})
        session.restore(path)
        assert session.run("value") == value
        assert others_than(real, folder) == before


def test_the_longest_path_there_can_be(session, tmp_path):
    path = str(tmp_path)
    while len(path) < 4095 - 202:
        path = os.path.join(path, "d" * 200)
    path = os.path.join(path, "d" * (4095 - len(path) - 1))
    session.run("store", {"amount": 7.0})
    for _ in range(2):
        session.save(path)
    session.reset()
    session.restore(path)
    assert session.run("value") == 7.0
    with pytest.raises(sojourn.CheckpointError, match="File name too long"):
        session.save(tmp_path / ("d" * 256))


def test_the_current_folder_is_saved_to_and_stays_the_current_one(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for amount in (3.0, 4.0):
        session.run("store", {"amount": amount})
        session.save(".")
        session.reset()
        session.restore(".")
        assert session.run("value") == amount
        assert "manifest.json" in os.listdir(".")
    assert os.getcwd() == str(tmp_path)


@pytest.mark.parametrize("name", ["[1]", "a*", "what?", "back\\slash", os.fsdecode(b"\xff\xfe")])
def test_a_worker_comes_back_with_its_state_from_any_path(tmp_path, name):
    with sojourn.open(models.counter, restart="from-checkpoint") as session:
        session.run("store", {"amount": 5.0})
        session.save(tmp_path / name / "state")
        session.run("store", {"amount": 6.0})
        pid = session.pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
        assert session.run("value") == 5.0


@pytest.mark.parametrize("name", ["[1]", os.fsdecode(b"\xff")])
def test_a_parked_copy_comes_back_from_any_path(tmp_path, name):
    with sojourn.Pool(memory="1GiB", parking_folder=tmp_path / name) as pool:
        pool.register("count", models.counter)
        with pool.lease("count") as lease:
            lease.run("store", {"amount": 9.0})
        assert pool.evict("count")
        with pool.lease("count") as lease:
            assert lease.run("value") == 9.0


# -- what is never replaced --------------------------------------------------------------------


def of_another_program(folder: Path) -> list[str]:
    (folder / "manifest.json").write_text('{"name": "an app", "icons": []}')
    (folder / "index.html").write_text("mine")
    return ["index.html", "manifest.json"]


def one_more(folder: Path) -> list[str]:
    (folder / "notes.txt").write_text("mine")
    return ["notes.txt"]


def one_like_ours(folder: Path) -> list[str]:
    (folder / "state.backup").write_text("mine")
    return ["state.backup"]


def other_bytes(folder: Path) -> list[str]:
    path = folder / "checkpoint"
    path.write_bytes(path.read_bytes().swapcase())
    return ["checkpoint"]


def other_size(folder: Path) -> list[str]:
    (folder / "state.index").write_text("mine")
    return ["state.index"]


def a_link(folder: Path) -> list[str]:
    (folder / "state.index").rename(folder.with_name("moved"))
    (folder / "state.index").symlink_to(folder.with_name("moved"))
    return ["state.index"]


def a_folder(folder: Path) -> list[str]:
    (folder / "checkpoint").unlink()
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "thesis.txt").write_text("mine")
    return ["checkpoint"]


@pytest.mark.parametrize(
    "put",
    [of_another_program, one_more, one_like_ours, other_bytes, other_size, a_link, a_folder],
)
def test_a_folder_with_anything_else_in_it_is_never_replaced(session, tmp_path, put):
    path = tmp_path / "app"
    path.mkdir()
    if put is not of_another_program:
        session.save(path)
    foreign = put(path)
    before = everything_in(str(tmp_path))
    with pytest.raises(sojourn.CheckpointError, match="not replaced by saved state") as raised:
        session.save(path)
    for name in foreign:
        assert name in str(raised.value)
    assert everything_in(str(tmp_path)) == before


def test_what_is_put_there_while_it_is_saved_is_not_lost(session, tmp_path, monkeypatch):
    path = tmp_path / "saved"
    session.save(path)
    exchange = folders._exchange
    put: list[Path] = []

    def too_late(above: int, one: str, other: str) -> bool:
        if not put:
            put.append(path / "thesis.txt")
            put[0].write_text("mine")
        return exchange(above, one, other)

    before = everything_in(str(tmp_path))
    monkeypatch.setattr(folders, "_exchange", too_late)
    with pytest.raises(sojourn.CheckpointError, match=r"thesis\.txt"):
        session.save(path)
    put[0].unlink()
    assert everything_in(str(tmp_path)) == before


def test_a_folder_that_is_only_named_like_a_leftover_keeps_what_is_in_it(session, tmp_path):
    path = tmp_path / "saved"
    for role in ("saving", "replaced"):
        mine = tmp_path / folders.hidden(path.name, role)
        mine.mkdir()
        (mine / "thesis.txt").write_text("mine")
        session.save(path)
        session.restore(path)
        assert (mine / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o2770, 0o500])
def test_who_may_read_it_stays_the_same(session, tmp_path, mode):
    path = tmp_path / "saved"
    session.save(path)
    (path / "checkpoint").chmod(0o600)
    path.chmod(mode)
    seen: list[int] = []
    fill = checkpoints._fill

    def look(folder: int, *args: Any) -> None:
        seen.append(stat.S_IMODE(os.fstat(folder).st_mode))
        fill(folder, *args)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoints, "_fill", look)
        session.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert stat.S_IMODE((path / "checkpoint").stat().st_mode) == 0o600
    assert seen == [0o700]  # nobody else reads it before that
    assert os.listdir(tmp_path) == ["saved"]
    path.chmod(0o700)


def test_its_access_list_stays_the_same(session, tmp_path):
    path = tmp_path / "saved"
    session.save(path)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:
        pytest.skip("a file system without attributes")
    session.save(path)
    assert os.getxattr(path, "user.note") == b"mine"


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", b"", None, 5])
def test_what_cannot_be_a_path_is_refused_by_name(session, path):
    for use in (session.save, session.restore):
        with pytest.raises((TypeError, ValueError), match="path must be"):
            use(path)


def test_what_cannot_be_replaced_is_refused_in_words(session):
    for mount in ("/", "/proc"):
        with pytest.raises(sojourn.CheckpointError, match="mount point"):
            session.save(mount)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_state_below_a_folder_that_may_only_be_passed_through_is_restored(session):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = os.path.join(folder, "saved")
        session.save(path)
        os.chmod(folder, 0o711)

        def look() -> bool:
            os.setresuid(65534, 65534, 65534)
            with checkpoints.opened(path) as saved:
                return saved.has_values

        assert sojourn.isolated(look)()


def test_every_folder_that_was_made_for_it_is_on_the_disk(session, tmp_path, monkeypatch):
    synced: set[int] = set()
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    session.save(tmp_path / "a" / "b" / "saved")
    for folder in ("", "a", "a/b"):
        assert (tmp_path / folder).stat().st_ino in synced
