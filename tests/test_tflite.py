"""TensorFlow Lite models: opened as they are, with everything that a session promises."""

from __future__ import annotations

import random
import shutil
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

import sojourn
import tflite_models
from needed import needs
from sojourn.errors import CheckpointError, DeviceError, EngineError, InputError, ModelError
from sojourn.probes.model_files import inspect_model
from sojourn.probes.model_files.tflite_files import parse_tflite
from sojourn.process.zygote import zygote_for
from tflite_models import WEIGHTS

needs_engine = needs("ai_edge_litert")
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tflite")
    sojourn.isolated(tflite_models.main)(str(path))
    return path


# Sessions


@needs_engine
def test_a_signature_is_chosen_and_run_with_any_number_of_rows(folder: Path) -> None:
    with sojourn.open(folder / "two.tflite", signature="dense") as session:
        assert str(session.signature) == "(x: float32[?, 4]) -> (rows: int32[], y: float32[?, 3])"
        for rows in (X, X[:1], np.tile(X, (50, 1)), X):
            told = session.run(None, {"x": rows})
            assert np.allclose(told["y"], rows @ WEIGHTS)
            assert told["rows"] == len(rows)
        assert session.footprint().host_bytes < 40 * 2**20
    assert session.receipt.clean
    with sojourn.open(folder / "two.tflite", signature="add") as session:
        assert session.run("sum", {"a": [1, 2], "b": [3, 4]}).tolist() == [4, 6]


@needs_engine
def test_the_only_signature_needs_no_choice_and_none_at_all_means_the_graph(folder: Path) -> None:
    for name, output in (("one", "y"), ("unsigned", "y")):
        with sojourn.open(folder / f"{name}.tflite") as session:
            for rows in (X, X[:1], X):
                assert np.allclose(session.run(output, {"x": rows}), rows @ WEIGHTS)
    with pytest.raises(ModelError, match=r"has the signatures \['add', 'dense'\]; choose one"):
        sojourn.open(folder / "two.tflite")
    with pytest.raises(ModelError, match="no signature 'sub'; there are"):
        sojourn.open(folder / "two.tflite", signature="sub")


@needs_engine
def test_an_input_and_an_output_may_have_the_same_name(folder: Path) -> None:
    with sojourn.open(folder / "next.tflite") as session:
        state = np.ones((1, 4), np.float32)
        for _ in range(3):
            state = session.run("state", {"state": state})
        assert state.tolist() == [[8.0] * 4]


