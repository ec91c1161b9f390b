"""Files made to deceive `sojourn inspect`, or to bring it down: what it says all the same."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sojourn.errors import ModelError
from sojourn.kinds.paths import recognise
from sojourn.probes.model_files import ModelSummary, inspect_model
from wire_writer import asset, collection, constant, field, index_of, node, saved_model, signature

LONG = "x" * 5000


def told(folder: Path, content: bytes) -> ModelSummary:
    """What is said of a SavedModel with this content."""
    folder.mkdir(exist_ok=True)
    (folder / "saved_model.pb").write_bytes(content)
    return inspect_model(folder, check_ops=False)


def dangers(summary: ModelSummary) -> set[tuple[str, str]]:
    return {(f.name, f.where) for f in summary.findings if f.severity == "danger"}


# What protobuf sees is seen here


@pytest.mark.quick
def test_a_second_graph_does_not_hide_the_first(tmp_path: Path) -> None:
    evil, benign = field(2, node("w", "WriteFile")), field(2, node("c", "Const"))
    summary = told(tmp_path / "m", saved_model(evil, benign))
    assert dict(summary.ops) == {"WriteFile": 1, "Const": 1}
    assert summary.is_dangerous


@pytest.mark.quick
def test_a_second_node_or_function_of_the_same_name_does_not_hide_the_first(tmp_path: Path) -> None:
    body = (node("w", "WriteFile"), node("c", "Const"))
    functions = [field(1, field(1, field(1, "f")), field(3, n[2:])) for n in body]
    same = node("n", "ReadFile") + node("n", "Const")
    summary = told(tmp_path / "m", saved_model(field(2, same, field(2, *functions))))
    assert dict(summary.ops) == {"WriteFile": 1, "ReadFile": 1, "Const": 2}


def test_names_that_only_begin_alike_are_told_apart(tmp_path: Path) -> None:
    nodes = node(LONG + "1", "WriteFile", LONG + "3") + node(LONG + "2", "Const")
    calls = node(LONG + "3", LONG + "f1") + node("c", LONG + "f2")
    functions = [
        field(1, field(1, field(1, LONG + "f1")), field(3, node("s", "SaveV2")[2:])),
        field(1, field(1, field(1, LONG + "f2")), field(3, node("c", "Const")[2:])),
    ]
    signatures = signature(LONG + "s1", LONG + "1") + signature(LONG + "s2", "c")
    summary = told(
        tmp_path / "m", saved_model(field(2, nodes, calls, field(2, *functions)), signatures)
    )
    assert summary.ops["WriteFile"] == summary.ops["SaveV2"] == 1
    assert {name for name, _ in dangers(summary)} == {"WriteFile", "SaveV2"}
    assert all(len(name) < 5000 for name in summary.ops)


def test_a_map_entry_in_several_parts_is_read_as_one(tmp_path: Path) -> None:
    outputs = [field(2, field(1, k), field(2, field(1, k))) for k in ("s", "c")]
    parts = field(5, field(1, "serve"), *(field(2, output) for output in outputs))
    graph = field(2, node("s", "SaveV2"), node("c", "Const"))
    assert dangers(told(tmp_path / "m", saved_model(graph, parts))) == {
        ("SaveV2", "signature serve")
    }


def test_parts_of_a_composite_output_belong_to_the_signature(tmp_path: Path) -> None:
    inner = field(5, field(2, field(1, "s:0")))
    composite = field(5, field(1, "serve"), field(2, field(2, field(1, "y"), field(2, inner))))
    summary = told(tmp_path / "m", saved_model(field(2, node("s", "SaveV2")), composite))
    assert dangers(summary) == {("SaveV2", "signature serve")}


@pytest.mark.quick
def test_a_function_given_to_a_function_is_called(tmp_path: Path) -> None:
    given = field(2, field(1, "then"), field(2, field(10, field(1, "evil"))))
    call = field(5, field(1, "f"), field(2, field(10, field(1, "outer"), given)))
    caller = field(1, field(1, "call"), field(2, "PartitionedCall"), call)
    evil = field(1, field(1, field(1, "evil")), field(3, node("s", "SaveV2")[2:]))
    graph = field(2, caller, field(2, evil))
    summary = told(tmp_path / "m", saved_model(graph, signature("serve", "call:0")))
    assert dangers(summary) == {("SaveV2", "signature serve")}


def test_random_models_look_here_as_they_look_to_protobuf() -> None:
    code = "import wire_writer; print(wire_writer.differences(7, 500))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


# What runs when a model is loaded


@pytest.mark.parametrize(
    "runs",
    [field(3, field(3, "w")), collection("table_initializer", "w")],
    ids=["restore op", "table initializer"],
)
def test_a_writer_run_by_restoring_or_by_filling_tables_runs_when_loading(
    tmp_path: Path, runs: bytes
) -> None:
    graph = field(2, node("w", "NoOp", "^f", "^s"), node("f", "WriteFile"), node("s", "SaveV2"))
    content = graph + runs + signature("serve", "nothing")
    for summary in (told(tmp_path / "m", saved_model(content)), checkpoint(tmp_path, content)):
        assert dangers(summary) == {("WriteFile", "when loading"), ("SaveV2", "when loading")}


def checkpoint(folder: Path, content: bytes) -> ModelSummary:
    (folder / "model.meta").write_bytes(content)
    return inspect_model(folder / "model.meta", check_ops=False)


def test_what_a_saver_would_run_when_it_saves_is_reported(tmp_path: Path) -> None:
    graph = field(2, node("save/all", "NoOp", "^save/w"), node("save/w", "WriteFile"))
    summary = checkpoint(tmp_path, graph + field(3, field(2, "save/all:0")))
    assert dangers(summary) == {("WriteFile", "when saving")}


def test_restoring_by_the_restore_op_is_what_every_saver_does(tmp_path: Path) -> None:
    graph = field(2, node("save/all", "NoOp", "^save/r"), node("save/r", "RestoreV2", "save/file"))
    summary = checkpoint(tmp_path, graph + field(3, field(1, "save/file:0"), field(3, "save/all")))
    [finding] = summary.findings
    assert (finding.severity, finding.where) == ("note", "when loading")


@pytest.mark.parametrize("given", ["other", "save/file:1", ""])
def test_a_restore_op_that_reads_another_file_is_a_danger(tmp_path: Path, given: str) -> None:
    graph = field(
        2,
        node("save/all", "NoOp", "^save/r"),
        node("save/r", "RestoreV2", *filter(None, [given])),
        constant("other", "/home/somebody/checkpoint"),
    )
    saver = field(3, field(1, "other"), field(1, "save/file:0"), field(3, "save/all"))
    assert dangers(checkpoint(tmp_path, graph + saver)) == {("RestoreV2", "when loading")}


@pytest.mark.quick
def test_without_signatures_what_writes_outside_of_the_saver_is_a_danger(tmp_path: Path) -> None:
    graph = node("y", "Identity", "x", "^save/s") + node("save/s", "SaveV2")
    (tmp_path / "frozen.pb").write_bytes(graph)
    assert dangers(inspect_model(tmp_path / "frozen.pb", check_ops=False)) == {
        ("SaveV2", "when run")
    }


# Tables and their files

TABLE = "InitializeTableFromTextFileV2"
READ = (
    node("t", TABLE, "h", "r:0")
    + node("r", "ReadVariableOp", "v")
    + node("v", "VarHandleOp", shared_name="same")
)
FILL = collection("saved_model_main_op", "t")


@pytest.mark.parametrize(
    ("graph", "danger"),
    [
        (node("t", TABLE, "h", "a:0"), None),
        (node("t", TABLE, "h", "i:0") + node("i", "Identity", "a:0"), None),
        (node("t", TABLE, "h", "p:0") + constant("p", "/etc/passwd"), "a table, from /etc/passwd"),
        (
            node("t", TABLE, "h", "j:0") + node("j", "StringJoin", "a:0"),
            "a table, from a file whose name is computed",
        ),
        (node("t", TABLE, "h", "none"), "a table, from an unknown file"),
        (node("t", TABLE), "a table, from an unknown file"),
        (READ + node("s", "AssignVariableOp", "v", "a:0"), None),
        (
            READ + node("s", "AssignVariableOp", "v", "p:0") + constant("p", "/etc/passwd"),
            "a table, from /etc/passwd",
        ),
        (
            READ + node("s", "AssignVariableOp", "v", "a:0") + node("c", "SomeCall", "v"),
            "a table, from a file whose name is computed",
        ),
        (
            READ
            + node("s", "AssignVariableOp", "v", "a:0")
            + node("v2", "VarHandleOp", shared_name="same")
            + node("s2", "AssignVariableOp", "v2", "p:0")
            + constant("p", "/etc/passwd"),
            "a table, from /etc/passwd",
        ),
    ],
)
def test_a_table_is_harmless_if_its_file_is_an_asset(
    tmp_path: Path, graph: bytes, danger: str | None
) -> None:
    content = field(2, graph, constant("a", "words.txt")) + asset("words.txt", "a:0") + FILL
    summary = told(tmp_path / "m", saved_model(content, signature("serve", "a")))
    details = [f.detail for f in summary.findings if f.severity == "danger"]
    assert details == ([] if danger is None else [danger])


@pytest.mark.parametrize(("given", "is_danger"), [("a:0", False), ("p:0", True)])
def test_the_file_of_a_table_is_followed_into_functions(
    tmp_path: Path, given: str, is_danger: bool
) -> None:
    arguments = field(2, field(1, "table")) + field(2, field(1, "file"))
    body = field(3, node("t", TABLE, "table", "file")[2:])
    fill = field(1, field(1, field(1, "fill"), arguments), body)
    caller = field(1, field(1, "t"), field(2, "StatefulPartitionedCall"), field(3, "h"))
    named = field(5, field(1, "f"), field(2, field(10, field(1, "fill"))))
    call = field(1, caller[2:], field(3, given), named)
    graph = field(2, call, constant("a", "w"), constant("p", "/etc/passwd"), field(2, fill))
    content = saved_model(graph, asset("w", "a:0"), FILL, signature("serve", "a"))
    summary = told(tmp_path / "m", content)
    [finding] = [f for f in summary.findings if f.name == TABLE]
    assert (finding.severity == "danger") is is_danger
    assert ("/etc/passwd" in finding.detail) is is_danger


def function(name: str, *nodes: bytes, arguments: tuple[str, ...] = (), more: bytes = b"") -> bytes:
    signed = field(1, field(1, name), *(field(2, field(1, argument)) for argument in arguments))
    return field(1, signed, *(field(3, each[2:]) for each in nodes), more)


def calling(name: str, op: str, *inputs: str, more: bytes = b"", **functions: str) -> bytes:
    """A node whose attributes name functions."""
    named = [field(5, field(1, k), field(2, field(10, field(1, v)))) for k, v in functions.items()]
    return field(1, node(name, op, *inputs)[2:], *named, more)


def passed_on(attribute: str) -> bytes:
    """An attribute that is said where the function is called."""
    return field(5, field(1, attribute), field(2, field(9, "given")))


INSIDE = node("t", TABLE, "table", "file")
GIVEN = ("table", "file")
FILLS = function("fill", INSIDE, arguments=GIVEN)
HONEST = calling("honest", "PartitionedCall", "h", "a:0", f="fill")


@pytest.mark.parametrize(
    ("nodes", "functions"),
    [
        (calling("t", "If", "c", "h", "p:0", then_branch="fill", else_branch="fill"), FILLS),
        (calling("t", "StatelessWhile", "h", "p:0", cond="fill", body="fill"), FILLS),
        (calling("t", "Case", "c", "h", "p:0", branches="fill"), FILLS),
        (calling("t", "MapDataset", "d", "h", "p:0", f="fill"), FILLS),
        (
            calling("t", "PartitionedCall", "h", "p:0", f="outer"),
            FILLS
            + function(
                "outer", calling("c", "If", "b", "x", "y", then_branch="fill"), arguments=("x", "y")
            ),
        ),
        (
            # The function is given by its caller, and not called by it.
            field(
                1,
                node("t", "outer", "h", "a:0", "p:0")[2:],
                field(5, field(1, "given"), field(2, field(10, field(1, "fill")))),
            ),
            FILLS
            + function(
                "outer",
                field(1, node("c", "PartitionedCall", "x", "z")[2:], passed_on("f")),
                arguments=("x", "y", "z"),
            ),
        ),
        (
            # It is the gradient of another, which TensorFlow calls for it.
            calling("t", "SymbolicGradient", "h", "p:0", f="other"),
            FILLS + field(2, field(1, "other"), field(2, "fill")),
        ),
        (
            # It takes the place of another that does the same.
            calling("t", "PartitionedCall", "h", "p:0", f="other"),
            function("other", arguments=GIVEN)
            + function("fill", INSIDE, arguments=GIVEN, more=field(5, field(1, "api_implements"))),
        ),
        (
            # Its first argument stands for two.
            calling("t", "PartitionedCall", "h", "a:0", "p:0", f="fill"),
            field(
                1,
                field(1, field(1, "fill"), field(2, field(1, "table"), field(5, "N"))),
                field(1, field(2, field(1, "file"))),
                field(3, INSIDE[2:]),
            ),
        ),
        (
            calling("t", "PartitionedCall", "h", f="fill"),
            function(
                "fill",
                node("t", TABLE, "table", "name:output:0"),
                field(1, node("name", "Const")[2:], passed_on("value")),
                arguments=("table",),
            ),
        ),
    ],
    ids=[
        *("if", "while", "case", "dataset", "nested", "given", "gradient", "instead", "list"),
        "attribute",
    ],
)
def test_a_table_whose_file_is_given_in_a_way_that_is_not_followed_is_a_danger(
    tmp_path: Path, nodes: bytes, functions: bytes
) -> None:
    graph = field(2, HONEST, nodes, constant("a", "w"), constant("p", "/x"), field(2, functions))
    filling = collection("saved_model_main_op", "all")
    graph += field(2, node("all", "NoOp", "^t", "^honest"))
    content = saved_model(graph, asset("w", "a:0"), filling, signature("serve", "a"))
    [(name, where)] = dangers(told(tmp_path / "m", content))
    assert name == TABLE
    assert "when loading" in where


@pytest.mark.parametrize(
    "assets",
    [
        asset("w", "a:1"),
        field(6, field(1, field(1, "a:0"), field(1, "b:0")), field(2, "w")),
        field(6, field(1, field(1, "a:0"), field(4, field(1, "b:0"))), field(2, "w")),
        asset("w", "b:0")
        + field(
            4,
            field(1, "saved_model_assets"),
            field(2, field(5, field(1, field(2, field(1, field(1, "a:0")), field(2, "w"))))),
        ),
    ],
    ids=["another output", "named twice", "sparse", "in the older list"],
)
def test_a_tensor_that_is_not_fed_with_an_asset_is_none(tmp_path: Path, assets: bytes) -> None:
    graph = field(2, node("t", TABLE, "h", "a:0"), constant("a", "/etc/passwd"))
    summary = told(tmp_path / "m", saved_model(graph, assets, FILL, signature("serve", "a")))
    assert dangers(summary) == {(TABLE, "when loading")}


def test_a_variable_whose_name_is_said_elsewhere_may_be_any(tmp_path: Path) -> None:
    handle = field(1, node("v", "VarHandleOp")[2:], passed_on("shared_name"))
    assigning = function("f", handle, node("s", "AssignVariableOp", "v:resource:0", "x"))
    graph = field(2, READ, node("s", "AssignVariableOp", "v", "a:0"), field(2, assigning))
    graph += field(2, constant("a", "words.txt"))
    content = saved_model(graph, asset("words.txt", "a:0"), FILL, signature("serve", "a"))
    assert dangers(told(tmp_path / "m", content)) == {(TABLE, "when loading")}


@pytest.mark.parametrize(
    "op",
    ["PrintV2 output_stream", "DebugIdentityV2 debug_urls", "DecodeProtoV2 descriptor_source"],
)
def test_an_attribute_that_is_said_where_a_function_is_called_is_a_danger(
    tmp_path: Path, op: str
) -> None:
    op, attribute = op.split()
    inner = function("f", field(1, node("n", op)[2:], passed_on(attribute)))
    content = saved_model(field(2, node("call", "f", given="file:///x"), field(2, inner)))
    assert dangers(told(tmp_path / "m", content)) == {(op, "when run")}


@pytest.mark.parametrize("name", ["ReadFile", "SaveV2", TABLE, "CacheDatasetV2", "PrintV2"])
def test_an_op_that_is_named_as_a_branch_is_judged(tmp_path: Path, name: str) -> None:
    branching = calling("n", "If", "c", "p", then_branch=name, else_branch="f")
    graph = field(2, branching, field(2, function("f", node("c", "Const"))))
    content = saved_model(graph, signature("serve", "n:0"))
    assert dangers(told(tmp_path / "m", content)) == {(name, "signature serve")}


def test_an_asset_is_one_only_while_a_saved_model_is_loaded(tmp_path: Path) -> None:
    graph = field(2, node("t", TABLE, "h", "a:0"), constant("a", "/etc/passwd"))
    content = graph + asset("words.txt", "a:0")
    assert dangers(told(tmp_path / "m", saved_model(content, signature("serve", "t")))) == {
        (TABLE, "signature serve")
    }
    assert {name for name, _ in dangers(checkpoint(tmp_path, content))} == {TABLE}


@pytest.mark.parametrize("filename", ["../../secret", "/etc/passwd", "a/../../b"])
def test_an_asset_that_leads_out_of_the_model_is_a_danger(tmp_path: Path, filename: str) -> None:
    wrapped = field(2, field(1, field(1, "a:0")), field(2, filename))
    listed = field(4, field(1, "saved_model_assets"), field(2, field(5, field(1, wrapped))))
    for content in (asset(filename, "a:0"), listed):
        summary = told(tmp_path / "m", saved_model(field(2, node("a", "Const")), content))
        assert dangers(summary) == {(filename, "when loading")}


@pytest.mark.parametrize(
    ("content", "is_danger"),
    [
        (node("n", "DatasetFromGraph"), True),
        (node("n", "Skipgram", filename="/etc/passwd"), True),
        (node("n", "FixedUnigramCandidateSampler", vocab_file="/etc/passwd"), True),
        (node("n", "FixedUnigramCandidateSampler", vocab_file=""), False),
    ],
)
def test_ops_that_read_what_an_attribute_names_are_dangers(
    tmp_path: Path, content: bytes, is_danger: bool
) -> None:
    assert told(tmp_path / "m", saved_model(field(2, content))).is_dangerous is is_danger


# What is looked at is what is opened


def checkpoints(folder: Path, *names: str, note: str | None = None) -> Path:
    """A folder of meta graphs that can be told apart: each has a node of its own name."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.meta").write_bytes(field(2, node(name, f"Op{name}")))
        (folder / f"{name}.index").write_bytes(index_of())
    if note is not None:
        (folder / "checkpoint").write_text(note)
    return folder


