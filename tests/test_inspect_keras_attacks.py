"""Keras files made to deceive `sojourn inspect`: weights, configurations, and their reader."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sojourn.errors import ModelError
from sojourn.probes.model_files import Finding, ModelSummary, hdf5_files, inspect_model
from sojourn.probes.model_files.hdf5_files import read_hdf5
from wire_writer import field, node, saved_model

PLAIN = {"class_name": "Sequential", "config": {}}


def hdf5(write: Any) -> bytes:
    h5py: Any = importlib.import_module("h5py")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        write(h5py, file)
    return content.getvalue()


def linked(h5py: Any, file: Any) -> None:
    file["kernel"] = [1.0, 2.0]
    file["bias"] = h5py.ExternalLink("/etc/passwd", "/x")


def virtual(h5py: Any, file: Any) -> None:
    layout = h5py.VirtualLayout((4,), "u1")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4,), "u1")
    file.create_virtual_dataset("kernel", layout)
    file["own"] = [1.0]
    inside = h5py.VirtualLayout((1,), "f8")
    inside[:] = h5py.VirtualSource(".", "own", (1,), "f8")
    file.create_virtual_dataset("inside", inside)


def external(h5py: Any, file: Any) -> None:
    file.create_dataset("kernel", (4,), "u1", external=[("/etc/passwd", 0, 4)])


def archive(path: Path, config: Any = PLAIN, weights: bytes = b"", method: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("config.json", json.dumps(config))
        if weights:
            file.writestr("model.weights.h5", weights)
    return path


def dangers(summary: ModelSummary) -> set[tuple[str, str]]:
    return {(f.name, f.detail) for f in summary.findings if f.severity == "danger"}


# Weights


@pytest.mark.parametrize(
    ("write", "danger"),
    [
        (linked, ("bias", "leads to /etc/passwd")),
        (virtual, ("kernel", "its data is in /etc/passwd")),
        (external, ("kernel", "its data is in /etc/passwd")),
    ],
)
def test_weights_that_lie_in_another_file_are_a_danger(
    tmp_path: Path, write: Any, danger: tuple[str, str]
) -> None:
    content = hdf5(write)
    (tmp_path / "m.h5").write_bytes(content)
    assert dangers(inspect_model(tmp_path / "m.h5")) == {danger}
    packed = inspect_model(archive(tmp_path / "m.keras", weights=content))
    assert dangers(packed) == {danger}
    assert {f.where for f in packed.findings} == {"model.weights.h5"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_weights_in_an_archive_are_reported(tmp_path: Path, method: int) -> None:
    content = hdf5(lambda h5py, file: file.create_dataset("kernel", (2, 3), "f4"))
    summary = inspect_model(archive(tmp_path / "m.keras", weights=content, method=method))
    [weight] = summary.weights
    assert (weight.name, str(weight.spec), weight.size_bytes) == ("kernel", "float32[2, 3]", 24)
    assert (summary.unread, summary.findings) == ((), ())


def test_weights_that_cannot_be_read_are_reported_beside_the_rest(tmp_path: Path) -> None:
    summary = inspect_model(archive(tmp_path / "m.keras", weights=b"\x89HDF\r\n\x1a\n and no more"))
    assert dict(summary.layers) == {"Sequential": 1}
    [reason] = summary.unread
    assert reason.startswith("its weights: damaged: not a readable HDF5 file")
    with zipfile.ZipFile(tmp_path / "other.keras", "w") as file:
        file.writestr("config.json", "{}")
        file.writestr("model.weights.npz", "x")
    [reason] = inspect_model(tmp_path / "other.keras").unread
    assert reason == "its weights: model.weights.npz is not read here"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_a_danger(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", {"class_name": "Lambda"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("config.json", json.dumps(PLAIN))
    assert dangers(inspect_model(path)) == {("config.json", "each reader takes another of them")}


# Configurations


@pytest.mark.parametrize(
    ("layer", "detail"),
    [
        (
            {"class_name": "TFSMLayer", "config": {"filepath": "/tmp/evil"}},
            "loads a SavedModel from elsewhere, /tmp/evil",
        ),
        ({"class_name": "TorchModuleWrapper", "config": {}}, "a pickled PyTorch module"),
        ({"class_name": "Custom>Lambda", "config": {}}, "Python code stored in the model"),
        (
            {"class_name": "TFOpLambda", "config": {"function": "io.write_file"}},
            "calls io.write_file",
        ),
        (
            {"class_name": "function", "module": "builtins", "config": "load_model"},
            "calls load_model",
        ),
        (
            {"class_name": "enable_unsafe_deserialization", "module": "keras.config"},
            "calls enable_unsafe_deserialization",
        ),
        ({"class_name": "X", "module": "keras.src.datasets.x"}, "a helper of keras.src.datasets.x"),
        ({"class_name": "f", "module": "tensorflow.io"}, "a helper of tensorflow.io"),
        ({"class_name": "f", "module": "tensorflow"}, "a helper of tensorflow"),
    ],
)
def test_what_a_configuration_can_run_is_a_danger(
    tmp_path: Path, layer: dict[str, Any], detail: str
) -> None:
    summary = inspect_model(archive(tmp_path / "m.keras", {"class_name": "M", "config": [layer]}))
    assert dangers(summary) == {(layer["class_name"], detail)}


@pytest.mark.parametrize(
    "layer",
    [
        {"class_name": "Dense", "module": "keras.layers"},
        {"class_name": "Functional", "module": "keras.src.models.functional"},
        {"class_name": "Sequential", "module": "keras"},
        {"class_name": "DTypePolicy", "module": "keras"},
        {"class_name": "Adam", "module": "keras.src.legacy.optimizers"},
        {"class_name": "Dense", "module": "tensorflow.keras.layers"},
        {"class_name": "Dense", "module": "tensorflow.python.keras.layers.core"},
        {"class_name": "TFOpLambda", "config": {"function": "math.add"}},
        {"class_name": "BertBackbone", "module": "keras_hub.src.models.bert.bert_backbone"},
    ],
)
def test_what_honest_models_are_made_of_is_none(tmp_path: Path, layer: dict[str, Any]) -> None:
    assert inspect_model(archive(tmp_path / "m.keras", {"config": [layer]})).findings == ()


def test_a_lambda_noted_beside_a_saved_model_is_found_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(saved_model(field(2, node("c", "Const"))))
    spelled = r'{"config":{"layers":[{"class_name":"\u004cambda"}]}}'
    (tmp_path / "keras_metadata.pb").write_bytes(field(1, field(3, "root"), field(5, spelled)) * 2)
    [finding] = inspect_model(tmp_path, check_ops=False).findings
    assert (finding.name, finding.where, finding.count) == ("Lambda", "keras_metadata.pb", 2)


# The process that reads HDF5


def test_the_reader_of_hdf5_reaches_nothing_but_the_file(tmp_path: Path) -> None:
    (tmp_path / "m.h5").write_bytes(hdf5(linked))
    (tmp_path / "secret").write_text("secret")
    code = (
        "import sys, socket, subprocess\n"
        "from sojourn.process.hdf5_reader import _close_off\n"
        "assert _close_off(sys.argv[1])\n"
        "assert open(sys.argv[1], 'rb').read(4) == b'\\x89HDF'\n"
        "for attack in (\n"
        "    lambda: open(sys.argv[2]),\n"
        "    lambda: open(sys.argv[1], 'r+b'),\n"
        "    lambda: open(sys.argv[2] + '2', 'w'),\n"
        "    lambda: socket.socket(),\n"
        "    lambda: subprocess.run(['/bin/true']),\n"
        "):\n"
        "    try:\n"
        "        attack()\n"
        "    except PermissionError:\n"
        "        print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(tmp_path / "m.h5"), str(tmp_path / "secret")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["refused"] * 5


def test_the_reader_of_hdf5_sees_neither_the_environment_nor_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.h5").write_bytes(hdf5(linked))
    for name in ("h5py", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("import os; os.abort()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HDF5_PLUGIN_PATH", str(tmp_path))
    told = read_hdf5("m.h5")
    assert told is not None
    assert [weight.name for weight in told.weights] == ["kernel"]
    monkeypatch.setenv("SECRET", "key")
    script = tmp_path / "reader.py"
    script.write_text("import os; print('{\"error\": \"%s\"}' % os.environ.get('SECRET'))")
    monkeypatch.setattr(hdf5_files, "_READER", (sys.executable, "-I", str(script)))
    with pytest.raises(ModelError, match="None"):
        read_hdf5("m.h5")


@pytest.mark.parametrize(
    "answer",
    ["[]", "{}", "3", '{"weights": 3}', "[" * 100_000, '{"weights": [[1]], "outside": []}', ""],
)
def test_whatever_the_reader_of_hdf5_answers_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    script, model = tmp_path / "reader.py", tmp_path / "m.h5"
    script.write_text(f"print({answer!r})")
    model.write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setattr(hdf5_files, "_READER", (sys.executable, str(script)))
    with pytest.raises(ModelError, match="the HDF5 library fails on it"):
        inspect_model(model)


def test_an_answer_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.h5").write_bytes(hdf5(linked))
    assert read_hdf5(str(tmp_path / "m.h5"))
    monkeypatch.setattr(hdf5_files, "_LONGEST_ANSWER", 10)
    with pytest.raises(ModelError, match="the HDF5 library fails on it"):
        read_hdf5(str(tmp_path / "m.h5"))
    code = (
        "import sys; from sojourn.process import hdf5_reader as reader\n"
        "reader._LONGEST_ANSWER = 10; reader.main(sys.argv[1])"
    )
    with (tmp_path / "answer").open("wb") as answer:
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "m.h5")],
            stdout=answer,
            stderr=subprocess.DEVNULL,
        )
    assert done.returncode != 0
    assert (tmp_path / "answer").stat().st_size <= 10


def test_a_configuration_in_hdf5_that_is_too_large_is_refused(tmp_path: Path) -> None:
    def write(h5py: Any, file: Any) -> None:
        file.attrs["model_config"] = " " * (17 << 20)

    (tmp_path / "m.h5").write_bytes(hdf5(write))
    with pytest.raises(ModelError, match="larger than 16 MiB"):
        inspect_model(tmp_path / "m.h5")


def test_a_reader_without_the_sandbox_says_so() -> None:
    told = {"config": None, "version": "", "weights": [], "outside": [], "closed": False}
    [finding] = hdf5_files._content(told).findings
    assert isinstance(finding, Finding)
    assert (finding.severity, finding.what) == ("note", "read without the sandbox")
