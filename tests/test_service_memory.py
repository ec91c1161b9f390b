"""What a server remembers of requests is bounded, however long their words are."""

from __future__ import annotations

import numpy as np
import pytest

from sojourn.service import datatypes
from sojourn.service.failures import Refused
from sojourn.service.http import json_arrays, kserve_bodies
from sojourn.service.inference import keep_alive_of
from sojourn.service.signatures import CallSignature
from sojourn.service.statistics import ModelStatistics
from sojourn.service.targets import Targets
from sojourn.values import Signature, TensorSpec


def test_a_shape_of_very_many_dimensions_is_refused_and_forgotten() -> None:
    before = datatypes._is_possible.cache_info()
    with pytest.raises(Refused, match=r"no array has the shape \[1, 1, 1, 1, 1, 1, 1, 1, 1, 1\]"):
        datatypes.checked_shape([1] * 100_000, "x")
    assert datatypes._is_possible.cache_info() == before


def test_outputs_that_are_named_many_times_are_found_and_forgotten() -> None:
    spec = Signature({"x": TensorSpec("float32", (None,))}, {"y": TensorSpec("float32", (None,))})
    call = CallSignature("serving_default", spec, {"x": "x:0"}, {"y": "y:0"})
    targets, many = Targets(), ("y",) * 100_000
    target = targets.choose(call, None, many)
    assert target.names == ("y",)
    assert targets.find(None, many) is None
    assert targets.choose(call, None, ("y",)) is target is targets.find(None, ("y",))


def test_the_input_that_is_given_twice_is_named_also_among_very_many() -> None:
    one = b'{"name":"i%d","shape":[0],"datatype":"FP32","data":[]}'
    inputs = b",".join([one % number for number in (*range(20_000), 19_999)])
    with pytest.raises(Refused, match="input 'i19999' is given twice"):
        kserve_bodies.in_json(b'{"inputs":[%b]}' % inputs)


def test_numbers_of_rows_are_counted_without_end_and_remembered_with_one() -> None:
    statistics = ModelStatistics("m", 1)
    for rows in range(1, 20_001):
        statistics.note_step(rows, 0.5)
    batches = statistics.batches
    assert (len(batches), batches[7].count, batches[2048].count) == (1029, 1, 1024)
    assert sum(batch.count for batch in batches.values()) == statistics.steps == 20_000


@pytest.mark.parametrize("depth", [33, 300, *range(900, 1000, 9), 100_000])
@pytest.mark.parametrize(("opens", "ends"), [("[", "]"), ('{"b64":', "}")])
def test_lists_in_lists_in_lists_are_refused_however_deep(
    depth: int, opens: str, ends: str
) -> None:
    body = f'[{opens * depth}"a"{ends * depth}]'.encode()
    with pytest.raises(Refused, match=r"nested too deeply|a string is expected"):
        json_arrays.as_array(json_arrays.parsed(body), np.dtype(object), "x")
    with pytest.raises(Refused, match=r"nested too deeply|must be a number"):
        keep_alive_of(json_arrays.parsed(body))
