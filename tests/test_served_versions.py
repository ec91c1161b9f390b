"""Which versions are served, and which of them a request gets."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from served_models import times, write_version
from sojourn.errors import ModelError
from sojourn.service.folders import find_models, find_versions, frameworks_of
from sojourn.service.versions import Choice, number_in, parse_choice, pick, to_retire

pytestmark = pytest.mark.quick
numbers = st.sets(st.integers(1, 30), max_size=8)
choices = st.one_of(
    st.just(Choice(None)),
    st.integers(1, 5).map(Choice),
    st.sets(st.integers(1, 30), min_size=1).map(lambda s: Choice(None, tuple(sorted(s)))),
)


@given(choices, numbers)
def test_a_choice_is_of_those_that_are_there_in_order(choice, there):
    chosen = choice.among(there)
    assert set(chosen) <= there
    assert list(chosen) == sorted(set(chosen))
    if choice.specific:
        assert set(chosen) == there & set(choice.specific)
    elif choice.latest is None:
        assert set(chosen) == there
    else:
        assert len(chosen) == min(choice.latest, len(there))
        assert all(left_out < min(chosen) for left_out in there - set(chosen))


@given(numbers, st.dictionaries(st.text(max_size=3), st.integers(1, 30)), st.integers(1, 30))
def test_a_request_gets_what_it_names_or_the_latest_or_nothing(available, labels, version):
    assert pick(available, labels) == max(available, default=None)
    assert pick(available, labels, version) == (version if version in available else None)
    for label, named in labels.items():
        assert pick(available, labels, label=label) == (named if named in available else None)
    assert pick(available, {}, label="never") is None


@given(numbers, numbers, numbers)
def test_nothing_leaves_before_everything_that_is_wanted_can_serve(served, wanted, available):
    gone = to_retire(served, wanted, available)
    assert not set(gone) & wanted
    if wanted - available:
        assert gone == ()
    else:
        assert set(gone) == served - wanted


@given(numbers, st.integers(1, 3), st.lists(st.booleans(), max_size=10))
def test_a_model_that_once_serves_goes_on_serving_while_versions_come_and_fail(
    there, latest, loads
):
    """Whatever arrives, and whether it can be loaded or not, some version answers."""
    choice = Choice(latest)
    available: set[int] = set(choice.among(there))
    newest = max(there, default=0)
    for is_good in loads:
        newest += 1
        there = there | {newest}
        wanted = choice.among(there)
        available |= {v for v in wanted if v != newest or is_good}
        had = bool(available)
        available -= set(to_retire(available, wanted, available))
        assert bool(available) == had
        if is_good:
            assert pick(available, {}) == newest


@pytest.mark.parametrize("text", ["latest", "latest 1", "latest 3", "all", "1,3", "7"])
def test_choices_are_read(text):
    assert parse_choice(text).among({1, 3, 7})


@pytest.mark.parametrize("text", ["", "latest 0", "newest", [], [0], [-1], ["1"], "0"])
def test_what_is_no_choice_is_refused(text):
    with pytest.raises((ValueError, TypeError)):
        parse_choice(text)


def test_a_folder_that_may_not_be_read_hides_no_model_beside_it(tmp_path, monkeypatch):
    for name in ("m/1/model.onnx", "m/2/model.onnx", "lost+found/1/model.onnx"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(times(1))
    closed = {str(tmp_path / name) for name in ("m/2", "lost+found")}
    listdir = os.listdir

    def refuse(path: str) -> list[str]:  # root may read everything
        if path in closed:
            raise PermissionError(13, "Permission denied", path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert find_models(str(tmp_path)) == {"m": str(tmp_path / "m")}
    assert list(find_versions(str(tmp_path / "m"))) == [1]
    assert frameworks_of([str(tmp_path / "lost+found"), str(tmp_path / "m")]) == {"onnxruntime"}
    with pytest.raises(PermissionError):  # nothing is taken away because it cannot be told
        find_versions(str(tmp_path / "lost+found"))
    with pytest.raises(PermissionError):
        find_models(str(tmp_path / "lost+found"))


def test_versions_are_numbers_that_every_protocol_can_say(tmp_path):
    """Such as the time in nanoseconds; in microseconds as digits of a date is too large."""
    largest = 2**63 - 1
    for number in (1, largest, largest + 1, 20261119221500123456):
        write_version(tmp_path / "m", number)
    assert list(find_versions(str(tmp_path / "m"))) == [1, largest]
    for text, number in ((str(largest), largest), (str(largest + 1), None), ("1" * 5000, None)):
        assert number_in(text) == number
    for asked in ("", "-1", "+1", " 1", "1_0", "\u0661", "\xb2"):
        assert number_in(asked) is None


def test_every_model_in_a_folder_is_found_by_name_and_nothing_else(tmp_path):
    zipped, hdf5 = b"PK\x03\x04...", b"\x89HDF\r\n\x1a\n..."
    for name, content in {
        "a.keras": zipped,
        "b.h5": hdf5,
        "b.weights.h5": hdf5,
        "c.tflite": b"....TFL3",
        "d.v2.pb": b"\n",
        "e.onnx": times(1),
        ".f.onnx": times(1),
        "g.onnx.part": times(1),
        "README": b"\n\x04read",
        "h/saved_model.pb": b"\n",
        "i/1/saved_model.pb": b"\n",
        "i/007/saved_model.pb": b"\n",
        "i/two/saved_model.pb": b"\n",
        "j/12/model.onnx": times(1),
        "j/13/one.onnx": times(1),
        "j/13/two.onnx": times(1),
        "k/notes.txt": b"none",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "l.onnx").write_bytes(b"")
    (tmp_path / os.fsdecode(b"m\xff.onnx")).write_bytes(times(1))  # no request can name it
    assert {n: os.path.relpath(p, tmp_path) for n, p in find_models(str(tmp_path)).items()} == {
        "a": "a.keras",
        "b": "b.h5",
        "c": "c.tflite",
        "d.v2": "d.v2.pb",
        "e": "e.onnx",
        "h": "h",
        "i": "i",
        "j": "j",
    }
    assert list(find_versions(str(tmp_path / "i"))) == [1]
    assert find_versions(str(tmp_path / "j")) == {12: str(tmp_path / "j/12/model.onnx")}
    assert find_models(str(tmp_path / "j")) == {"j": str(tmp_path / "j")}
    assert find_models(str(tmp_path / "e.onnx")) == {"e": str(tmp_path / "e.onnx")}
    (tmp_path / "e").mkdir()
    (tmp_path / "e/saved_model.pb").write_bytes(b"")
    with pytest.raises(ModelError, match="would both be served as 'e'"):
        find_models(str(tmp_path))
    with pytest.raises(ModelError, match="there is nothing at"):
        find_models(str(tmp_path / "nothing"))
