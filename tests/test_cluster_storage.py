"""Where the state of copies is kept: any URL that fsspec knows, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest

import sojourn
from sojourn.cluster import storage as storage_module
from sojourn.cluster.storage import Kept, Storage


@pytest.fixture(params=["file", "memory", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, s3_url: str | None) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/states"
    elif request.param == "memory":
        yield "memory://states"
        fsspec.filesystem("memory").rm("/states", recursive=True)
    elif s3_url is None:
        pytest.skip("s3fs and moto[server] are not installed")
    else:
        yield s3_url


@pytest.fixture(scope="module", autouse=True)
def s3_url() -> Iterator[str | None]:
    """A bucket of a server that speaks S3, where one is installed. It stands before any test."""
    try:
        import s3fs  # noqa: F401
        from moto.server import ThreadedMotoServer
    except ImportError:
        yield None
        return
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    there = {"endpoint_url": f"http://{host}:{port}", "key": "a", "secret": "b"}
    before = fsspec.config.conf.get("s3")
    fsspec.config.conf["s3"] = there
    try:
        fsspec.filesystem("s3").mkdir("bucket")
        yield "s3://bucket/states"
    finally:
        fsspec.config.conf.pop("s3")
        if before is not None:
            fsspec.config.conf["s3"] = before
        server.stop()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    (folder / "below").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(range(256)) * 1000)
    (folder / "below" / "empty").write_bytes(b"")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_was_put_comes_back_as_it_was(url: str, saved: Path, tmp_path: Path) -> None:
    Storage(url).put(str(saved), "a model/with a name", 0)
    back = tmp_path / "back"
    assert Storage(url).get(str(back), "a model/with a name", 0)
    assert contents(back) == contents(saved)
    assert not Storage(url).get(str(tmp_path / "none"), "a model/with a name", 1)


def test_a_newer_state_replaces_the_older(url: str, saved: Path, tmp_path: Path) -> None:
    storage = Storage(url)
    storage.put(str(saved), "m", 0)
    (saved / "weights").write_bytes(b"newer")
    storage.put(str(saved), "m", 0)
    storage.get(str(tmp_path / "back"), "m", 0)
    assert contents(tmp_path / "back") == contents(saved)
    storage.drop("m", 0)
    storage.drop("m", 0)
    assert not storage.get(str(tmp_path / "gone"), "m", 0)


def test_a_state_that_was_damaged_is_refused(saved: Path, tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/states")
    storage.put(str(saved), "m", 0)
    [weights] = (tmp_path / "states").rglob("weights")
    weights.write_bytes(bytes(256 * 1000))
    with pytest.raises(sojourn.CheckpointError, match="'m' cannot be read: weights was changed"):
        storage.get(str(tmp_path / "back"), "m", 0)


def test_a_put_that_fails_leaves_the_older_state(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(f"file://{tmp_path}/states")
    storage.put(str(saved), "m", 0)
    before = contents(saved)
    (saved / "weights").write_bytes(b"newer")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "_name", _full)
        with pytest.raises(sojourn.CheckpointError, match="No space left"):
            storage.put(str(saved), "m", 0)
    storage.get(str(tmp_path / "back"), "m", 0)
    assert contents(tmp_path / "back") == before


def test_a_put_that_fails_leaves_nothing_on_a_full_disk(saved: Path, tmp_path: Path) -> None:
    states = tmp_path / "states"
    storage = Storage(f"file://{states}")
    storage.put(str(saved), "m", 0)
    before = contents(states)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(storage, "_name", _full)
        with pytest.raises(sojourn.CheckpointError, match="No space left"):
            storage.put(str(saved), "m", 0)
    assert contents(states) == before


def test_what_fails_after_a_state_counts_is_not_the_failure_of_the_state(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(f"file://{tmp_path}/states")
    storage.put(str(saved), "m", 0)
    monkeypatch.setattr(storage._files, "rm_file", _full)
    (saved / "weights").write_bytes(b"newer")
    storage.put(str(saved), "m", 0)  # the older one cannot be removed
    (saved / "weights").write_bytes(b"newest")
    synced = storage_module._sync
    place = storage._place("m", 0)
    monkeypatch.setattr(
        storage_module, "_sync", lambda path: _full() if path == place else synced(path)
    )
    with pytest.raises(sojourn.CheckpointError, match="new state of 'm' is in place"):
        storage.put(str(saved), "m", 0)
    storage.get(str(tmp_path / "back"), "m", 0)
    assert contents(tmp_path / "back") == contents(saved)


def test_a_state_that_is_replaced_while_it_is_fetched_comes_as_the_newer_one(
    url: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(url)
    storage.put(str(saved), "m", 0)
    fetch = storage._fetch

    def too_late(*args: Any) -> None:
        monkeypatch.setattr(storage, "_fetch", fetch)
        (saved / "weights").write_bytes(b"newer")
        Storage(url).put(str(saved), "m", 0)
        fetch(*args)

    monkeypatch.setattr(storage, "_fetch", too_late)
    assert storage.get(str(tmp_path / "back"), "m", 0)
    assert contents(tmp_path / "back") == contents(saved)


@pytest.mark.parametrize("name", ["../../../thesis", "/thesis", "a/../../b", ""])
def test_a_state_whose_names_lead_elsewhere_is_refused(
    saved: Path, tmp_path: Path, name: str
) -> None:
    storage = Storage(f"file://{tmp_path}/states")
    storage.put(str(saved), "m", 0)
    kept = storage._current(storage._place("m", 0))
    assert kept is not None
    for lie in (Kept(name, kept.files), Kept(kept.folder, {name: (0, "")})):
        storage._name(storage._place("m", 0), msgspec.json.encode(lie))
        before = contents(tmp_path)
        with pytest.raises(sojourn.CheckpointError, match="names a file elsewhere"):
            storage.get(str(tmp_path / "back"), "m", 0)
        assert contents(tmp_path) == before
    storage.put(str(saved), "m", 0)  # and what it named is not removed
    assert before.items() - contents(tmp_path).items() <= {*_named(before, "current")}


def test_no_name_is_taken_for_a_pattern(saved: Path, tmp_path: Path) -> None:
    mine, other = Storage("memory://states*"), Storage("memory://states2")
    for storage in (mine, other):
        storage.put(str(saved), "m", 0)
    mine.put(str(saved), "m", 0)
    mine.drop("m", 0)
    assert other.get(str(tmp_path / "back"), "m", 0)
    other.drop("m", 0)


def _named(files: dict[str, bytes], name: str) -> set[tuple[str, bytes]]:
    return {(path, content) for path, content in files.items() if path.endswith(name)}


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")
