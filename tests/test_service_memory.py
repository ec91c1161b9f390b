"""What a server remembers of requests is bounded, however long their words are."""

from __future__ import annotations

import pytest

from sojourn.service import datatypes
from sojourn.service.failures import Refused
from sojourn.service.http import kserve_bodies
from sojourn.service.signatures import CallSignature
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
