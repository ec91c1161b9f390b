"""Every kind of model file opens, and gives what TensorFlow and Keras give."""

from __future__ import annotations

import os
import pickle
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import model_files
import sojourn
from sojourn.probes.model_files import inspect_model
from wire_writer import index_of

pytestmark = pytest.mark.usefixtures("zygote")

CASES = [
    "dense.keras", "dense.h5", "dense_saved", "conv.keras", "conv_saved", "recurrent.keras",
    "recurrent_saved", "text.keras", "text_saved", "several.keras", "several_saved",
    "dynamic shapes", "static table", "TensorFlow 1 SavedModel", "SavedModel by tags", "frozen",
    "frozen as text", "meta graph by prefix", "meta graph by folder",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    sojourn.isolated(model_files.main)(str(made))
    return made


@pytest.fixture(scope="module")
def cases(folder: Path) -> Any:
    return pickle.loads((folder / "cases.pickle").read_bytes())


@pytest.fixture(scope="module")
def dense(folder: Path, zygote: None) -> Iterator[sojourn.Session]:
    with sojourn.open(folder / "dense_saved") as session:
        session(x=np.ones((1, 8)))
        yield session


@pytest.mark.parametrize("name", CASES)
def test_a_model_gives_what_the_framework_gives(name, cases, folder):
    path, options, inputs, expected = cases[name]
    with sojourn.open(folder / path, **options) as session:
        assert set(session.signature.inputs) == set(inputs)
        assert set(session.signature.outputs) == set(expected)
        got = session.run(None, inputs)
    for output, value in expected.items():
        assert got[output].dtype == value.dtype
        np.testing.assert_allclose(got[output], value, rtol=1e-4, atol=1e-5)


def test_every_case_is_tested(cases):
    assert sorted(cases) == sorted(CASES)


def test_the_signature_tells_names_dtypes_and_shapes(folder):
    with sojourn.open(folder / "several.keras") as session:
        assert str(session.signature) == (
            "(left: float32[?, 4], right: int32[?, 3]) -> "
            "(first: float32[?, 2], second: float32[?, 5])"
        )


def test_dynamic_shapes_take_any_size(folder):
    with sojourn.open(folder / "scaler", signature="scale") as session:
        for shape in ((1, 1), (2, 5), (7, 0)):
            assert session.run("y", {"x": np.ones(shape)}).shape == shape


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (lambda s: s.run("z", {"x": np.ones((1, 8))}), "no output 'z'; there are output_0"),
        (lambda s: s.run("output_0", {"image": np.ones((1, 8))}), "no input 'image'; there are x"),
        (lambda s: s.run("output_0"), "the input 'x' must be fed"),
        (lambda s: s(x=np.ones((1, 8), complex)), "takes float32"),
        (lambda s: s(x=np.ones(8)), r"takes float32\[\?, 8\]; got float.*\[8\]"),
        (lambda s: s(x="text"), "takes float32"),
    ],
)
def test_a_wrong_input_is_refused_with_what_there_is(dense, run, told):
    with pytest.raises(sojourn.InputError, match=told):
        run(dense)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("nowhere", "there is nothing at"),
        ("empty_folder", "is empty"),
        ("empty.keras", "is empty"),
        ("model_files", "there is nothing at"),
        ("empty_saved", "holds no graph"),
        ("truncated_saved", "cannot be read"),
        ("no_variables", "variables of the SavedModel"),
        ("no_signatures", "has no signatures"),
        ("truncated.keras", "is truncated or damaged"),
        ("truncated.h5", "Keras cannot load"),
        ("only.weights.h5", "holds weights but no model"),
        ("unknown_op.pb", "OpOfAnotherWorld"),
        ("text.pb", "is not a frozen graph"),
        ("dense_saved/saved_model.pb", "open its folder"),
        ("cases.pickle", "unrecognised model format"),
        (".", "neither a SavedModel"),
    ],
)
def test_what_is_not_a_model_says_why_and_leaves_nothing(folder, path, told):
    with pytest.raises(sojourn.ModelError, match=told):
        sojourn.open(os.path.join(folder, path))


def test_a_folder_of_versions_says_which_to_open(folder, tmp_path):
    for version in ("2", "10"):
        shutil.copytree(folder / "dense_saved", tmp_path / "dense" / version)
    for look in (sojourn.open, inspect_model):
        with pytest.raises(sojourn.ModelError, match=f"open {tmp_path}/dense/10$"):
            look(tmp_path / "dense")


