"""Models that nobody vouches for: honest ones run, hostile ones touch nothing."""

from __future__ import annotations

import os
import shutil
import sys
import types

import numpy as np
import pytest

import hostile_models
import models
import sojourn
from sojourn.engines import distrust
from sojourn.kinds.marks import HDF5
from sojourn.process.sandbox import Applied
from sojourn.process.worker import Worker

pytestmark = pytest.mark.usefixtures("zygote")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, zygote):
    folder = tmp_path_factory.mktemp("hostile")
    secret = folder / "secret"
    secret.write_text("the secret")
    made = folder / "models"
    made.mkdir()
    sojourn.isolated(hostile_models.write)(str(made), str(secret))
    return made


def test_an_honest_model_runs_as_ever(folder):
    with sojourn.open(folder / "honest", untrusted=True) as session:
        assert session.run("y", {"x": [1.0, 2.0]}).tolist() == [2.0, 4.0]
        big = np.ones(2**20, np.float32)
        assert session.run("y", {"x": big}).sum() == 2 * 2**20
    assert session.receipt.clean


def test_a_model_cannot_read_a_file_of_the_user(folder):
    with sojourn.open(folder / "reads") as trusted:
        assert b"the secret" in trusted.run("y", {"x": [1.0]})
    with (
        sojourn.open(folder / "reads", untrusted=True) as session,
        pytest.raises(Exception, match=r"(?i)permission"),
    ):
        session.run("y", {"x": [1.0]})


def test_what_lies_beside_the_model_is_not_the_model(folder, tmp_path):
    for name in ("m.v1", "m.v1.data"):
        shutil.copytree(folder / "reads_any", tmp_path / name)
    (tmp_path / "m.sqlite").write_text("the secret")
    (tmp_path / "m.assets").symlink_to(folder.parent)
    inside = tmp_path / "m.v1" / "assets"
    inside.symlink_to(folder.parent)
    others = ["m.sqlite", "m.assets/secret", "m.v1.data/saved_model.pb", "m.v1/assets/secret"]
    with sojourn.open(tmp_path / "m.v1") as trusted:
        for other in others:
            assert trusted.run("y", {"x": str(tmp_path / other)})
    with sojourn.open(tmp_path / "m.v1", untrusted=True) as session:
        assert session.run("y", {"x": str(tmp_path / "m.v1/saved_model.pb")})
        for other in others:
            with pytest.raises(Exception, match=r"(?i)permission"):
                session.run("y", {"x": str(tmp_path / other)})


def test_of_a_checkpoint_only_its_own_files_are_readable(folder):
    (folder / "beside.sqlite").write_text("the secret")
    (folder / "beside.meta-secret").symlink_to(folder.parent)
    others = ["beside.sqlite", "beside.meta-secret/secret", "beside.meta.old.index", "checkpoint"]
    for named in ("beside", "beside.meta"):
        with sojourn.open(folder / named, outputs={"y": "y:0"}, untrusted=True) as session:
            for own in ("meta", "index", "data-00000-of-00001"):
                assert session.run("y", {"x": str(folder / f"beside.{own}")})
            for other in others:
                with pytest.raises(Exception, match=r"(?i)permission"):
                    session.run("y", {"x": str(folder / other)})


def test_a_link_is_not_opened_as_an_untrusted_model(folder, tmp_path):
    (tmp_path / "folder").symlink_to(folder / "honest")
    with pytest.raises(sojourn.ModelError, match=r"is a link to .*honest"):
        sojourn.open(tmp_path / "folder", untrusted=True)
    for part in ("beside.meta", "beside.index"):
        shutil.copy(folder / part, tmp_path / part)
    (tmp_path / "beside.data-00000-of-00001").symlink_to(folder.parent)
    with pytest.raises(sojourn.ModelError, match="not a regular file"):
        sojourn.open(tmp_path / "beside", untrusted=True)
    (tmp_path / "model.keras").symlink_to(folder / "honest.keras")  # one file, and it was named
    with sojourn.open(tmp_path / "model.keras", untrusted=True) as session:
        assert session(**{next(iter(session.signature.inputs)): [[1.0]]}).shape == (1, 1)


