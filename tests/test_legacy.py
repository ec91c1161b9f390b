"""`sojourn run`: programs of the TensorFlow 1 era run unmodified."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "legacy_programs"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "runner.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def run(runner: subprocess.Popen[str], tmp_path: Path) -> Run:
    def run_it(*args: str, program: str = "", isolation: str = "raw") -> Outcome:
        if program:
            shutil.copy(PROGRAMS / program, tmp_path)
            args = (*args, program)
        args = ("--isolation", isolation, *args)
        out, err = tmp_path / "out", tmp_path / "err"
        order = {"args": args, "folder": str(tmp_path), "out": str(out), "err": str(err)}
        assert runner.stdin
        assert runner.stdout
        runner.stdin.write(json.dumps(order) + "\n")
        runner.stdin.flush()
        code = int(runner.stdout.readline())
        return Outcome(code, out.read_text(), err.read_text())

    return run_it


@pytest.mark.parametrize(
    "program",
    [
        "before_one.py",
        "contrib_cells.py",
        "contrib_numbers.py",
        "contrib_parts.py",
        "decoders.py",
        "decoders_of_one.py",
        "estimator_canned.py",
        "estimator_clusters.py",
        "estimator_keras.py",
        "estimator_learn.py",
        "estimator_tpu.py",
        "habits.py",
        "keras_sequences.py",
        "layers_and_cells.py",
        "moved_places.py",
        "slim_networks.py",
        "slim_records.py",
        "slim_training.py",
    ],
)
def test_a_program_of_the_time_runs_unmodified(run: Run, program: str) -> None:
    outcome = run("--quiet", program=program)
    assert (outcome.code, outcome.out) == (0, "fine\n"), outcome.err


@pytest.mark.quick
def test_sessions_that_helpers_open_are_isolated_and_accounted_for_too(
    run: Run, tmp_path: Path
) -> None:
    outcome = run("--output", "account.json", program="training_helpers.py", isolation="process")
    assert (outcome.code, outcome.out) == (0, "fine\n"), outcome.err
    account = json.loads((tmp_path / "account.json").read_text())
    assert account["isolation"] == "process"
    assert [(s["line"], s["left_open"]) for s in account["sessions"]] == [(10, False), (19, True)]
    assert all(s["held_bytes"] == s["returned_bytes"] > 0 for s in account["sessions"])


def test_each_run_of_an_estimator_is_an_isolated_session_that_ends_with_it(
    run: Run, tmp_path: Path
) -> None:
    outcome = run("--output", "account.json", program="estimator_custom.py", isolation="process")
    assert (outcome.code, outcome.out) == (0, "fine\n"), outcome.err
    account = json.loads((tmp_path / "account.json").read_text())
    assert account["isolation"] == "process"
    sessions = account["sessions"]
    assert len(sessions) > 10
    assert all(s["file"].endswith("estimator_custom.py") for s in sessions)
    assert all(s["held_bytes"] == s["returned_bytes"] > 0 for s in sessions)
    assert not any(s["left_open"] for s in sessions)


def test_what_was_not_trained_is_evaluated_predicted_and_exported_from_its_warm_start(
    run: Run,
) -> None:
    outcome = run("--quiet", program="estimator_warm.py")
    assert (outcome.code, outcome.out) == (0, "fine\n"), outcome.err


def test_estimators_choose_the_losses_rates_and_exports_that_tensorflow_1_did(run: Run) -> None:
    outcome = run("--quiet", program="estimator_numbers.py")
    assert (outcome.code, outcome.out) == (0, "fine\n"), outcome.err


def test_functions_of_contrib_take_arguments_in_each_form_they_had(run: Run) -> None:
    outcome = run("--quiet", program="contrib_calls.py")
    assert (outcome.code, outcome.out) == (0, "fine\n"), outcome.err


def test_a_session_with_eager_on_does_what_its_author_meant(run: Run) -> None:
    outcome = run(program="compat_with_eager.py", isolation="inline")
    assert (outcome.code, outcome.out) == (0, "22 2\n"), outcome.err
    assert "compat_with_eager.py:7  Session: 2 runs" in outcome.err


def test_eager_programs_of_the_time_run_eagerly(run: Run) -> None:
    outcome = run("--quiet", program="eager_of_the_time.py")
    assert (outcome.code, outcome.out) == (0, "fine\n"), outcome.err


def test_a_program_that_logs_everything_hears_nothing_of_its_sessions(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "loud.py").write_text(
        "import logging\nimport tensorflow as tf\nlogging.basicConfig(level=logging.DEBUG)\n"
        "with tf.Session() as sess:\n    sess.run(tf.constant(1))\n"
    )
    outcome = run("--quiet", "loud.py", isolation="inline")
    assert outcome.code == 0
    assert "session." not in outcome.err


def test_a_modern_program_stays_modern(run: Run) -> None:
    outcome = run(program="stays_modern.py")
    assert outcome.out == "6.0 True False\n", outcome.err
    assert "the program opened no session" in outcome.err


@pytest.mark.quick
def test_flags_arguments_exit_code_and_the_account(run: Run, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "flags_and_exit.py", tmp_path)
    outcome = run(
        "--output", "account.json", "flags_and_exit.py", "--steps=5", "--log_dir", "x", "a"
    )
    assert (outcome.code, outcome.out) == (7, "__main__ x 5 5 ['a']\n"), outcome.err
    assert "1 session, 1 left open" in outcome.err
    account = json.loads((tmp_path / "account.json").read_text())
    assert account["exit_code"] == 7
    assert account["era"] == "tf1"
    [session] = account["sessions"]
    assert session["file"].endswith("flags_and_exit.py")
    assert (session["line"], session["runs"], session["left_open"]) == (15, 1, True)


HELD = """
import tensorflow as tf, weakref

