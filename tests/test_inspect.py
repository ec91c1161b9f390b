"""What `sojourn inspect` finds in real models, honest and hostile, and what damage does to it."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.cli.inspect import command
from sojourn.errors import ModelError
from sojourn.probes.model_files import (
    Finding,
    ModelSummary,
    graphs,
    hdf5_files,
    inspect_model,
    keras_files,
    ops,
)
from sojourn.probes.model_files.checkpoints import parse_index
from sojourn.probes.model_files.graphs import parse_graph
from sojourn.probes.model_files.keras_files import inspect_keras
from sojourn.probes.model_files.meta_graphs import parse_meta_graph, parse_saved_model
from sojourn.values import TensorSpec


def build(folder: str) -> None:
    """Every kind of model, made by TensorFlow itself, in a process of its own."""
    os.chdir(folder)
    tf: Any = importlib.import_module("tensorflow")
    keras: Any = importlib.import_module("keras")
    h5py: Any = importlib.import_module("h5py")
    v1 = tf.compat.v1
    Path("words.txt").write_text("a\nb\n")

    class Lookup(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            words = tf.lookup.TextFileInitializer("words.txt", tf.string, -2, tf.int64, -1)
            self.table = tf.lookup.StaticHashTable(words, -1)
            self.w = tf.Variable(tf.ones([3, 2]), name="w")

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def serve(self, x: Any) -> Any:
            return {"y": x @ self.w, "n": self.table.size()}

    class Hostile(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([], tf.string, "path")])
        def read(self, path: Any) -> Any:
            return {"content": self.inner(path)}

        @tf.function
        def inner(self, path: Any) -> Any:
            tf.raw_ops.PrintV2(input="x", output_stream="file:///etc/motd")
            tf.raw_ops.PrintV2(input="x", output_stream="stderr")
            return tf.py_function(lambda p: p, [tf.io.read_file(path)], tf.string)

    lookup = Lookup()
    tf.saved_model.save(lookup, "honest", signatures=lookup.serve)
    hostile = Hostile()
    tf.saved_model.save(hostile, "hostile", signatures=hostile.read)

    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", [3, 2], initializer=v1.ones_initializer())
        y = tf.matmul(x, w, name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, "checkpoint/model.ckpt", global_step=7)
        frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])
        Path("frozen.pb").write_bytes(frozen.SerializeToString())
        save = tf.raw_ops.SaveV2(
            prefix="/tmp/x", tensor_names=["x"], shape_and_slices=[""], tensors=[w]
        )
        builder = v1.saved_model.Builder("init_writes")
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"predict": v1.saved_model.predict_signature_def({"x": x}, {"y": y})},
            main_op=tf.group(tf.io.write_file("/tmp/pwned", "x"), save),
        )
        builder.save()

    @keras.saving.register_keras_serializable("mine")  # type: ignore[untyped-decorator]
    class Own(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    layers = keras.layers
    plain = keras.Sequential([layers.Input((3,)), layers.Dense(2), layers.Dense(1)])
    plain.save("plain.keras")
    plain.save("plain.h5")
    odd = keras.Sequential([layers.Input((3,)), layers.Lambda(lambda x: x + 1), Own()])
    odd.save("lambda.keras")
    odd.save("lambda.h5")
    plain.save_weights("just.weights.h5")
    with h5py.File("external.h5", "w") as file:
        file["out"] = h5py.ExternalLink("/etc/passwd", "/x")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    subprocess.run(
        [sys.executable, "-c", "import sys, test_inspect as t; t.build(sys.argv[1])", str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=True,
        capture_output=True,
    )
    return folder


def dangers(summary: ModelSummary) -> set[tuple[str, str, str]]:
    return {(f.what, f.name, f.where) for f in summary.findings if f.severity == "danger"}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments])


# Honest models


def test_a_saved_model_tells_its_signature_weights_assets_and_ops(models: Path) -> None:
    summary = inspect_model(models / "honest")
    assert summary.kind == "SavedModel"
    assert summary.tags == ("serve",)
    assert summary.made_with.startswith("TensorFlow 2.")
    assert list(summary.signatures) == ["serving_default"]
    signature = summary.signatures["serving_default"]
    assert signature.inputs == {"x": TensorSpec("float32", (None, 3))}
    assert signature.outputs == {
        "n": TensorSpec("int64", ()),
        "y": TensorSpec("float32", (None, 2)),
    }
    assert [(w.name.split("/")[0], w.spec, w.size_bytes) for w in summary.weights] == [
        ("w", TensorSpec("float32", (3, 2)), 24)
    ]
    assert summary.assets == ("words.txt",)
    assert summary.ops["MatMul"] == 1
    assert summary.functions > 0
    assert not summary.is_dangerous
    assert summary.unchecked == ()
    by_file = inspect_model(models / "honest" / "saved_model.pb", check_ops=False)
    assert by_file.signatures == summary.signatures


def test_what_every_saver_does_is_a_note_and_no_danger(models: Path) -> None:
    notes = {f.name: f for f in inspect_model(models / "honest").findings}
    assert notes["SaveV2"].severity == notes["RestoreV2"].severity == "note"
    table = notes["InitializeTableFromTextFileV2"]
    assert (table.severity, table.detail) == ("note", "a table, from the model's assets")


def test_a_frozen_graph_tells_its_ops(models: Path) -> None:
    summary = inspect_model(models / "frozen.pb")
    assert summary.kind == "frozen graph"
    assert dict(summary.ops) == {"Placeholder": 1, "Const": 1, "Identity": 1, "MatMul": 1}
    assert summary.findings == ()


@pytest.mark.parametrize(
    "name", ["checkpoint", "checkpoint/model.ckpt-7", "checkpoint/model.ckpt-7.meta"]
)
def test_a_checkpoint_is_found_by_folder_prefix_or_file(models: Path, name: str) -> None:
    summary = inspect_model(models / name)
    assert summary.kind == "checkpoint"
    assert [(w.name, str(w.spec), w.size_bytes) for w in summary.weights] == [
        ("w", "float32[3, 2]", 24)
    ]
    assert summary.ops["MatMul"] == 1
    assert not summary.is_dangerous


@pytest.mark.parametrize("name", ["plain.keras", "plain.h5"])
def test_a_keras_file_tells_its_layers_and_inputs(models: Path, name: str) -> None:
    summary = inspect_model(models / name)
    assert dict(summary.layers) == {"Dense": 2, "Sequential": 1, "InputLayer": 1}
    [spec] = summary.signatures["inputs"].inputs.values()
    assert spec == TensorSpec("float32", (None, 3))
    assert summary.weight_bytes > 0
    assert summary.made_with.startswith("Keras 3.")
    assert summary.findings == ()


def test_a_file_of_weights_alone_says_so(models: Path) -> None:
    summary = inspect_model(models / "just.weights.h5")
    assert summary.unchecked == ("its layers: it holds weights only",)
    assert summary.weight_bytes > 0


# Hostile models


def test_an_init_op_that_writes_is_found_with_the_moment_it_would_run(models: Path) -> None:
    summary = inspect_model(models / "init_writes")
    assert dangers(summary) == {
        ("writes files", "WriteFile", "when loading"),
        ("writes files", "SaveV2", "when loading"),
    }
    assert list(summary.signatures) == ["predict"]


def test_danger_inside_nested_functions_is_found_with_its_signature(models: Path) -> None:
    summary = inspect_model(models / "hostile")
    where = "signature serving_default"
    assert dangers(summary) == {
        ("reads files", "ReadFile", where),
        ("runs code", "EagerPyFunc", where),
        ("writes files", "PrintV2", where),
    }
    [printed] = [f for f in summary.findings if f.name == "PrintV2"]
    assert printed.detail == "output_stream is file:///etc/motd"


def test_code_in_a_lambda_layer_and_classes_from_elsewhere_are_dangers(models: Path) -> None:
    found = {f.name: f for f in inspect_model(models / "lambda.keras").findings}
    assert (found["Lambda"].severity, found["Lambda"].what) == ("danger", "runs code")
    assert found["Own"].severity == "danger"
    assert found["Own"].detail == "imports test_inspect, registered as mine>Own"
    found = {f.name: f for f in inspect_model(models / "lambda.h5").findings}
    assert found["Lambda"].severity == "danger"
    assert found["mine>Own"].severity == "note"  # this format names no module to import


def test_a_class_that_only_its_registered_name_tells_is_a_note(tmp_path: Path) -> None:
    config = {"class_name": "Own", "module": None, "registered_name": "mine>Own", "config": {}}
    [finding] = inspect_model(keras_file(tmp_path / "m.keras", config)).findings
    assert (finding.severity, finding.detail) == ("note", "a class that you must supply: mine>Own")


def test_a_link_out_of_an_hdf5_file_is_a_danger(models: Path) -> None:
    [finding] = inspect_model(models / "external.h5").findings
    assert finding == Finding("danger", "reads files", "out", detail="leads to /etc/passwd")


def keras_file(path: Path, config: Any, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("layer", "danger"),
    [
        ({"class_name": "system", "module": "os", "config": "x"}, ("custom object", "system", "")),
        ({"class_name": "get_file", "module": "keras.utils"}, ("runs code", "get_file", "")),
        ({"class_name": "__lambda__", "config": {"code": ""}}, ("runs code", "__lambda__", "")),
        (
            {"class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}},
            ("reads files", "StringLookup", ""),
        ),
    ],
)
def test_known_attacks_by_configuration_are_dangers(
    tmp_path: Path, layer: dict[str, Any], danger: tuple[str, str, str]
) -> None:
    config = {"class_name": "Sequential", "config": {"layers": [{"config": {"fn": layer}}]}}
    assert dangers(inspect_model(keras_file(tmp_path / "m.keras", config))) == {danger}


def test_an_archive_that_unpacks_elsewhere_is_a_danger(tmp_path: Path) -> None:
    path = keras_file(tmp_path / "m.keras", {}, **{"../../.bashrc": "x"})
    assert dangers(inspect_model(path)) == {("writes files", "../../.bashrc", "when unpacked")}


def test_an_op_from_nowhere_is_named_where_tensorflow_is_installed(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = tmp_path / "forged.pb"
    forged.write_bytes((models / "frozen.pb").read_bytes().replace(b"MatMul", b"EvilOp"))
    [finding] = inspect_model(forged).findings
    assert (finding.severity, finding.what, finding.name) == ("note", "unknown op", "EvilOp")
    monkeypatch.setattr(ops.importlib.util, "find_spec", lambda name: None)
    summary = inspect_model(forged)
    assert summary.findings == ()
    assert summary.unchecked == ("unknown ops: no installed TensorFlow to compare with",)


def test_links_in_a_folder_and_missing_weights_are_told(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(models / "honest", folder)
    (folder / "extra").symlink_to("/etc/passwd")
    for shard in (folder / "variables").glob("*.data-*"):
        shard.unlink()
    summary = inspect_model(folder, check_ops=False)
    assert Finding("note", "link", "extra", "", "a link to /etc/passwd") in summary.findings
    assert summary.unchecked[0].startswith("weights: incomplete: 0 of 24 bytes")


# The command


def test_the_command_exits_with_1_exactly_when_something_dangerous_is_there(models: Path) -> None:
    honest, hostile = run(models / "honest"), run(models / "init_writes")
    assert honest.exit_code == 0
    assert "Nothing dangerous was found." in honest.output
    assert "(x: float32[?, 3]) -> (n: int64[], y: float32[?, 2])" in honest.output
    assert hostile.exit_code == 1
    assert "danger: writes files: WriteFile, when loading" in hostile.output
    assert run().exit_code == 2


def test_the_command_speaks_json(models: Path, tmp_path: Path) -> None:
    told = json.loads(run("--json", models / "hostile").output)
    assert told["is_dangerous"]
    assert told["signatures"]["serving_default"]["inputs"]["path"]["dtype"] == "string"
    assert {f["name"] for f in told["findings"]} >= {"ReadFile", "EagerPyFunc"}
    failed = run("--json", tmp_path / "none")
    assert failed.exit_code == 1
    assert json.loads(failed.output)["error"].endswith("none: no such file or folder")


def test_a_name_in_the_model_cannot_write_to_the_terminal(models: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.pb"
    forged.write_bytes((models / "frozen.pb").read_bytes().replace(b"MatMul", b"\x1b[2J\r\n"))
    output = run(forged).output
    assert "\x1b" not in output
    assert "\\x1b[2J\\r\\n" in output
    styled = keras_file(tmp_path / "m.keras", {"class_name": "[red]X[/red]", "config": {}})
    assert "[red]X[/red]" in run(styled).output


def test_neither_the_command_nor_its_parts_load_tensorflow(models: Path) -> None:
    code = (
        "import sys; from sojourn.probes.model_files import inspect_model\n"
        "import sojourn.cli.inspect\n"
        "inspect_model(sys.argv[1])\n"
        "print('tensorflow' in sys.modules, 'keras' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(models / "honest")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]


def test_a_summary_is_one_line_for_error_messages(models: Path) -> None:
    text = str(inspect_model(models / "frozen.pb", check_ops=False))
    assert text.startswith(f"{models / 'frozen.pb'}: frozen graph, ")
    assert text.endswith("4 ops of 4 kinds, 0 dangers")


# Damage


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.pb", b"", "neither a frozen graph"),
        ("text.pb", b"hello, this is no model", "not a model"),
        ("m.keras", b"PK\x03\x04 but no archive", "not a readable archive"),
        ("m.h5", b"\x89HDF\r\n\x1a\n but no more", "not a readable HDF5 file"),
        ("graph.pbtxt", b"node {}", "text form"),
    ],
)
def test_a_damaged_file_is_a_model_error_that_says_why(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        inspect_model(path)
    told = run(path)
    assert (told.exit_code, type(told.exception)) == (1, SystemExit)


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        ("while True: pass", "reading it as HDF5 never ends"),
        (
            "import os, resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0)); os.abort()",
            "the HDF5 library fails on it",
        ),
    ],
)
def test_a_file_on_which_the_hdf5_library_loops_or_crashes_is_a_model_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, reason: str
) -> None:
    script, model = tmp_path / "reader.py", tmp_path / "m.h5"
    script.write_text(reader)
    model.write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setattr(hdf5_files, "_READER", (sys.executable, str(script)))
    monkeypatch.setattr(hdf5_files, "_LIMIT_SECONDS", 1)
    with pytest.raises(ModelError, match=reason):
        inspect_model(model)


def test_without_h5py_an_hdf5_file_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, model = tmp_path / "reader.py", tmp_path / "m.h5"
    script.write_text("import sys; sys.stdout.write('{\"missing\": true}')")
    model.write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setattr(hdf5_files, "_READER", (sys.executable, str(script)))
    assert inspect_model(model).unread == ("its content: h5py, which reads HDF5, is not installed",)
    said = run(model)
    assert said.exit_code == 1
    assert "Nothing dangerous" not in said.output
    assert "Not all of it was looked at" in said.output
    archive = inspect_model(keras_file(tmp_path / "m.keras", {}, **{"model.weights.h5": "x"}))
    assert archive.unread == ("its weights: h5py, which reads HDF5, is not installed",)


def test_folders_that_are_no_model_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no saved_model\.pb and no checkpoint"):
        inspect_model(tmp_path)
    (tmp_path / "saved_model.pbtxt").write_text("")
    with pytest.raises(ModelError, match="save it again"):
        inspect_model(tmp_path)


@pytest.mark.parametrize("config", ["[" * 1_000_000, "{", "1" * 10_000, "nul"])
def test_configurations_that_are_no_json_are_model_errors(tmp_path: Path, config: str) -> None:
    with pytest.raises(ModelError, match="not JSON"):
        inspect_model(keras_file(tmp_path / "m.keras", config))


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", b" " * (17 << 20))
    with pytest.raises(ModelError, match="larger than 16 MiB"):
        inspect_model(path)


def test_more_nodes_than_any_model_has_are_refused_before_they_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "_MOST_NODES", 1000)
    function = b"\x1a\x00" * 1001
    library = b"\x0a" + bytes([0x80 | len(function) & 0x7F, len(function) >> 7]) + function
    for data in (b"\x0a\x00" * 1001, b"\x12" + bytes([0xD5, 0x0F]) + library):
        with pytest.raises(ModelError, match="1,000 nodes"):
            parse_graph(memoryview(data))
    with pytest.raises(ModelError, match="claims to hold"):
        parse_saved_model(memoryview(b"\x12\x00" * 100))


PARSERS = (parse_graph, parse_meta_graph, parse_saved_model, parse_index)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(PARSERS))
def test_random_bytes_give_a_result_or_a_model_error(data: bytes, parser: Any) -> None:
    try:
        parser(memoryview(data))
    except ModelError:
        pass


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_mutated_models_give_a_result_or_a_model_error(models: Path, data: st.DataObject) -> None:
    name, parser = data.draw(
        st.sampled_from(
            [
                ("honest/saved_model.pb", parse_saved_model),
                ("hostile/saved_model.pb", parse_saved_model),
                ("frozen.pb", parse_graph),
                ("checkpoint/model.ckpt-7.meta", parse_meta_graph),
                ("checkpoint/model.ckpt-7.index", parse_index),
            ]
        )
    )
    content = mutated((models / name).read_bytes(), data)
    try:
        parsed = parser(memoryview(content))
        for meta in parsed if parser is parse_saved_model else ():
            ops.judge(meta)
    except ModelError:
        pass


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_mutated_archives_give_a_result_or_a_model_error(
    models: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.keras"
    path.write_bytes(mutated((models / "lambda.keras").read_bytes(), data))
    try:
        with mock.patch.object(keras_files, "read_hdf5"):  # a process for each would take minutes
            inspect_keras(str(path), 0)
    except ModelError:
        pass


def mutated(content: bytes, data: st.DataObject) -> bytes:
    """A few bytes changed, cut out or put in."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, max(0, len(changed) - 1)))
        cut = data.draw(st.sampled_from([0, 1, 1, 1, 4, 100]))
        changed[at : at + cut] = data.draw(st.binary(max_size=4))
    return bytes(changed)
