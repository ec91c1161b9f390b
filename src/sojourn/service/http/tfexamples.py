"""TensorFlow Serving's REST API for tf.Examples: classify and regress."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sojourn.service.classifying import Task, classify, regress
from sojourn.service.examples import from_json, with_context
from sojourn.service.failures import invalid
from sojourn.service.handler import Handler
from sojourn.service.http import json_arrays
from sojourn.service.http.json_numbers import in_few_digits
from sojourn.service.http.messages import Request, Response
from sojourn.service.http.tfserving import ref_of


async def answer_classify(handler: Handler, request: Request) -> Response:
    """Answer `{"results": [[[label, score], ...], ...]}`, with a list for each example."""
    found = await classify(handler, _task(request))
    results = [
        list(zip((label for label, _ in row), _floats([score for _, score in row]), strict=True))
        for row in found.rows
    ]
    is_plain = all(math.isfinite(score) for row in results for _, score in row)
    return Response(200, json_arrays.encoded({"results": results}, is_plain))


async def answer_regress(handler: Handler, request: Request) -> Response:
    """Answer `{"results": [value, ...]}`, with a value for each example."""
    found = await regress(handler, _task(request))
    values = _floats(found.values)
    return Response(200, json_arrays.encoded({"results": values}, all(map(math.isfinite, values))))


def _floats(values: list[float]) -> Any:
    """Round the values to float32, the type that TensorFlow Serving uses for them."""
    with np.errstate(over="ignore"):
        return in_few_digits(np.array(values, np.float32)).tolist()


def _task(request: Request) -> Task:
    asked = json_arrays.parsed(request.body)
    if not isinstance(asked, dict):
        raise invalid("the body must be a JSON object")
    examples, name = asked.get("examples"), asked.get("signature_name", "")
    if not isinstance(examples, list) or not examples:
        raise invalid("'examples' must be a list with at least one example")
    if not isinstance(name, str):
        raise invalid("'signature_name' must be a string")
    serialized = [from_json(example) for example in examples]
    if "context" in asked:
        serialized = with_context(serialized, from_json(asked["context"]))
    return Task(ref_of(request), serialized, name or None, request_id=request.request_id)
