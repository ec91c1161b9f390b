"""What `sojourn inspect` finds in real models, honest and hostile."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import inspected_models
from inspected_models import keras_file
from sojourn.cli.main import main
from sojourn.probes.model_files import (
    Finding,
    ModelSummary,
    inspect_model,
)
from sojourn.values import TensorSpec

models = inspected_models.models  # a fixture


def dangers(summary: ModelSummary) -> set[tuple[str, str, str]]:
    return {(f.what, f.name, f.where) for f in summary.findings if f.severity == "danger"}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


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
    assert found["Own"].detail == "imports inspected_models, registered as mine>Own"
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


def test_an_op_from_nowhere_is_named(models: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.pb"
    forged.write_bytes((models / "frozen.pb").read_bytes().replace(b"MatMul", b"EvilOp"))
    [finding] = inspect_model(forged).findings
    assert (finding.severity, finding.what, finding.name) == ("note", "unknown op", "EvilOp")


def test_links_in_a_folder_and_missing_weights_are_reported(models: Path, tmp_path: Path) -> None:
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
