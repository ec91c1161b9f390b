"""Converting with little memory: what does not fit is said to, and says nothing of the model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sojourn
from needed import needs_engines
from sojourn.errors import BudgetExceeded, ModelError
from sojourn.session.conversion import trying
from sojourn.session.conversion.attempt import Attempt
from sojourn.values import Signature, TensorSpec

pytestmark = pytest.mark.usefixtures("own_cache")
NEEDS_MORE = "converting and comparing it needs more memory: .*memory='.*' was reached"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, zygote: None) -> Path:
    """A model of 32 MiB."""
    folder = tmp_path_factory.mktemp("large") / "model"

    @sojourn.isolated
    def build() -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        with v1.Graph().as_default(), v1.Session() as session:
            y = x = v1.placeholder(tf.float32, [None, 1024], name="x")
            for number in range(8):
                y = tf.nn.relu(tf.matmul(y, v1.get_variable(f"w{number}", [1024, 1024])))
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})

    build()
    return folder


@needs_engines
@pytest.mark.parametrize("engine", ["onnxruntime", "litert"])
@pytest.mark.parametrize("memory", ["80MiB", "128MiB", "200MiB"])
def test_a_limit_that_converting_does_not_fit_into_is_what_the_refusal_names(
    large: Path, engine: str, memory: str, own_cache: Path
) -> None:
    with pytest.raises(ModelError, match=NEEDS_MORE):
        sojourn.open(large, engine=engine, memory=memory)
    assert [*own_cache.iterdir()] == []  # the next may have more


@needs_engines
def test_the_fastest_is_tensorflow_where_converting_does_not_fit(large: Path) -> None:
    with sojourn.open(large, engine="fastest", memory="128MiB") as session:
        assert session.engine.startswith("tensorflow: ")
        assert session.engine.count("needs more memory") == 2
        assert session.run("y", {"x": np.ones((2, 1024), np.float32)}).shape == (2, 1024)


def reference(fits: int) -> Any:
    """A session on TensorFlow that has memory for so many rows."""

    def run(_: None, feeds: dict[str, np.ndarray], timeout: float | None) -> dict[str, np.ndarray]:
        if len(feeds["x"]) > fits:
            raise BudgetExceeded("memory='1GiB' was reached")
        return {"y": feeds["x"]}

    signature = Signature({"x": TensorSpec("float32", (None,))}, {})
    keeping = SimpleNamespace(operations=())
    stay = SimpleNamespace(keeping=keeping, call=lambda *_, **__: (False, ()))  # it has no loops
    return SimpleNamespace(run=run, signature=signature, _stay=stay)


def test_a_batch_that_does_not_fit_is_none_that_tensorflow_refuses() -> None:
    tried, refusal = trying.try_out(Attempt("m", None), reference(fits=3), None)
    assert {batch for batch, _, _ in tried.answered} == {1, 3}
    assert (tried.refused, refusal) == ([], "")


def test_where_no_batch_fits_the_limit_is_the_reason() -> None:
    with pytest.raises(BudgetExceeded):
        trying.try_out(Attempt("m", None), reference(fits=0), None)