@pytest.mark.parametrize(
    ("note", "chosen"),
    [
        ('model_checkpoint_path: "a"', "Opa"),
        ('model_checkpoint_path: "/elsewhere/b"', "Opb"),
        ('model_checkpoint_path: "gone"', "Opc"),
        ("", "Opc"),
    ],
)
def test_of_several_checkpoints_the_one_that_open_takes_is_looked_at(
    tmp_path: Path, note: str, chosen: str
) -> None:
    folder = checkpoints(tmp_path / "m", "a", "b", "c", note=note)
    os.utime(folder / "b.index", (2e9, 2e9))  # the newest, which means nothing
    (folder / "z.index").write_bytes(index_of())
    summary = inspect_model(folder, check_ops=False)
    assert dict(summary.ops) == {chosen: 1}
    found = recognise(str(folder)).model()
    assert (found.kind.name, found.path) == ("metagraph", summary.path)


def test_where_open_cannot_tell_which_checkpoint_neither_can_inspect(tmp_path: Path) -> None:
    folder = checkpoints(tmp_path / "m", "a", "b")
    for look in (inspect_model, recognise):
        with pytest.raises(ModelError):
            look(str(folder))


def test_a_pipe_that_is_called_checkpoint_stops_nobody(tmp_path: Path) -> None:
    folder = checkpoints(tmp_path / "m", "a", "b")
    os.mkfifo(folder / "checkpoint")
    assert dict(inspect_model(folder, check_ops=False).ops) == {"Opb": 1}


