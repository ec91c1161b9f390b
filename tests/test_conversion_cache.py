"""The folder of converted models under faults: nothing half, damaged or out of date is trusted."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sojourn
from needed import needs_engines
from sojourn.engines.base import import_kind
from sojourn.errors import BudgetExceeded, ModelError, SessionBroken, SessionClosed, StepTimeout
from sojourn.kinds import Load
from sojourn.session.conversion import cache, converting, examining
from sojourn.session.conversion.attempt import Attempt
from sojourn.session.conversion.candidates import Candidate, Examined
from sojourn.session.conversion.choosing import Use
from sojourn.session.conversion.converting import Conversion
from sojourn.session.opening import Blueprint
from sojourn.values import caller

pytestmark = pytest.mark.usefixtures("own_cache")
KEY = "a" * 64


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.pb"
    path.write_bytes(b"1")
    return path


def no_pause() -> None:
    raise AssertionError("no other process converts it")


def examined(entry: Path, **facts: Any) -> Examined:
    """As if it had been converted."""
    (entry / "model.tflite").write_bytes(b"made")
    sha256 = cache.sha256(entry / "model.tflite")
    made = Candidate(engine="litert", version="1", file="model.tflite", sha256=sha256, **facts)
    return Examined([made], ["x"], ["y"])


def kept(key: str = KEY) -> Examined:
    with cache.NewEntry(key, no_pause) as entry:
        return entry.keep(examined(entry.path, most=1e8))


def conversion(path: Path | None, wanted: str = "litert") -> Conversion:
    load = Load(kind="frozen", path=str(path)) if path else Load(kind="builder")
    return Conversion(wanted, load, [], None, None, None)


class Examining:
    """What stands in for converting: it counts, and does something meanwhile."""

    def __init__(self, meanwhile: Any = lambda: None, **facts: Any) -> None:
        self.count = 0
        self._meanwhile = meanwhile
        self._facts = facts

    def __call__(self, opener: Any, engines: Any, entry: Path, *rest: Any) -> Examined:
        self.count += 1
        self._meanwhile()
        return examined(entry, **self._facts)


def found_by(one: Conversion, timeout: float | None = None) -> Examined:
    return one.examined(Attempt("m", timeout), None)  # type: ignore[arg-type]


# What is there


def test_no_flipped_bit_of_a_verdict_or_file_is_trusted() -> None:
    folder = Path(kept().folder)
    found = cache.find(KEY)
    assert found is not None
    assert found.of("litert").most == 1e8
    for file in folder.iterdir():
        content = file.read_bytes()
        for place in range(0, len(content), 3):
            flipped = bytearray(content)
            flipped[place] ^= 1
            file.write_bytes(flipped)
            assert cache.find(KEY) in (None, found)
        for length in range(0, len(content), 9):
            file.write_bytes(content[:length])
            assert cache.find(KEY) is None
        file.unlink()
        assert cache.find(KEY) is None
        file.write_bytes(content)
    assert cache.find(KEY) == found


def test_an_entry_under_the_name_of_another_is_not_trusted(own_cache: Path) -> None:
    other = f"{1:064}"
    shutil.copytree(kept().folder, own_cache / f"sojourn-{other}")
    assert cache.find(other) is None
    assert kept(other).folder == str(own_cache / f"sojourn-{other}")  # and is replaced
    assert cache.find(other) is not None


def test_who_may_read_the_folder_may_read_what_is_kept_in_it(own_cache: Path) -> None:
    for mode in (0o755, 0o700):
        own_cache.mkdir(exist_ok=True)
        own_cache.chmod(mode)
        assert os.stat(kept(f"{mode:064}").folder).st_mode & 0o777 == mode


def test_a_folder_that_can_only_be_read_serves_what_is_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept()

    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cache.os, "utime", refuse)
    assert cache.find(KEY) is not None


def test_a_model_is_known_by_what_is_behind_its_links(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "weights").write_bytes(b"1")
    (tmp_path / "model" / "variables").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "model" / "circle").symlink_to(tmp_path / "model")
    (tmp_path / "model" / "nothing").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "model" / "pipe")
    load = Load(kind="savedmodel", path=str(tmp_path / "model"))
    before = cache.key_of(load, [], "")
    assert cache.key_of(load, [], "") == before
    (tmp_path / "elsewhere" / "weights").write_bytes(b"2")
    assert cache.key_of(load, [], "") != before


def test_a_checkpoint_may_be_links_to_its_files_unless_it_is_untrusted(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name in ("m.meta", "m.index", "m.data-00000-of-00001"):
        (tmp_path / "real" / name).write_bytes(b"1")
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    load = Load(kind="metagraph", path=str(tmp_path / "m"))
    before = cache.key_of(load, [], "")
    (tmp_path / "real" / "m.index").write_bytes(b"2")
    assert cache.key_of(load, [], "") != before
    with pytest.raises(
        ModelError, match="is not a regular file, and a checkpoint with its meta graph is untrusted"
    ):
        sojourn.open(tmp_path / "m", untrusted=True)


def test_a_proof_is_known_by_every_sample(model: Path) -> None:
    x = np.ones(2, np.float32)
    texts = [
        [{"x": np.array(word, kind)}]
        for word in ("a", "b")
        for kind in "OS" + "T" * (np.__version__ >= "2")
    ]
    days = [[{"x": np.array(day, "M8[D]")}] for day in ("2026-01-01", "2026-01-02")]
    several = [[{"x": x, "y": x}], [{"x": x}, {"y": x}], [{}], [{}, {}], None]
    load = Load(kind="frozen", path=str(model))
    keys = [Conversion("litert", load, [], s, None, None)._key() for s in texts + days + several]
    assert len(set(keys)) == len(keys)
    again = [{"x": np.array("a", "O")}]
    assert Conversion("litert", load, [], again, None, None)._key() in keys


def test_any_number_is_a_tolerance_or_a_fraction(tmp_path: Path) -> None:
    load = Load(kind="frozen", path=str(tmp_path))
    one = converting.conversion_for(
        "litert", load, [], None, np.float32(0.5), 1e-320, "process", False
    )
    assert one is not None
    assert one._tolerance == 0.5
    used, _ = one._load_for(
        Examined([Candidate(engine="litert", version="1")], [], []), [Use("litert")]
    )
    assert used.every == 10**9


def test_what_is_known_of_all_engines_is_known_of_each(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examining = Examining()
    monkeypatch.setattr(converting, "examine", examining)
    found = found_by(conversion(model, "fastest"))
    assert found_by(conversion(model, "litert")) == found
    assert examining.count == 1
    model.write_bytes(b"2")
    found_by(conversion(model, "litert"))
    found_by(conversion(model, "fastest"))  # of which litert is but one
    assert examining.count == 3


# Who writes


def test_what_another_process_has_kept_meanwhile_is_used_and_not_replaced(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cache.NewEntry(KEY, no_pause) as slow:
        made = examined(slow.path)
        monkeypatch.setattr(cache, "_PATIENCE_SECONDS", 0.0)
        first = kept()
        there = Path(first.folder, "model.tflite").stat().st_ino
        assert slow.keep(made) == cache.find(KEY)
        assert Path(first.folder, "model.tflite").stat().st_ino == there
    assert list(own_cache.iterdir()) == [Path(first.folder)]


def test_what_a_killed_process_has_left_is_removed_by_the_next(own_cache: Path) -> None:
    left = own_cache / f".sojourn-new-{'1' * 16}"
    left.mkdir(parents=True)
    (left / "model.onnx").write_bytes(b"half")
    (own_cache / ".sojourn-new-mine").mkdir()
    folder = Path(kept().folder)
    assert sorted(own_cache.iterdir()) == [own_cache / ".sojourn-new-mine", folder]


def test_clearing_and_making_room_leave_what_is_being_made(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES", 0)
    with cache.NewEntry(KEY, no_pause) as entry:
        made = examined(entry.path)
        kept(f"{1:064}")
        assert cache.clear() > 0
        assert entry.keep(made).folder
    assert cache.find(KEY) is not None


def test_a_model_that_several_want_at_once_is_converted_once(
    model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Semaphore(0)
    monkeypatch.setattr(Attempt, "pause", lambda self: waiting.release())
    examining = Examining(lambda: [waiting.acquire() for _ in range(4)])
    monkeypatch.setattr(converting, "examine", examining)
    found: list[Examined] = []
    threads = [
        threading.Thread(target=lambda: found.append(found_by(conversion(model)))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert examining.count == 1
    assert [one.folder for one in found] == [str(path) for path in own_cache.iterdir()] * 3


def test_who_waits_for_another_can_be_called_off_and_does_not_wait_for_ever(
    model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "examine", Examining())
    waits = conversion(model)
    attempt = Attempt("m", None)

    def wait() -> None:
        attempt.call_off()
        attempt.check()

    monkeypatch.setattr(attempt, "pause", wait)
    key = converting._with_engines(waits._key(), ("litert",))
    with cache.NewEntry(key, no_pause):
        with pytest.raises(StepTimeout, match=r"was not open within 0\.01 s"):
            found_by(waits, timeout=0.01)
        with pytest.raises(SessionClosed):
            waits.examined(attempt, None)  # type: ignore[arg-type]
        monkeypatch.setattr(cache, "_PATIENCE_SECONDS", 0.0)
        assert cache.is_intact(found_by(waits))
    assert len(list(own_cache.iterdir())) == 1


def test_an_entry_that_nobody_can_find_again_goes_with_who_has_made_it(
    model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "examine", Examining())
    built = conversion(None)
    assert cache.is_intact(found_by(built))
    assert len(list(own_cache.iterdir())) == 1
    del built
    gc.collect()
    assert not list(own_cache.iterdir())
    monkeypatch.setattr(converting, "examine", Examining(is_passing=True))
    passing = conversion(model)
    assert cache.is_intact(found_by(passing))
    pid = os.fork()
    if pid == 0:
        try:
            del passing
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(own_cache.iterdir())) == 1  # a fork removes nothing
    del passing
    gc.collect()
    assert not list(own_cache.iterdir())


def test_a_folder_that_is_removed_meanwhile_is_told(
    model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = conversion(model)
    monkeypatch.setattr(converting, "examine", Examining(lambda: shutil.rmtree(own_cache)))
    with pytest.raises((ModelError, OSError)):
        found_by(one)
    monkeypatch.setattr(converting, "examine", Examining())
    assert cache.is_intact(found_by(one))


# What changes


def test_a_model_that_is_replaced_while_it_is_converted_is_not_kept(
    model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examining = Examining(lambda: model.write_bytes(b"22"))
    monkeypatch.setattr(converting, "examine", examining)
    one = conversion(model)
    with pytest.raises(ModelError, match="files have changed while it was converted"):
        found_by(one)
    assert not list(own_cache.iterdir())
    found_by(one)
    model.write_bytes(b"333")
    with pytest.raises(ModelError, match="files have changed"):  # it is examined once more
        found_by(one)
    assert examining.count == 3
    model.unlink()
    with pytest.raises(ModelError, match=r"model\.pb cannot be read"):
        found_by(one)


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (ModelError("tf2onnx refuses it"), False),
        (SessionBroken("the worker was killed by SIGSEGV"), False),
        (SessionBroken("the worker ended with code 1"), False),
        (SessionBroken("killed by SIGSEGV (its memory is limited to 1.0 GiB)"), True),
        (SessionBroken("the worker was killed by SIGTERM"), True),
        (SessionBroken("the worker was killed by SIGKILL"), True),
        (BudgetExceeded("memory='1GiB' was reached"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
    ],
)
def test_a_refusal_is_kept_if_it_is_about_the_model(error: Exception, may_pass: bool) -> None:
    assert examining._may_pass(error) == may_pass


@pytest.mark.parametrize(("engine", "tries"), [("litert", 2), ("fastest", 1)])
def test_what_may_pass_is_tried_again_by_name_at_once_and_otherwise_after_a_while(
    model: Path, engine: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examining_it = Examining(refusal="no memory", is_passing=True)
    monkeypatch.setattr(converting, "examine", examining_it)
    one = conversion(model, engine)
    for _ in range(2):
        found_by(one)
    assert examining_it.count == tries
    monkeypatch.setattr(one, "_until", 0.0)
    found_by(one)
    assert examining_it.count == tries + 1


def test_a_model_with_an_engine_can_be_sent_elsewhere() -> None:
    blueprint = pickle.loads(pickle.dumps(Blueprint(scaled, engine="fastest", tolerance=1e-3)))
    assert blueprint._conversion._wanted == "fastest"
    assert blueprint._conversion._tolerance == 1e-3


# Sessions


def scaled() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    return {"x": x}, {"y": tf.matmul(x, tf.constant(np.arange(16).reshape(4, 4), tf.float32))}


@needs_engines
def test_a_converted_model_that_is_damaged_is_made_again(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blueprint = Blueprint(scaled, engine="litert")

    def weight(session: sojourn.Session) -> float:
        return float(session.run("y", {"x": np.eye(4, dtype=np.float32)})[1, 3])

    with blueprint.open(caller()) as session:
        assert weight(session) == 7
    [file] = own_cache.glob(".sojourn-new-*/model.tflite")
    damaged = file.read_bytes().replace(np.float32(7).tobytes(), np.float32(8).tobytes())
    file.write_bytes(damaged)
    with blueprint.open(caller()) as session:
        shutil.rmtree(own_cache)  # which harms no session that is open
        assert session.engine.startswith("litert ")
        assert weight(session) == 7
    with blueprint.open(caller()) as session:
        assert weight(session) == 7


@needs_engines
def test_a_worker_comes_back_though_the_cache_was_cleared(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sojourn.open(scaled, engine="litert", restart="from-checkpoint") as session:
        shutil.rmtree(own_cache)
        os.kill(session.pid, signal.SIGKILL)
        for _ in range(2):
            assert session.run("y", {"x": np.eye(4, dtype=np.float32)})[1, 3] == 7
        assert session.engine == "tensorflow: the converted model is no longer in the cache"


@needs_engines
@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_a_worker_loads_no_other_file_than_the_one_that_was_proven(
    kind: str, tmp_path: Path
) -> None:
    load = Load(kind=kind, path=str(tmp_path / "model"), sha256="0" * 64)
    with pytest.raises(ModelError, match=r"the converted model cannot be read: .*No such file"):
        import_kind(kind).load(load, ())
    (tmp_path / "model").write_bytes(b"another")
    with pytest.raises(ModelError, match=r"the converted model in .* is damaged"):
        import_kind(kind).load(load, ())
