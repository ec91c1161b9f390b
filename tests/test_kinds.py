"""One record for each kind of model, and one recogniser for those who open and those who look."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import inspected_models
import sojourn
from sojourn.engines.hooks import FRAMEWORKS
from sojourn.errors import ModelError
from sojourn.kinds import KINDS, Kind, Load
from sojourn.kinds.paths import recognise
from sojourn.kinds.record import OPTIONS
from sojourn.probes.model_files import inspect_model
from sojourn.values import TensorSpec
from wire_writer import field

models = inspected_models.models  # a fixture


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_record_names_things_that_are_there(kind: Kind) -> None:
    assert set(kind.options) <= set(OPTIONS)
    assert kind.framework in FRAMEWORKS
    for named in filter(None, (kind.loader, kind.reader, kind.files)):
        module, _, name = named.partition(":")
        spec = importlib.util.find_spec(module)  # which imports no framework
        assert spec is not None
        source = Path(str(spec.origin)).read_text()
        assert name in {getattr(part, "name", "") for part in ast.parse(source).body}
    assert not (kind.loader and kind.instead)
    if kind.suffixes or kind.begins:
        assert kind.reader  # what is recognised can be looked at


def test_the_table_itself_imports_no_framework_and_no_reader():
    code = (
        "import sys, sojourn.kinds.paths\n"
        "found = [m for m in sys.modules if m.startswith(('tensorflow', 'keras', 'numpy',"
        " 'sojourn.engines', 'sojourn.probes'))]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_frozen_graph_is_a_model_by_any_name(models: Path, tmp_path: Path) -> None:
    for name in ("m.bin", "weights", "m.pb.old"):
        path = tmp_path / name
        shutil.copy(models / "frozen.pb", path)
        assert inspect_model(path, check_ops=False).kind == "frozen graph"
        with sojourn.open(path) as session:
            assert session.signature.inputs


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.txt", b"hello"),
        ("m.bin", b"\x0a\x03abc"),
        ("m.bin", b"\x0a"),
        ("m.bin", b"\x0a\xff\xff\xff\xff\xff\xff"),
        ("m.bin", field(1, field(1, b"\xff\xfe"))),
        ("m.keras", b"neither archive nor HDF5"),
        ("m.keras", b"before it" + b"PK\x03\x04"),
        ("m.h5", b"no HDF5"),
        ("m.pb", b""),
    ],
)
def test_what_one_does_not_recognise_the_other_does_not_either(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    told = []
    for look in (inspect_model, sojourn.open):
        with pytest.raises(ModelError) as refused:
            look(path)
        told.append(str(refused.value))
    assert told[0] == told[1]


def test_what_can_only_be_looked_at_says_what_to_open_instead(models: Path, tmp_path: Path) -> None:
    keras_file = tmp_path / "archive"
    keras_file.write_bytes(b"PK\x03\x04")
    for path, told in (
        (models / "just.weights.h5", "holds weights but no model"),
        (models / "honest" / "saved_model.pb", "open its folder"),
        (keras_file, r"its name must end in \.keras or \.h5"),
    ):
        recognise(os.fspath(path))  # known
        with pytest.raises(ModelError, match=told):
            sojourn.open(path)


def test_a_load_crosses_as_it_is() -> None:
    load = Load(
        kind="frozen",
        path="m.pb",
        inputs={"x": "x:0", "y": TensorSpec("float32", (None, 2))},
        initializer=["init"],
        seed=3,
    )
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(load))
    assert msgspec.convert(sent, Load) == load


def test_a_choice_of_the_wrong_type_is_named(models: Path) -> None:
    with pytest.raises(TypeError, match="signature must be a string, not 5"):
        sojourn.open(models / "honest", signature=5)  # type: ignore[arg-type]
