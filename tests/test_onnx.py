"""ONNX models: opened as they are, with everything that a session promises."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import onnx_writer as onnx
import sojourn
from needed import needs
from sojourn.cli.main import main
from sojourn.errors import CheckpointError, DeviceError, InputError, ModelError
from sojourn.probes.model_files import inspect_model
from sojourn.probes.model_files.onnx_files import parse_onnx
from sojourn.process.zygote import zygote_for
from wire_writer import field

needs_engine = needs("onnxruntime")
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    return written(tmp_path / "dense.onnx", onnx.dense())


# Sessions


@needs_engine
def test_a_model_is_run_with_any_number_of_rows(dense: Path) -> None:
    with sojourn.open(dense) as session:
        assert str(session.signature) == "(x: float32[?, 4]) -> (y: float32[?, 3])"
        for rows in (X, X[:1], np.zeros((0, 4), np.float32)):
            assert np.array_equal(session.run("y", {"x": rows}), rows @ onnx.WEIGHTS)
        assert np.array_equal(session.run(None, {"x": X})["y"], X @ onnx.WEIGHTS)
        assert session(x=X.astype(np.float64)).dtype == np.float32
    assert session.receipt.clean


@needs_engine
def test_it_runs_inline_and_for_a_pool_as_well(dense: Path) -> None:
    with sojourn.Pool(memory="1GiB") as pool:
        pool.register("dense", dense)
        with pool.lease("dense") as lease:
            assert np.array_equal(lease.run("y", {"x": X}), X @ onnx.WEIGHTS)
    code = (
        "import sys, numpy, sojourn\n"
        "with sojourn.open(sys.argv[1], isolation='inline') as session:\n"
        "    print(session.run('y', {'x': numpy.ones((1, 4), 'f4')}).tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, dense], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[[18.0,", "22.0,", "26.0]]"]


@needs_engine
def test_its_worker_has_no_tensorflow_and_comes_from_a_zygote_of_its_own(dense: Path) -> None:
    with sojourn.open(dense) as session:
        assert zygote_for("onnxruntime").pid != zygote_for("tensorflow").pid
        with open(f"/proc/{session.pid}/maps") as maps:
            mapped = maps.read()
        assert "onnxruntime" in mapped
        assert "tensorflow" not in mapped
        assert session.footprint().host_bytes < 40 * 2**20  # and not the 20 MiB of TensorFlow's


@needs_engine
def test_wrong_inputs_are_refused_with_what_there_is(dense: Path) -> None:
    with sojourn.open(dense) as session:
        for fetches, feeds, told in (
            ("y", {"x": X[:, :3]}, r"takes float32\[\?, 4\]; got float32\[2, 3\]"),
            ("y", {"z": X}, "there is no input 'z'; there are x"),
            ("z", {"x": X}, "there is no output 'z'; there are y"),
            ("y", {}, "the input 'x' must be fed"),
            ("y", {"x": X.astype(complex)}, "takes float32"),
        ):
            with pytest.raises(InputError, match=told):
                session.run(fetches, feeds)


@needs_engine
def test_text_goes_in_and_comes_out_as_utf8(tmp_path: Path) -> None:
    path = written(tmp_path / "text.onnx", onnx.identity(onnx.STRING, ["n"]))
    with sojourn.open(path) as session:
        assert str(session.signature.inputs["x"]) == "string[?]"
        texts = ["a", "é", "", "a\0b"]
        assert session.run("y", {"x": texts}).tolist() == [text.encode() for text in texts]
        with pytest.raises(InputError, match="UTF-8"):
            session.run("y", {"x": [b"\xff"]})


@needs_engine
@pytest.mark.parametrize(
    ("shape", "shown", "value"),
    [
        ((), "float32[]", 3.0),
        (None, "float32[...]", [[1.0]]),
        (["n", 2], "float32[?, 2]", [[1, 2]]),
    ],
)
def test_a_scalar_is_told_from_any_rank(tmp_path: Path, shape, shown, value) -> None:
    path = written(tmp_path / "m.onnx", onnx.identity(onnx.FLOAT, shape))
    with sojourn.open(path) as session:
        assert str(session.signature.inputs["x"]) == shown
        assert np.array_equal(session.run("y", {"x": value}), value)


@needs_engine
def test_what_numpy_and_the_engine_do_not_exchange_is_an_input_error(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", onnx.identity(onnx.BFLOAT16, [2]))
    with (
        sojourn.open(path) as session,
        pytest.raises(InputError, match="'x' is of type bfloat16"),
    ):
        session.run("y", {"x": [1, 2]})
    listed = onnx.model(
        [onnx.node("SequenceConstruct", ["x"], ["y"]), onnx.node("Identity", ["x"], ["z"])],
        [onnx.value("x", onnx.FLOAT, [1])],
        [onnx.sequence("y"), onnx.value("z", onnx.FLOAT, [1])],
    )
    with sojourn.open(written(tmp_path / "s.onnx", listed)) as session:
        assert list(session.signature.outputs) == ["z"]
        with pytest.raises(InputError, match=r"'y' is of type \(seq"):
            session.run("y", {"x": [1.0]})


@needs_engine
def test_many_threads_share_one_session(dense: Path) -> None:
    wrong: list[object] = []

    def call(seed: int) -> None:
        draw = np.random.default_rng(seed)
        for _ in range(50):
            x = draw.normal(size=(3, 4)).astype(np.float32)
            if not np.allclose(session.run("y", {"x": x}), x @ onnx.WEIGHTS, atol=1e-5):
                wrong.append(x)

    with sojourn.open(dense) as session:
        threads = [threading.Thread(target=call, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@needs_engine
def test_state_and_devices_that_it_has_not_are_refused(dense: Path, tmp_path: Path) -> None:
    with sojourn.open(dense) as session:
        for operate in (
            lambda: session.save(tmp_path / "state"),
            lambda: session.restore(tmp_path / "state"),
            session.reset,
        ):
            with pytest.raises(CheckpointError, match="no variables"):
                operate()
    with pytest.raises(DeviceError, match="an ONNX model runs on the CPU, not on 'gpu'"):
        sojourn.open(dense, device="gpu")
    with pytest.raises(ModelError, match="signature= is not for an ONNX model, which takes none"):
        sojourn.open(dense, signature="x")


@needs_engine
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            onnx.model(
                [onnx.node("Foo", ["x"], ["y"], "my")],
                [onnx.value("x", onnx.FLOAT, [1])],
                [onnx.value("y", onnx.FLOAT, [1])],
                domains=["my"],
            ),
            "has the op my:Foo, which ONNX Runtime does not have",
        ),
        (onnx.dense().replace(field(8, onnx.integer(2, 18)), field(8, onnx.integer(2, 99))), "99"),
        (onnx.integer(1, 99) + onnx.dense()[2:], "of ONNX version 99"),
        (onnx.dense("gone.bin"), "keeps weights in .*gone.bin.*, which is not there"),
        (onnx.dense("gone" * 25_000), "ONNX Runtime cannot load"),  # told in a moment
        (
            onnx.model(
                [onnx.node("SequenceConstruct", ["x"], ["y"])],
                [onnx.value("x", onnx.FLOAT, [1])],
                [onnx.sequence("y")],
            ),
            r"no output of .* is a tensor: it gives 'y' seq\(tensor\(float\)\)",
        ),
        (onnx.dense()[:-20], "ONNX Runtime cannot load"),
        (b"\x08\x09nonsense", "ONNX Runtime cannot load"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path: Path, content: bytes, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        sojourn.open(written(tmp_path / "m.onnx", content), timeout=20)


@needs_engine
def test_weights_beside_the_model_belong_to_it_in_the_sandbox_too(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", onnx.dense("m.bin"))
    written(tmp_path / "m.bin", onnx.WEIGHTS.tobytes())
    assert inspect_model(path).assets == ("m.bin",)
    for untrusted in (False, True):
        with sojourn.open(path, untrusted=untrusted) as session:
            assert np.array_equal(session.run("y", {"x": X}), X @ onnx.WEIGHTS)
    (tmp_path / "m.bin").rename(tmp_path / "other")
    (tmp_path / "m.bin").symlink_to("other")
    with pytest.raises(ModelError, match="not a regular file"):
        sojourn.open(path, untrusted=True)


@pytest.mark.parametrize(
    "name", ["m.sqlite", "secret.bin", "keys/m.bin", "m.onnx.data/secret", "m.data.txt", "x-m.bin"]
)
def test_a_file_beside_an_untrusted_model_is_not_given_to_it(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "m.onnx", onnx.dense(name))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    written(tmp_path / name, onnx.WEIGHTS.tobytes())
    [finding] = inspect_model(path).findings
    assert (finding.severity, finding.what, finding.name) == ("note", "reads files", name)
    with pytest.raises(ModelError, match="only files that are named like it"):
        sojourn.open(path, untrusted=True)


@needs_engine
def test_a_limit_on_memory_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    grow = onnx.model(
        [onnx.node("Expand", ["x", "shape"], ["y"])],
        [onnx.value("x", onnx.FLOAT, []), onnx.value("shape", onnx.INT64, ["n"])],
        [onnx.value("y", onnx.FLOAT, None)],
    )
    with sojourn.open(written(tmp_path / "m.onnx", grow), memory="256MiB") as session:
        with pytest.raises((sojourn.EngineError, MemoryError, RuntimeError)):
            session.run("y", {"x": 1.0, "shape": [2**28]})
        assert session.run("y", {"x": 1.0, "shape": [3]}).tolist() == [1, 1, 1]


def test_without_the_engine_the_error_says_what_to_install(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ModuleNotFoundError(name='onnxruntime')")
    code = "import sys, sojourn; sojourn.open(sys.argv[1], isolation='inline')"
    done = subprocess.run(
        [sys.executable, "-c", code, dense],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "pip install 'sojourn[onnx]'" in done.stderr


# Looking


def test_a_model_is_looked_at_without_loading_it(dense: Path, tmp_path: Path) -> None:
    summary = inspect_model(dense)
    assert summary.kind == "ONNX model"
    assert summary.made_with == "tests, ONNX IR 9, opset 18"
    assert str(summary.signatures["graph"]) == "(x: float32[?, 4]) -> (y: float32[?, 3])"
    assert (dict(summary.ops), summary.weight_bytes) == ({"MatMul": 1}, 48)
    assert summary.findings == ()
    by_content = inspect_model(written(tmp_path / "m.bin", onnx.dense()))
    assert by_content.kind == "ONNX model"


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../b"])
def test_weights_that_lie_elsewhere_are_a_danger(tmp_path: Path, location: str) -> None:
    path = written(tmp_path / "m.onnx", onnx.dense(location))
    [finding] = inspect_model(path).findings
    assert (finding.severity, finding.what) == ("danger", "reads files")
    with pytest.raises(ModelError, match="which is not beside it"):
        sojourn.open(path, untrusted=True)


def test_a_second_place_for_the_same_weights_does_not_hide_the_first(tmp_path: Path) -> None:
    twice = field(13, field(1, "location"), field(2, "../secret"))
    tensor = twice + onnx.weight("w", onnx.WEIGHTS, "inside.bin")
    path = written(tmp_path / "m.onnx", onnx.model([], [], [], [tensor]))
    assert inspect_model(path).assets == ("../secret", "inside.bin")


@pytest.mark.parametrize("kind", [5, 10, 22, 23])
def test_weights_in_attributes_and_in_their_defaults_are_found(tmp_path: Path, kind: int) -> None:
    tensor = onnx.weight("w", onnx.WEIGHTS, "../secret")
    attribute = field(1, "value"), field(kind, tensor if kind < 22 else field(1, tensor))
    node = onnx.node("Constant", [], ["c"])
    function = field(25, field(1, "F"), field(7, node), field(11, *attribute), field(10, "own"))
    for content in (
        onnx.model([node + field(5, *attribute)], [], []),
        onnx.model([onnx.node("F", [], ["c"], "own")], [], []) + function,
    ):
        [finding] = inspect_model(written(tmp_path / "m.onnx", content)).findings
        assert (finding.severity, finding.name) == ("danger", "../secret")


def test_ops_inside_of_loops_and_functions_are_found(tmp_path: Path) -> None:
    body = field(1, onnx.node("Foo", [], ["z"], "my"))
    loop = onnx.node("Loop", ["x"], ["y"]) + field(5, field(1, "body"), field(6, body))
    function = field(25, field(1, "F"), field(7, onnx.node("Bar", [], [])), field(10, "own"))
    content = onnx.model([loop, onnx.node("F", ["y"], ["w"], "own")], [], []) + function
    summary = inspect_model(written(tmp_path / "m.onnx", content))
    assert dict(summary.ops) == {"Loop": 1, "my::Foo": 1, "own::F": 1, "Bar": 1}
    assert [finding.name for finding in summary.findings] == ["my::Foo"]  # the other is its own


def test_damage_is_a_model_error_and_never_anything_else() -> None:
    draw = random.Random(5)
    whole = onnx.dense()
    for _ in range(3000):
        damaged = bytearray(whole[: draw.randrange(1, len(whole) + 1)])
        for _ in range(draw.randrange(4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            parse_onnx(memoryview(bytes(damaged)))
        except ModelError:
            pass


@pytest.mark.parametrize("words", [[], ["--json"], ["--all"]])
def test_a_weight_of_a_size_that_no_disk_has_is_damage(tmp_path: Path, words: list[str]) -> None:
    huge = b"".join(onnx.integer(1, 2**62) for _ in range(254))
    path = written(tmp_path / "m.onnx", onnx.model([], [], [], [huge + onnx.integer(2, 1)]))
    result = CliRunner().invoke(main, ["inspect", str(path), *words])
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 1
    assert "larger than any disk" in result.output


def test_damage_in_an_untrusted_model_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"m\.onnx: not an ONNX model: damaged"):
        sojourn.open(written(tmp_path / "m.onnx", b"{"), untrusted=True)
    with pytest.raises(ModelError, match=r"m\.onnx\.data.* is not there"):
        sojourn.open(written(tmp_path / "m.onnx", onnx.dense("m.onnx.data")), untrusted=True)


def test_more_of_anything_than_a_model_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sojourn.probes.model_files.onnx_files._MOST_ITEMS", 1000)
    for index in (1, 5, 11):
        with pytest.raises(ModelError, match="which no model has"):
            parse_onnx(memoryview(field(7, field(index) * 2000)))
    deep = b""
    for _ in range(3000):
        deep = field(1, field(5, field(6, deep)))
    with pytest.raises(ModelError, match="which no model has"):
        parse_onnx(memoryview(field(7, deep)))


@needs_engine
def test_an_idle_session_leaves_the_cores_to_others(tmp_path: Path) -> None:
    path = written(tmp_path / "dense.onnx", onnx.dense())
    x = np.ones((100_000, 4), np.float32)

    def nanoseconds(pid: int) -> int:
        tasks = [f"/proc/{pid}/task/{task}/schedstat" for task in os.listdir(f"/proc/{pid}/task")]
        return sum(int(Path(task).read_text().split()[0]) for task in tasks)

    with sojourn.open(path, engine_options={"threads": 4}) as session:
        used = []
        for _ in range(5):
            session.run("y", {"x": x})
            before = nanoseconds(session.pid)
            select.select([], [], [], 0.1)  # nothing is to happen for a while
            used.append(nanoseconds(session.pid) - before)
    assert min(used) < 2e6
