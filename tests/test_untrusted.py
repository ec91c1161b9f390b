"""Models that nobody vouches for: honest ones run, hostile ones touch nothing."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hostile_models
import models
import sojourn

pytestmark = pytest.mark.usefixtures("zygote")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, zygote):
    folder = tmp_path_factory.mktemp("hostile")
    secret = folder / "secret"
    secret.write_text("the secret")
    made = folder / "models"
    made.mkdir()
    sojourn.isolated(hostile_models.write)(str(made), str(secret))
    return made


def test_an_honest_model_runs_as_ever(folder):
    with sojourn.open(folder / "honest", untrusted=True) as session:
        assert session.run("y", {"x": [1.0, 2.0]}).tolist() == [2.0, 4.0]
        big = np.ones(2**20, np.float32)
        assert session.run("y", {"x": big}).sum() == 2 * 2**20
    assert session.receipt.clean


def test_a_model_cannot_read_a_file_of_the_user(folder):
    with sojourn.open(folder / "reads") as trusted:
        assert b"the secret" in trusted.run("y", {"x": [1.0]})
    with (
        sojourn.open(folder / "reads", untrusted=True) as session,
        pytest.raises(Exception, match=r"(?i)permission"),
    ):
        session.run("y", {"x": [1.0]})


def test_an_init_op_cannot_write_a_file_when_the_model_is_loaded(folder):
    with pytest.raises(sojourn.ModelError, match="WriteFile"):
        sojourn.open(folder / "writes", untrusted=True)
    assert not os.path.exists(folder / "pwned")
    sojourn.open(folder / "writes").close()
    assert os.path.exists(folder / "pwned")  # it does when it is trusted


def test_an_endless_loop_at_load_ends_at_the_deadline(folder):
    with pytest.raises(sojourn.StepTimeout, match="did not load its model within"):
        sojourn.open(folder / "endless", untrusted=True, timeout=1.0)


def test_a_giant_tensor_meets_the_limit_that_untrusted_models_have(folder):
    with (
        sojourn.open(folder / "giant", untrusted=True) as session,
        pytest.raises(Exception, match="OOM"),
    ):
        session.run("y", {"x": [2.0**17]})


def test_a_lambda_layer_with_code_is_refused(folder):
    with pytest.raises(sojourn.ModelError, match=r"(?i)lambda"):
        sojourn.open(folder / "lambda.keras", untrusted=True)


def test_saving_from_an_untrusted_worker_is_refused(folder, tmp_path):
    with (
        sojourn.open(folder / "honest", untrusted=True) as session,
        pytest.raises(sojourn.CheckpointError, match="writes nothing"),
    ):
        session.save(tmp_path / "state")


def test_what_makes_no_sense_is_refused(folder):
    with pytest.raises(ValueError, match="models in files"):
        sojourn.open(models.adder, untrusted=True)
    with pytest.raises(ValueError, match="not inline"):
        sojourn.open(folder / "honest", untrusted=True, isolation="inline")
    with pytest.raises(ValueError, match="on the CPU"):
        sojourn.open(folder / "honest", untrusted=True, device="gpu")
    with pytest.raises(ValueError, match="best-effort"):
        sojourn.open(folder / "honest", untrusted="somewhat")
