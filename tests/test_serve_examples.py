"""tf.Examples from JSON, without TensorFlow; classifying on any handler."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sojourn.service import classifying, examples
from sojourn.service.classifying import Task
from sojourn.service.failures import Refused, Status
from sojourn.service.grpc.messages import TENSORS
from sojourn.service.inference import Answer, ModelRef
from sojourn.values import Signature, TensorSpec

pytestmark = pytest.mark.quick


def features_of(serialized: bytes) -> dict[str, list[Any]]:
    found = TENSORS.Example.FromString(serialized).features.feature
    return {
        name: list(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)
        for name, feature in found.items()
    }


def test_features_become_an_example():
    features = {
        "whole": [1, -(2**63)], "one": 2, "float": [1, 2.5], "text": "ü", "none": [],
        "bytes": [{"b64": "/w=="}, "a", {"b64": " Y\nQ"}], "yes": [True, 2],
    }  # fmt: skip
    serialized = examples.from_json(features)
    assert (
        TENSORS.Example.FromString(serialized).features.feature["none"].WhichOneof("kind") is None
    )
    assert features_of(serialized) == {
        "whole": [1, -(2**63)], "one": [2], "float": [1.0, 2.5], "text": ["ü".encode()],
        "none": [], "bytes": [b"\xff", b"a", b"a"], "yes": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize(
    "features",
    [
        {"x": [1, "a"]},
        {"x": [True, 1.5]},
        {"x": None},
        {"x": [[1]]},
        {"x": 2**63},
        {"x": 1e39},
        {"x": {"b64": "*"}},
        {"x": {"b64": "AA==", "more": 1}},
        {"x": {"b64": 1}},
        {"\ud800": 1},
        [1],
        "x",
    ],
)
def test_what_cannot_be_an_example_is_refused(features):
    with pytest.raises(Refused) as refused:
        examples.from_json(features)
    assert refused.value.status is Status.INVALID_ARGUMENT


def test_a_context_is_overruled_by_an_examples_own_features():
    own = examples.from_json({"a": 1})
    context = examples.from_json({"a": 2, "b": 3})
    (both,) = examples.with_context([own], context)
    assert features_of(both) == {"a": [1], "b": [3]}


class Giving:
    """A handler whose model gives these outputs for any examples."""

    def __init__(self, **outputs: Any) -> None:
        self._outputs = {name: np.asarray(value) for name, value in outputs.items()}
        self.asked: tuple[str, ...] | None = None

    async def signature(self, ref: ModelRef, name: str | None, deadline: float | None) -> Any:
        spec = TensorSpec("string", (None,))
        anything = {name: TensorSpec("any", None) for name in self._outputs}
        return SimpleNamespace(spec=Signature({"inputs": spec}, anything)), deadline

    async def infer(self, inference: Any) -> Answer:
        self.asked = inference.outputs
        return Answer("m", 1, {name: self._outputs[name] for name in inference.outputs})


TASK = Task(ModelRef("m"), [b"", b""])


def test_labels_or_scores_alone_are_enough():
    scored = Giving(scores=[[0.25, 0.75], [1, 0]], other=[1])
    rows = asyncio.run(classifying.classify(scored, TASK)).rows
    assert rows == [[("", 0.25), ("", 0.75)], [("", 1.0), ("", 0.0)]]
    assert scored.asked == ("scores",)
    labelled = Giving(classes=np.array([[b"a"], [b"\xff"]], object))
    rows = asyncio.run(classifying.classify(labelled, TASK)).rows
    assert rows == [[("a", 0.0)], [("\N{REPLACEMENT CHARACTER}", 0.0)]]


@pytest.mark.parametrize("values", [[1, 2], [[1], [2]]])
def test_values_may_be_a_column(values):
    assert asyncio.run(classifying.regress(Giving(outputs=values), TASK)).values == [1.0, 2.0]


@pytest.mark.parametrize(
    ("handler", "ask", "status"),
    [
        (Giving(scores=[[1.0]]), classifying.classify, Status.FAILED_PRECONDITION),
        (Giving(scores=[1.0, 2.0]), classifying.classify, Status.FAILED_PRECONDITION),
        (
            Giving(scores=np.ones((2, 2)), classes=np.full((2, 1), b"a", object)),
            classifying.classify,
            Status.FAILED_PRECONDITION,
        ),
        (Giving(outputs=[[1, 2], [3, 4]]), classifying.regress, Status.FAILED_PRECONDITION),
        (Giving(outputs=["a", "b"]), classifying.regress, Status.FAILED_PRECONDITION),
        (Giving(y=[1, 2]), classifying.classify, Status.INVALID_ARGUMENT),
        (Giving(y=[1, 2]), classifying.regress, Status.INVALID_ARGUMENT),
    ],
)
def test_a_model_that_gives_something_else_is_named(handler, ask, status):
    with pytest.raises(Refused) as refused:
        asyncio.run(ask(handler, TASK))
    assert refused.value.status is status
