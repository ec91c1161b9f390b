"""What damage does to `sojourn inspect`: a `ModelError` that says why, never anything else."""

from __future__ import annotations

import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import inspected_models
from inspected_models import keras_file
from sojourn.cli.main import main
from sojourn.errors import ModelError
from sojourn.probes.model_files import (
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

models = inspected_models.models  # a fixture


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.pb", b"", "is empty"),
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
    assert "Not all of it was read" in said.output
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


# By a seed and not by hypothesis, which keeps megabytes for as many choices.
SEED = 7


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, cut out or put in."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        at = draw.randint(0, max(0, len(changed) - 1))
        cut = draw.choice([0, 1, 1, 1, 4, 100])
        changed[at : at + cut] = draw.randbytes(draw.randint(0, 4))
    return bytes(changed)


def check(case: int, look: Callable[[], object]) -> None:
    try:
        look()
    except ModelError:
        pass
    except Exception as error:
        raise AssertionError(f"case {case} of seed {SEED}: {error!r}") from error


@pytest.mark.parametrize(
    ("name", "parser"),
    [
        ("honest/saved_model.pb", parse_saved_model),
        ("hostile/saved_model.pb", parse_saved_model),
        ("frozen.pb", parse_graph),
        ("checkpoint/model.ckpt-7.meta", parse_meta_graph),
        ("checkpoint/model.ckpt-7.index", parse_index),
    ],
)
def test_mutated_models_give_a_result_or_a_model_error(
    models: Path, name: str, parser: Any
) -> None:
    content = (models / name).read_bytes()

    def look(changed: bytes) -> None:
        parsed = parser(memoryview(changed))
        for meta in parsed if parser is parse_saved_model else ():
            ops.judge(meta)

    for case in range(150):
        changed = mutated(content, random.Random(f"{SEED} {case}"))
        check(case, lambda changed=changed: look(changed))


def test_mutated_archives_give_a_result_or_a_model_error(models: Path, tmp_path: Path) -> None:
    content, path = (models / "lambda.keras").read_bytes(), tmp_path / "mutated.keras"
    with mock.patch.object(keras_files, "read_hdf5"):  # a process for each would take minutes
        for case in range(300):
            path.write_bytes(mutated(content, random.Random(f"{SEED} {case}")))
            check(case, lambda: inspect_keras(str(path), 0))
