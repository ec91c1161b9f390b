"""Keras files: what a session of one holds, and what is said of one that cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sojourn

pytestmark = pytest.mark.usefixtures("zygote")


def write(folder: str) -> None:
    import keras
    from keras import layers

    class Twice(layers.Layer):
        def call(self, x):  # type: ignore[no-untyped-def]
            return x * 2

    def save(name: str, layer: layers.Layer, size: int = 4) -> keras.Model:
        model = keras.Sequential([layers.Input((size,)), layer])
        model.save(f"{folder}/{name}")
        return model

    save("large.keras", layers.Dense(4096, use_bias=False), 4096).export(f"{folder}/large_saved")
    save("custom.keras", Twice())
    save("custom.h5", Twice())
    save("lambda.keras", layers.Lambda(lambda x: x * 2))
    save("good.keras", layers.Dense(3))


@pytest.fixture(scope="module")
def folder(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keras")
    sojourn.isolated(write)(str(made))
    whole = (made / "good.keras").read_bytes()
    (made / "cut.keras").write_bytes(whole[: len(whole) // 2])
    return made


def test_a_keras_file_holds_no_more_than_the_same_model_as_a_saved_model(folder: Path):
    def held(name: str) -> int:
        with sojourn.open(folder / name) as session:
            x = np.ones((1, 4096), np.float32)
            session.run(None, {next(iter(session.signature.inputs)): x})
            return session.footprint().host_bytes

    assert held("large.keras") <= 1.15 * held("large_saved")


@pytest.mark.parametrize("name", ["custom.keras", "custom.h5"])
def test_a_class_that_keras_does_not_know_is_named_and_what_to_do(folder: Path, name: str):
    with pytest.raises(
        sojourn.ModelError, match=r"'(\w+>)?Twice'.*custom_objects=.'Twice': Twice."
    ):
        sojourn.open(folder / name)


def test_of_a_lambda_it_is_said_which_function_to_open(folder: Path):
    path = folder / "lambda.keras"
    with pytest.raises(sojourn.ModelError, match=r"Lambda.*open a function: lambda: .*safe_mode="):
        sojourn.open(path)

    def trusted():  # type: ignore[no-untyped-def]
        import keras

        return keras.models.load_model(path, safe_mode=False)

    with sojourn.open(trusted) as session:
        name = next(iter(session.signature.inputs))
        assert session.run(None, {name: np.ones((1, 4), np.float32)})


def test_a_truncated_archive_is_called_one(folder: Path):
    with pytest.raises(sojourn.ModelError, match=r"cut\.keras is truncated or damaged"):
        sojourn.open(folder / "cut.keras")


def test_too_little_memory_for_a_keras_file_is_reported_as_such(folder: Path):
    for memory in ("100MiB", "200MiB", "270MiB"):
        with pytest.raises(sojourn.BudgetExceeded, match=f"memory='{memory}' was reached"):
            sojourn.open(folder / "large.keras", memory=memory)
