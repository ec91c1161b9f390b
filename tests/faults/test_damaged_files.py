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

SEED = 23


def softmax() -> Any:
    return models.softmax_regression()


def make_saved_model(folder: str) -> Any:
    """A builder that writes a SavedModel from inside a worker, where TensorFlow is."""

    def build() -> Any:
        def write() -> Any:
            import numpy as np
            import tensorflow as tf

            class Model(tf.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.w = tf.Variable(tf.ones([4, 2]))

                @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
                def __call__(self, x: Any) -> Any:
                    return {"y": x @ self.w}

            tf.saved_model.save(Model(), folder)
            return np.array(0)

        return write

    return build


@pytest.fixture(scope="module")
def saved_model(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "linear"
    with sojourn.open(make_saved_model(str(folder))) as session:
        session.run("output")
    return folder


def outcome(path: Path) -> str:
    """What opening it and running it comes to; anything but these is a bug."""
    try:
        with sojourn.open(path) as session:
            session.run(None, {"x": np.ones((1, 4), np.float32)})
        return "works"
    except (sojourn.SojournError, MemoryError) as error:
        return type(error).__name__


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


def test_the_model_as_it_was_works(saved_model):
    assert outcome(saved_model) == "works"


@pytest.mark.parametrize(
    "part", ["saved_model.pb", "variables.index", "variables.data-00000-of-00001"]
)
def test_a_model_that_lacks_a_part_or_has_an_empty_one_is_refused(saved_model, tmp_path, part):
    for change in ("missing", "empty"):
        copy = tmp_path / change
        shutil.copytree(saved_model, copy)
        [victim] = copy.rglob(part)
        victim.unlink()
        if change == "empty":
            victim.touch()
        assert outcome(copy) in ("ModelError", "EngineError")


@pytest.mark.parametrize(
    "part", ["saved_model.pb", "variables.index", "variables.data-00000-of-00001"]
)
def test_a_model_with_any_damage_gets_a_verdict(saved_model, tmp_path, part):
    chosen = random.Random(f"{SEED}{part}")
    [original] = saved_model.rglob(part)
    data = original.read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(saved_model, copy)
    [victim] = copy.rglob(part)
    for n in range(8):
        victim.write_bytes(damaged(data, chosen))
        try:
            outcome(copy)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, damage {n} of {part}") from error


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