def test_a_prefix_with_a_graph_and_no_variables_is_looked_at(tmp_path: Path) -> None:
    folder = checkpoints(tmp_path / "m", "a")
    (folder / "a.index").unlink()
    assert dict(inspect_model(folder / "a", check_ops=False).ops) == {"Opa": 1}


HDF5 = b"\x89HDF\r\n\x1a\n"


def test_a_keras_file_that_begins_as_hdf5_is_read_as_the_archive_that_keras_loads(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.keras"
    path.write_bytes(HDF5 + bytes(100))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", '{"class_name": "Lambda", "config": {}}')
    summary = inspect_model(path)
    assert summary.kind == "Keras file"
    assert dangers(summary) == {("m.keras", ""), ("Lambda", "")}
    assert "loaded as archive, but begins as HDF5" in [f.detail for f in summary.findings]


@pytest.mark.parametrize("start", [HDF5 + b"\x0a\x00", b"PK", b"PK\x1d\x04\x04\x04\x04"])
def test_a_graph_that_begins_as_something_else_is_read_as_the_graph_that_open_loads(
    tmp_path: Path, start: bytes
) -> None:
    path = tmp_path / "m.pb"
    path.write_bytes(start + node("w", "WriteFile"))
    assert recognise(str(path)).model().kind.name == "frozen"
    assert ("WriteFile", "when run") in dangers(inspect_model(path, check_ops=False))


def test_a_graph_that_ends_as_an_archive_is_a_danger(tmp_path: Path) -> None:
    path = tmp_path / "m.pb"
    ending = b"PK\5\6" + bytes(18)
    path.write_bytes(node("c", "Const") + field(100, ending))
    [finding] = inspect_model(path, check_ops=False).findings
    assert finding.severity == "danger"
    assert finding.detail == "loaded as graph, but ends as an archive"