@pytest.mark.parametrize(
    ("path", "options", "told"),
    [
        ("scaler", {}, r"signatures \[.*choose one"),
        ("scaler", {"signature": "shrink"}, "no signature 'shrink'; there are"),
        ("tf1_saved", {"tags": "gpu"}, r"no graph tagged \['gpu'\]; there are"),
        ("frozen.pb", {"outputs": ["nothing:0"]}, "no 'nothing:0'"),
    ],
)
def test_a_choice_that_is_not_there_is_refused_with_what_there_is(folder, path, options, told):
    with pytest.raises(sojourn.ModelError, match=told):
        sojourn.open(folder / path, **options)


def test_a_loaded_model_is_reset_to_the_values_it_was_loaded_with(folder):
    with sojourn.open(folder / "scaler", signature="grow") as session:
        first = session(by=1.0)
        assert first["factor"] == 4
        assert session(by=1.0)["factor"] == 5
        session.reset()
        again = session(by=1.0)
    assert again["factor"] == 4
    np.testing.assert_array_equal(again["draw"], first["draw"])


def test_reference_variables_of_a_meta_graph_are_reset_too(folder):
    options = {"inputs": ["x:0"], "outputs": ["y:0"]}
    with sojourn.open(folder / "meta", **options) as session:
        before = session.run("w:0")
        session.run("grow")
        assert (session.run("w:0") == before + 1).all()
        session.reset()
        np.testing.assert_array_equal(session.run("w:0"), before)


def test_text_that_is_no_graph_is_called_so(tmp_path):
    path = tmp_path / "graph.pbtxt"
    path.write_text('node { name: "x" op')
    with pytest.raises(sojourn.ModelError, match="is not a frozen graph: 1:20"):
        sojourn.open(path)


def test_a_meta_file_is_one_graph_for_who_inspects_it_and_who_opens_it(tmp_path):
    text = b'g\ngraph_def { node { name: "x" op: "NoOp" } }'
    # As protobuf: fields that are skipped, the last (C3 A9 01 is its length) with the text in it.
    # Protobuf itself looks into that one and refuses it. As text: a comment, and a graph.
    both = b"meta_info_def{}#abc:\xc3\xa9\x01" + text.ljust(0x43 + (0x29 << 7) + (1 << 14))
    (tmp_path / "m.meta").write_bytes(both)
    (tmp_path / "m.index").write_bytes(index_of())
    with pytest.raises(sojourn.ModelError, match=r"m\.meta: not a model: no graph with nodes"):
        inspect_model(tmp_path / "m", check_ops=False)
    with pytest.raises(sojourn.ModelError, match=r"m\.meta is not a meta graph"):
        sojourn.open(tmp_path / "m", inputs=[], outputs=[])


def test_the_code_of_the_page_runs(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    page = Path(__file__).parent.parent / "docs" / "models.md"
    block, *_ = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    names = {"sojourn": sojourn, "x": np.zeros((1, 3))}
    exec(block, names)
    np.testing.assert_allclose(names["everything"]["probabilities"], np.full((1, 3), 1 / 3))
    assert "(image: float32[?, 3]) -> (probabilities: float32[?, 3])" in capsys.readouterr().out


def test_the_example_opens_a_saved_model_without_tensorflow():
    # In an interpreter of its own: other tests may have loaded TensorFlow into this one.
    example = Path(__file__).parent.parent / "examples" / "open_saved_model.py"
    ended = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    shown = ended.stdout
    assert "add up to [1.0, 1.0]" in shown
    assert "there is no input 'petals'; there are measurements" in shown
    assert "nothing left behind" in shown
    assert "TensorFlow loaded here: False" in shown


def test_the_example_builds_a_keras_model_in_the_worker(capsys):
    examples = Path(__file__).parent.parent / "examples"
    runpy.run_path(str(examples / "open_keras_builder.py"), run_name="__main__")
    assert "heights of a grid: (1000, 1)" in capsys.readouterr().out


def test_a_model_at_a_path_that_is_not_valid_text_is_refused_in_words(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.keras")
    path.write_bytes(b"PK\x03\x04")
    for untrusted in (False, True):
        with pytest.raises(sojourn.ModelError, match="valid UTF-8"):
            sojourn.open(path, untrusted=untrusted)