def test_an_init_op_cannot_write_a_file_when_the_model_is_loaded(folder):
    with pytest.raises(sojourn.ModelError, match="WriteFile"):
        sojourn.open(folder / "writes", untrusted=True)
    assert not os.path.exists(folder / "pwned")
    sojourn.open(folder / "writes").close()
    assert os.path.exists(folder / "pwned")  # it does when it is trusted


def test_an_endless_loop_at_load_ends_at_the_deadline(folder):
    with pytest.raises(sojourn.StepTimeout, match="did not load its model within"):
        sojourn.open(folder / "endless", untrusted=True, timeout=1.0)


def test_a_giant_tensor_meets_the_limit_that_untrusted_models_have(folder):
    with (
        sojourn.open(folder / "giant", untrusted=True) as session,
        pytest.raises(Exception, match="OOM"),
    ):
        session.run("y", {"x": [2.0**17]})


def test_many_copies_of_a_tensor_meet_the_limit_too(folder):
    with sojourn.open(folder / "copies", untrusted=True, memory="256MiB") as session:
        assert session.run("y3", {"x": [2.0]})[-1] == 2
        with pytest.raises(MemoryError, match=r"message of 384 MiB is more than"):
            session.run(None, {"x": [2.0]})
        assert session.run("y4", {"x": [3.0]})[-1] == 3  # it goes on
    assert session.receipt.clean


def test_a_lambda_layer_with_code_is_refused(folder):
    with pytest.raises(sojourn.ModelError, match=r"(?i)lambda"):
        sojourn.open(folder / "lambda.keras", untrusted=True)
    # Not every version of Keras refuses it in the older format, so that is not left to Keras.
    with pytest.raises(sojourn.ModelError, match=r"lambda\.h5 holds Python code"):
        sojourn.open(folder / "lambda.h5", untrusted=True)
    with sojourn.open(folder / "honest.h5", untrusted=True) as session:
        assert session(**{next(iter(session.signature.inputs)): [[1.0]]}).shape == (1, 1)


def test_saving_from_an_untrusted_worker_is_refused(folder, tmp_path):
    with (
        sojourn.open(folder / "honest", untrusted=True) as session,
        pytest.raises(sojourn.CheckpointError, match="writes nothing"),
    ):
        session.save(tmp_path / "state")


def test_what_makes_no_sense_is_refused(folder):
    with pytest.raises(ValueError, match="models in files"):
        sojourn.open(models.adder, untrusted=True)
    with pytest.raises(ValueError, match="not inline"):
        sojourn.open(folder / "honest", untrusted=True, isolation="inline")
    with pytest.raises(ValueError, match="on the CPU"):
        sojourn.open(folder / "honest", untrusted=True, device="gpu")
    with pytest.raises(ValueError, match="best-effort"):
        sojourn.open(folder / "honest", untrusted="somewhat")


def test_what_it_prints_cannot_steer_the_terminal(folder, capsys):
    with sojourn.open(folder / "prints", untrusted=True) as session:
        session.run("y", {"x": 3})
        assert capsys.readouterr().out == "\\x1b]0;pwned\\x07aaa\n"
    with sojourn.open(folder / "prints") as trusted:
        trusted.run("y", {"x": 3})
        assert capsys.readouterr().out == "\x1b]0;pwned\x07aaa\n"


def test_what_it_prints_comes_to_an_end(folder, capsys):
    with sojourn.open(folder / "prints", untrusted=True) as session:
        for _ in range(4):
            session.run("y", {"x": 2**19})
        shown = capsys.readouterr().out
        assert shown.endswith("a\n(an untrusted model prints too much: no more of it is shown)\n")
        assert shown.count("too much") == 1
        assert 2**20 < len(shown) < 2**20 + 200


def test_its_errors_are_plain_text(folder):
    path = {"x": "/\x1b[2Jpwned"}
    with (
        sojourn.open(folder / "reads_any") as trusted,
        pytest.raises(Exception, match="\x1b"),  # what TensorFlow itself makes of it
    ):
        trusted.run("y", path)
    with (
        sojourn.open(folder / "reads_any", untrusted=True) as session,
        pytest.raises(Exception, match=r"^[^\x1b]*\\x1b\[2Jpwned[^\x1b]*$"),
    ):
        session.run("y", path)