v = tf.get_variable("v", [2**20])

class Owner:
    def __init__(self):
        self.sess = tf.Session()
        weakref.finalize(self, self.sess.close)

def forgetful():
    sess = tf.Session()
    sess.run(v.initializer)
    sess.make_callable(v)()

owner = Owner()
owner.sess.run(v.initializer)
forgetful()
"""


def test_a_session_that_a_finalizer_closes_is_closed_and_a_forgotten_one_was_measured(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "held.py").write_text(HELD)
    outcome = run("--output", "account.json", "held.py", isolation="process")
    assert outcome.code == 0, outcome.err
    account = json.loads((tmp_path / "account.json").read_text())
    by_line = {session["line"]: session for session in account["sessions"]}
    assert (by_line[8]["left_open"], by_line[12]["left_open"]) == (False, True)
    assert by_line[12]["held_bytes"] >= 4 * 2**20
    assert by_line[12]["runs"] == 2  # one of them through a callable


def test_a_step_after_the_last_exit_handler_names_who_closed_the_session(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "late.py").write_text(
        "import os, sojourn\n"
        "os.environ['SOJOURN_PRELOAD'] = 'none'\n"
        "session = sojourn.open(lambda: lambda: 1)\n"
        "from sojourn.process import exits\n"
        "def late():\n"
        "    try:\n"
        "        session.run(None, {})\n"
        "    except sojourn.SessionClosed as error:\n"
        "        print(error)\n"
        "exits.at_exit(99, late)\n"
    )
    outcome = run("--tf2", "-q", "late.py")
    assert outcome.out.endswith("was closed at the exit of the program\n"), outcome.err


def test_a_module_runs_with_its_relative_imports(run: Run, tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("import tensorflow as tf\nx = tf.placeholder(tf.int32)\n")
    (package / "go.py").write_text(
        "import sys\nimport tensorflow as tf\nfrom .net import x\n"
        "print(tf.Session().run(x + 1, {x: 4}), sys.argv[1:])\n"
    )
    assert run("-q", "-m", "pack.go", "-q").out == "5 ['-q']\n"


def test_mnist_is_read_from_local_files(run: Run, tmp_path: Path) -> None:
    missing = run(program="mnist_reader.py")
    assert missing.code == 1
    assert "there is no train-images-idx3-ubyte" in missing.err
    assert str(tmp_path / "MNIST_data") in missing.err
    folder = tmp_path / "MNIST_data"
    folder.mkdir()
    for name, count in (("train", 12), ("t10k", 4)):
        pixels = np.zeros((count, 28, 28), np.uint8).tobytes()
        images = struct.pack(">4I", 0x803, count, 28, 28) + pixels
        (folder / f"{name}-images-idx3-ubyte").write_bytes(images)
        labels = struct.pack(">2I", 0x801, count) + bytes(count)
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    outcome = run("-q", "mnist_reader.py")
    assert outcome.out == "[  5 784] (5, 10) 3\n", outcome.err


def test_what_is_gone_fails_at_the_programs_line_and_names_the_replacement(run: Run) -> None:
    outcome = run("-q", program="uses_what_is_gone.py")
    assert outcome.code == 1
    assert 'uses_what_is_gone.py", line 7, in <module>' in outcome.err
    assert "tf.estimator.BoostedTreesClassifier was removed from TensorFlow" in outcome.err
    assert "use instead: the package tensorflow-decision-forests" in outcome.err
    assert "site-packages" not in outcome.err


def test_ops_fall_back_from_a_missing_device_and_the_account_says_which(
    run: Run, tmp_path: Path
) -> None:
    outcome = run("--output", "account.json", program="placed_on_gpus.py", isolation="inline")
    assert (outcome.code, outcome.out) == (0, "6.0\n"), outcome.err
    assert "6 ops asked for /GPU:7, which is not here: a, v/initial_value, v, ...\n" in outcome.err
    assert "1 op asked for /GPU:8, which is not here: mul\n" in outcome.err
    fallbacks = json.loads((tmp_path / "account.json").read_text())["fallbacks"]
    assert fallbacks["/GPU:8"] == {"ops": 1, "first": ["mul"]}


def test_strict_placement_keeps_tensorflows_error(run: Run) -> None:
    outcome = run("--strict-placement", program="placed_on_gpus.py", isolation="inline")
    assert outcome.code == 1
    assert "Cannot assign a device for operation" in outcome.err


def test_python_2_and_wrong_use_are_told_apart(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\nprint tf.__version__\n")
    old = run("old.py")
    assert old.code == 1
    assert "old.py:2: this program is written for Python 2" in old.err
    assert run("no_such_file.py").code == 2
    assert run().code == 2
    assert run("--output", "no/such/folder.json", "old.py").code == 2
