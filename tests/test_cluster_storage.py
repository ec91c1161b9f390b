"""Where the state of copies is kept: any URL that fsspec knows, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

import sojourn
from sojourn.cluster.storage import Storage


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/states"
    else:
        yield "memory://states"
        fsspec.filesystem("memory").rm("/states", recursive=True)


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
    with pytest.raises(sojourn.CheckpointError, match="weights of the state of 'm' was changed"):
        storage.get(str(tmp_path / "back"), "m", 0)


def test_a_put_that_fails_leaves_the_older_state(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(f"file://{tmp_path}/states")
    storage.put(str(saved), "m", 0)
    before = contents(saved)
    (saved / "weights").write_bytes(b"newer")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "_name", full)
        with pytest.raises(sojourn.CheckpointError, match="No space left"):
            storage.put(str(saved), "m", 0)
    storage.get(str(tmp_path / "back"), "m", 0)
    assert contents(tmp_path / "back") == before
