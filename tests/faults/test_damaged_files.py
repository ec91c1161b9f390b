"""Models and checkpoints with damage: a typed error or a working session, and nothing left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from faults.chances import seed_of

SEED = 23


RIGHT = [[4.0, 4.0]]
ONES = np.ones((1, 4), np.float32)
# What TensorFlow itself checks: whatever is read there is right, or refused.
CHECKED = ("variables.index", "variables.data-00000-of-00001", "linear.keras")
VERDICTS = ("ModelError", "EngineError", "MemoryError", "ResourceExhaustedError")


def _write(folder: str) -> None:
    import keras
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.ones([4, 2]))

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
        def __call__(self, x: Any) -> Any:
            return {"y": x @ self.w}

    tf.saved_model.save(Model(), f"{folder}/linear")
    dense = keras.layers.Dense(2, use_bias=False, kernel_initializer="ones", name="y")
    model = keras.Sequential([keras.Input((4,), name="x"), dense])
    model.save(f"{folder}/linear.keras")
    model.save(f"{folder}/linear.h5")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        tf.matmul(x, tf.ones([4, 2]), name="y")
    tf.io.write_graph(graph, folder, "linear.pb", as_text=False)


def _raw(path: str) -> list[list[float]]:
    """What TensorFlow and Keras themselves compute with it."""
    import keras
    import tensorflow as tf

    x = tf.ones([1, 4])
    if path.endswith((".keras", ".h5")):
        return np.asarray(keras.saving.load_model(path)(x)).tolist()
    if not path.endswith(".pb"):
        return tf.saved_model.load(path).signatures["serving_default"](x)["y"].numpy().tolist()
    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(Path(path).read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(definition, name="")
        return session.run("y:0", {"x:0": ONES}).tolist()


@pytest.fixture(scope="module")
def originals(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    sojourn.isolated(_write)(str(folder))
    return folder


def outcome(path: Path, part: str) -> str:
    """What opening it and running it comes to; anything but these is a bug."""
    try:
        with sojourn.open(path) as session:
            [y] = session.run(None, {next(iter(session.signature.inputs)): ONES}).values()
    except sojourn.SessionBroken:
        # Only where TensorFlow itself crashes, or finds no memory: raised in one of its threads, as
        # when a session of its own loads the model, that ends the process too.
        with pytest.raises((sojourn.SessionBroken, MemoryError)):
            sojourn.isolated(_raw)(str(path))
        return "crashes TensorFlow"
    except (sojourn.SojournError, MemoryError) as error:
        assert type(error).__name__ in VERDICTS, repr(error)  # noqa: PT017
        return type(error).__name__
    if y.tolist() != RIGHT:
        assert part not in CHECKED, y
        np.testing.assert_array_equal(y, sojourn.isolated(_raw)(str(path)))
    return "works"


def damaged(data: bytes, chosen: random.Random) -> bytes:
    """The bytes with some of them changed, cut off, repeated, or emptied."""
    content = bytearray(data)
    at = chosen.randrange(len(content))
    match chosen.randrange(5):
        case 0:
            content[at] ^= 1 << chosen.randrange(8)
        case 1:
            del content[at:]
        case 2:
            content[at : at + 40] = chosen.randbytes(40)
        case 3:
            content[at:at] = content[at : at + 200]
        case 4:
            del content[at : at + chosen.randrange(1, 100)]
    return bytes(content)


MODELS = ["linear", "linear.keras", "linear.h5", "linear.pb"]
PARTS = ["saved_model.pb", "variables.index", "variables.data-00000-of-00001"]
FILES = [("linear", part) for part in PARTS] + [(name, name) for name in MODELS[1:]]


def copied(originals: Path, model: str, part: str, to: Path) -> tuple[Path, Path]:
    """A copy of a model, and the part of it that is to be damaged."""
    source, copy = originals / model, to / model
    if source.is_dir():
        shutil.copytree(source, copy, dirs_exist_ok=True)
        [victim] = copy.rglob(part)
        return copy, victim
    to.mkdir(exist_ok=True)
    shutil.copy(source, copy)
    return copy, copy


@pytest.mark.parametrize("model", MODELS)
def test_the_model_as_it_was_works(originals, model):
    assert outcome(originals / model, CHECKED[0]) == "works"
    assert sojourn.isolated(_raw)(str(originals / model)) == RIGHT


@pytest.mark.parametrize(("model", "part"), FILES)
def test_a_model_that_lacks_a_part_or_has_an_empty_one_is_refused(originals, tmp_path, model, part):
    for change in ("missing", "empty"):
        copy, victim = copied(originals, model, part, tmp_path / change)
        victim.unlink()
        if change == "empty":
            victim.touch()
        assert outcome(copy, part) in ("ModelError", "EngineError")


@pytest.mark.parametrize(("model", "part"), FILES)
def test_a_model_with_any_damage_gets_a_verdict(originals, tmp_path, request, model, part):
    seed = seed_of(request)
    chosen = random.Random(f"{seed}{part}")
    copy, victim = copied(originals, model, part, tmp_path)
    data = victim.read_bytes()
    for n in range(8 if copy.is_dir() else 5):
        victim.write_bytes(damaged(data, chosen))
        try:
            outcome(copy, part)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, damage {n} of {part}") from error


def test_a_checkpoint_with_any_damage_is_refused_or_the_same_and_harms_nothing(tmp_path):
    chosen = random.Random(SEED)
    with sojourn.open(models.counter) as session:
        session.run("total", {"amount": 5.0})
        session.save(tmp_path / "saved")
        session.run("total", {"amount": 1.0})
        files = sorted(p for p in (tmp_path / "saved").iterdir())
        for n in range(40):
            victim = chosen.choice(files)
            data = victim.read_bytes()
            victim.write_bytes(damaged(data, chosen))
            unchanged = victim.read_bytes() == data
            try:
                session.restore(tmp_path / "saved")
                assert unchanged or session.run("value") == 5.0, f"seed {SEED}, damage {n}"
                session.run("store", {"amount": 6.0})
            except sojourn.CheckpointError:
                pass
            assert session.run("value") == 6.0, f"seed {SEED}, damage {n}"
            victim.write_bytes(data)
        session.restore(tmp_path / "saved")
        assert session.run("value") == 5.0