@pytest.mark.parametrize("what", ["a pipe", "a device", "a huge line", "a folder", "gone"])
def test_opening_waits_for_nothing_in_a_hostile_folder(folder, tmp_path, what):
    """The client itself looks at `checkpoint`, before there is a worker or a deadline."""
    for part in ("beside.meta", "beside.index", "beside.data-00000-of-00001"):
        shutil.copy(folder / part, tmp_path / part)
        shutil.copy(folder / part, tmp_path / part.replace("beside", "older"))
    listed = tmp_path / "checkpoint"
    match what:
        case "a pipe":
            os.mkfifo(listed)
        case "a device":
            listed.symlink_to("/dev/zero")
        case "a folder":
            listed.mkdir()
        case "gone":
            listed.symlink_to(tmp_path / "nowhere")
        case "a huge line":
            with open(listed, "wb") as file:
                file.truncate(2**40)
    # It names none of them, so the last by name is the model.
    with sojourn.open(tmp_path, untrusted=True, outputs={"y": "y:0"}) as session:
        assert session.run("y", {"x": str(tmp_path / "older.meta")})


def test_opening_a_pipe_or_a_device_as_a_model_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "model.keras")
    (tmp_path / "model.pb").symlink_to("/dev/zero")
    for name in ("model.keras", "model.pb"):
        with pytest.raises(sojourn.ModelError, match="nothing at"):
            sojourn.open(tmp_path / name, untrusted=True)


def test_what_is_in_force_can_be_asked(folder):
    with sojourn.open(folder / "honest", untrusted=True) as session:
        assert session.sandbox.is_whole
        assert session.sandbox.landlock_abi >= 1
        assert str(session.sandbox).startswith("sandbox: landlock (version ")
        assert all("(additional)" in text for text in session.sandbox.missing)
    with sojourn.open(folder / "honest") as trusted:
        assert trusted.sandbox is None


@pytest.fixture
def without_landlock(monkeypatch):
    """Workers that tell what those tell whose kernel has no Landlock."""
    real = Worker.call

    def call(self, name, *arguments, **options):
        if name == "sandbox":
            return Applied(0, True, True, ("closing off the file system: needs Landlock",)), []
        return real(self, name, *arguments, **options)

    monkeypatch.setattr(Worker, "call", call)


def test_best_effort_with_a_protection_missing_is_a_warning_and_an_event(folder, without_landlock):
    heard = []
    stop = sojourn.events.subscribe(heard.append)
    with (
        pytest.warns(RuntimeWarning, match="not closed off: .*needs Landlock") as warned,
        sojourn.open(folder / "honest", untrusted="best-effort") as session,
    ):
        assert not session.sandbox.is_whole
    stop()
    assert warned[0].filename == __file__
    told = [event for event in heard if event.kind == "sandbox.incomplete"]
    assert [event.session for event in told] == [session.name]


def test_who_makes_that_warning_an_error_gets_no_session(folder, without_landlock):
    with pytest.raises(RuntimeWarning, match="not closed off"):
        sojourn.open(folder / "honest", untrusted="best-effort")


@pytest.mark.parametrize("error", [KeyError, RuntimeError, OSError, ValueError, IndexError])
def test_whatever_the_hdf5_library_says_of_damage_is_a_model_error(tmp_path, monkeypatch, error):
    def refuse(*_: object) -> None:
        raise error("damaged")

    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=refuse))
    path = tmp_path / "model.h5"
    path.write_bytes(HDF5)
    with pytest.raises(sojourn.ModelError, match="cannot be read"):
        distrust.refuse_code_in_hdf5(str(path))


def test_code_in_hdf5_is_found_behind_whatever_a_file_begins_with(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "model.h5"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.attrs["model_config"] = '{"layers": [{"class_name": "Lambda"}]}'
    with path.open("r+b") as file:
        file.write(b"PK\x03\x04")
    with pytest.raises(sojourn.ModelError, match=r"model\.h5 holds Python code"):
        distrust.refuse_code_in_hdf5(str(path))
