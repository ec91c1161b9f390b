"""Classify and regress as in TensorFlow Serving: tf.Examples in, labels or values out.

Built on `Handler.infer`, for REST and gRPC alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.handler import Handler
from sojourn.service.inference import Answer, Inference, ModelRef
from sojourn.values import Signature

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
_CLASSES, _SCORES, _VALUES = "classes", "scores", "outputs"
_DEFAULT = "serving_default"


@dataclass(frozen=True, slots=True)
class Task:
    """One classify or regress request for some examples, each a serialized tf.Example."""

    model: ModelRef
    examples: Sequence[bytes]
    signature: str | None = None
    deadline: float | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Classified:
    """The labels and scores of each example; a label is empty where the model returns none."""

    model: str
    version: int
    signature: str
    rows: list[list[tuple[str, float]]]


@dataclass(frozen=True, slots=True)
class Regressed:
    """A value for each example."""

    model: str
    version: int
    signature: str
    values: list[float]


async def classify(handler: Handler, task: Task) -> Classified:
    """Return the labels and scores of each example."""
    task, signature, given = await _signature(handler, task)
    wanted = tuple(name for name in (_CLASSES, _SCORES) if name in signature.outputs)
    if not wanted:
        raise invalid(f"to classify, a signature must give {_CLASSES} or {_SCORES}: {signature}")
    answer = await _infer(handler, task, given, wanted)
    count = len(task.examples)
    labels = _rows(answer.outputs.get(_CLASSES), _CLASSES, count)
    scores = _rows(answer.outputs.get(_SCORES), _SCORES, count)
    if labels is None:
        assert scores is not None
        labels = np.full(scores.shape, b"", object)
    elif scores is None:
        scores = np.zeros(labels.shape, np.float32)
    if labels.shape != scores.shape:
        raise _misshapen(f"{_CLASSES} {list(labels.shape)} and {_SCORES} {list(scores.shape)}")
    rows = [
        [(_text(label), float(score)) for label, score in zip(some, of, strict=True)]
        for some, of in zip(labels.tolist(), scores.tolist(), strict=True)
    ]
    return Classified(answer.model, answer.version, answer.signature, rows)


async def regress(handler: Handler, task: Task) -> Regressed:
    """Return the value of each example."""
    task, signature, given = await _signature(handler, task)
    if _VALUES not in signature.outputs:
        raise invalid(f"to regress, a signature must give {_VALUES}: {signature}")
    answer = await _infer(handler, task, given, (_VALUES,))
    found = np.asarray(answer.outputs[_VALUES])
    count = len(task.examples)
    if found.shape not in ((count,), (count, 1)) or found.dtype.kind not in "fiub":
        raise _misshapen(f"{_VALUES} {found.dtype}{list(found.shape)}")
    values = [float(v) for v in found.reshape(-1).tolist()]
    return Regressed(answer.model, answer.version, answer.signature, values)


_METHODS: Mapping[str, Callable[[Handler, Task], Coroutine[Any, Any, Classified | Regressed]]] = {
    CLASSIFY: classify,
    REGRESS: regress,
}


async def multi_infer(
    handler: Handler, tasks: Sequence[tuple[str, Task]]
) -> list[Classified | Regressed]:
    """Run several tasks on the same examples, each with its own method; all for one model, and no
    two for the same signature.

    All tasks are answered or none.
    """
    if len({task.model.name for _, task in tasks}) != 1:
        raise invalid("the tasks of a request must be for one model")
    if len({task.signature or _DEFAULT for _, task in tasks}) != len(tasks):
        raise invalid("the tasks of a request must be for different signatures")
    for method, _ in tasks:
        if method not in _METHODS:
            raise Refused(Status.UNIMPLEMENTED, f"a method must be {' or '.join(_METHODS)}")
    asked = [asyncio.ensure_future(_METHODS[method](handler, task)) for method, task in tasks]
    try:
        return await asyncio.gather(*asked)
    finally:
        for one in asked:
            one.cancel()


async def _signature(handler: Handler, task: Task) -> tuple[Task, Signature, str]:
    """Return the task with its deadline, the requested signature, and the name of the input for
    examples."""
    if not task.examples:
        raise invalid("a request must have examples")
    call, deadline = await handler.signature(task.model, task.signature, task.deadline)
    signature = call.spec
    inputs = list(signature.inputs.items())
    if len(inputs) != 1 or inputs[0][1].dtype != "string":
        raise invalid(
            f"a signature must take serialized examples, one input of strings: {signature}"
        )
    return replace(task, deadline=deadline), signature, inputs[0][0]


async def _infer(handler: Handler, task: Task, given: str, wanted: tuple[str, ...]) -> Answer:
    examples = np.empty(len(task.examples), object)
    examples[:] = task.examples
    return await handler.infer(
        Inference(
            task.model, {given: examples}, wanted, task.signature, task.deadline, task.request_id
        )
    )


def _rows(found: np.ndarray | None, name: str, count: int) -> np.ndarray | None:
    if found is None:
        return None
    if found.ndim != 2 or len(found) != count:
        raise _misshapen(f"{name} {list(found.shape)}")
    return found


def _misshapen(what: str) -> Refused:
    return Refused(
        Status.FAILED_PRECONDITION, f"the model gave {what}, which is not one row for each example"
    )


def _text(label: Any) -> str:
    return label.decode(errors="replace") if isinstance(label, bytes) else str(label)