@needs_engine
def test_its_worker_has_no_tensorflow(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with sojourn.open(folder / "one.tflite") as session:
        session.run("y", {"x": X})
        assert zygote_for("ai_edge_litert").pid not in (None, zygote_for("tensorflow").pid)
        with open(f"/proc/{session.pid}/maps") as maps:
            assert "tensorflow/python" not in maps.read()
    assert "XNNPACK" not in capfd.readouterr().err  # it says so each time


@needs_engine
def test_many_threads_get_their_own_results_of_the_file_that_was_opened(
    folder: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(folder / "one.tflite", tmp_path))
    wrong: list[object] = []

    def call(seed: int) -> None:
        draw = np.random.default_rng(seed)
        for _ in range(100):
            x = draw.normal(size=(1 + seed % 3, 4)).astype(np.float32)
            if not np.allclose(session.run("y", {"x": x}), x @ WEIGHTS, atol=1e-5):
                wrong.append(x)

    with sojourn.open(path) as session:
        path.unlink()  # a deployment puts another in its place
        threads = [threading.Thread(target=call, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@needs_engine
def test_a_model_that_counts_counts_for_all_threads_together(folder: Path) -> None:
    def call() -> None:
        for _ in range(50):
            session.run("count", {"by": 1.0})

    with sojourn.open(folder / "counter.tflite") as session:
        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.run("count", {"by": 0.0}) == 200
        with pytest.raises(CheckpointError, match="no variables"):
            session.save(folder / "state")


@needs_engine
def test_wrong_inputs_and_devices_are_reported_what_there_is(folder: Path) -> None:
    with sojourn.open(folder / "one.tflite") as session:
        for fetches, feeds, told in (
            ("y", {"x": X[:, :3]}, r"takes float32\[\?, 4\]; got float32\[2, 3\]"),
            ("y", {"z": X}, "there is no input 'z'; there are x"),
            ("z", {"x": X}, "there is no output 'z'; there are rows, y"),
            ("y", {}, "the input 'x' must be fed"),
        ):
            with pytest.raises(InputError, match=told):
                session.run(fetches, feeds)
    with pytest.raises(DeviceError, match="runs on the CPU"):
        sojourn.open(folder / "one.tflite", device="gpu:0")


@needs_engine
def test_a_step_that_the_engine_refuses_is_an_engine_error_and_the_next_one_runs(
    folder: Path,
) -> None:
    with sojourn.open(folder / "row.tflite") as session:
        for _ in range(2):
            with pytest.raises(EngineError, match=r"LiteRT cannot run it: .*index out of bounds"):
                session.run("y", {"i": [7, 0]})
            assert np.array_equal(session.run("y", {"i": [3]}), WEIGHTS[3:])


@needs_engine
@pytest.mark.parametrize("name", ["found", "found_beside"])
def test_an_output_that_turns_out_to_be_empty_is_an_empty_array(folder: Path, name: str) -> None:
    with sojourn.open(folder / f"{name}.tflite", signature="found") as session:
        for x in ([1, -1, 2], [-1, -2], [], [3]):
            given = np.array(x, np.float32)
            found = session.run(None, {"x": given})
            assert found["values"].tolist() == given[given > 0].tolist()
            assert found["places"].tolist() == np.argwhere(given > 0).tolist()
            assert found["places"].shape == (int((given > 0).sum()), 1)
            assert found["all"].tolist() == (given * 2).tolist()


@needs_engine
@pytest.mark.parametrize("name", ["words", "words_beside"])
def test_text_and_bytes_go_in_and_bytes_come_out(folder: Path, name: str) -> None:
    with sojourn.open(folder / f"{name}.tflite", signature="same") as session:
        a, b = ["ö", "a", b"\0\xff", ""], [b"\xc3\xb6", "b", b"\0\xff", "x"]
        found = session.run(None, {"a": a, "b": b})
        assert found["same"].tolist() == [True, False, True, False]
        assert found["column"].tolist() == [[b"\xc3\xb6"], [b"a"], [b"\0\xff"], [b""]]
        assert session.run("column", {"a": a[:0], "b": b[:0]}).shape == (0, 1)


@pytest.mark.parametrize(
    ("name", "told"), [("custom", "custom op MatrixDeterminant"), ("flex", "MatrixDeterminant")]
)
def test_ops_that_the_engine_has_not_are_named(folder: Path, name: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        sojourn.open(folder / f"{name}.tflite")
    [finding] = inspect_model(folder / f"{name}.tflite").findings
    assert finding.severity == "note"
    assert finding.name.endswith("MatrixDeterminant")


def test_an_op_of_tensorflows_is_judged_as_there(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "reads.tflite"
    flex = (folder / "flex.tflite").read_bytes()
    path.write_bytes(flex.replace(b"FlexMatrixDeterminant", b"FlexWholeFileReaderV2"))
    [finding] = inspect_model(path).findings
    assert (finding.severity, finding.what) == ("danger", "reads files")


@needs_engine
def test_an_untrusted_model_runs_in_the_sandbox(folder: Path) -> None:
    with sojourn.open(folder / "one.tflite", untrusted=True) as session:
        assert np.allclose(session.run("y", {"x": X}), X @ WEIGHTS)


# Looking


def test_a_model_is_looked_at_without_loading_it(folder: Path, tmp_path: Path) -> None:
    summary = inspect_model(folder / "two.tflite")
    assert summary.kind == "TensorFlow Lite model"
    assert {name: str(signature) for name, signature in summary.signatures.items()} == {
        "add": "(a: int32[2], b: int32[2]) -> (sum: int32[2])",
        "dense": "(x: float32[?, 4]) -> (rows: int32[], y: float32[?, 3])",
    }
    assert summary.ops["FULLY_CONNECTED"] == summary.ops["ADD"] == 1
    assert summary.weight_bytes >= WEIGHTS.nbytes
    assert summary.findings == ()
    other = tmp_path / "m.bin"
    other.write_bytes((folder / "unsigned.tflite").read_bytes())
    by_content = inspect_model(other)
    assert str(by_content.signatures["graph"]) == "(x: float32[?, 4]) -> (y: float32[?, 3])"


def test_damage_is_a_model_error_and_never_anything_else(folder: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    whole = (folder / "two.tflite").read_bytes()
    for _ in range(3000):
        damaged = bytearray(whole[: draw.randrange(9, len(whole) + 1)])
        for _ in range(draw.randrange(6)):
            damaged[draw.randrange(8, len(damaged))] = draw.randrange(256)
        try:
            parse_tflite(memoryview(bytes(damaged)))
        except ModelError:
            pass
    truncated = tmp_path / "m.tflite"
    truncated.write_bytes(whole[:200])
    for look in (inspect_model, sojourn.open):
        with pytest.raises(ModelError):
            look(truncated)


def table(place: int) -> bytes:
    """A table whose only field, at this place, is an offset to what follows it."""
    fields = struct.pack(f"<{place + 1}H", *[0] * place, 4)
    vtable = struct.pack("<HH", 4 + len(fields), 8) + fields
    return vtable + struct.pack("<iI", len(vtable), 4)


def again(count: int, vtable_bytes: int) -> bytes:
    """A list that names the table that follows it so many times."""
    offsets = (4 * (count - i) + vtable_bytes for i in range(count))
    return struct.pack(f"<I{count}I", count, *offsets)


def test_one_table_that_is_referred_to_a_million_times_is_refused() -> None:
    # A list that names one graph again and again, whose list names one op again and again: the
    # square of what the file holds.
    graphs, ops = table(2), table(3)
    data = b"".join(
        [
            struct.pack("<I4s", 8 + len(graphs) - 8, b"TFL3"),
            *(graphs, again(3000, len(ops) - 8)),
            *(ops, again(3000, 4), struct.pack("<HHi", 4, 4, 4)),
        ]
    )
    with pytest.raises(ModelError, match="which no model has"):
        parse_tflite(memoryview(data))


def test_one_long_name_and_shape_that_are_referred_to_again_and_again_are_refused() -> None:
    graphs, tensors = table(2), table(0)
    dims = struct.pack("<I254i", 254, *range(1000, 1254))
    vtable = struct.pack("<HHHHHH", 12, 12, 4, 0, 0, 8)  # a shape and a name
    data = b"".join(
        [
            struct.pack("<I4s", len(graphs), b"TFL3"),
            *(graphs, again(1, len(tensors) - 8)),
            *(tensors, again(20_000, len(vtable)), vtable),
            *(struct.pack("<iII", len(vtable), 8, 4 + len(dims)), dims),
            *(struct.pack("<I", 4096), b"n" * 4096),
        ]
    )
    assert len(data) < 100_000
    with pytest.raises(ModelError, match="which no model has"):
        parse_tflite(memoryview(data))
