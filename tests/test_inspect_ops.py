"""Every op of TensorFlow is judged, and what a graph can name is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import sojourn
from sojourn.probes.model_files import inspect_model
from sojourn.probes.model_files.ops import HARMLESS, judgement, known_ops
from wire_writer import constant, field, node, saved_model, signature

# How parameters are called that name something outside of the graph.
_TELLING = re.compile(
    r"file|path|dir(?!ection)|ur[li]|addr|prefix|server|host|source|token|target|network|module"
    r"|method_name|scheme|region|stream|library"
)
# And those that do not: a prefix of counters, a core of a TPU, where a gradient comes from.
_NO_NAMES = {"counter_prefix", "host_compute_core", "source"}


@pytest.fixture(scope="module")
def registered(zygote: None) -> dict[str, list[str]]:
    """Every op that TensorFlow has registered, with what of it is text."""

    @sojourn.isolated
    def look() -> Any:
        from tensorflow.core.framework import op_def_pb2, types_pb2
        from tensorflow.python.client import pywrap_tf_session as c_api

        listed = op_def_pb2.OpList.FromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
        return {
            op.name: [
                *(given.name for given in op.input_arg if given.type == types_pb2.DT_STRING),
                *(attr.name for attr in op.attr if attr.type in ("string", "list(string)")),
            ]
            for op in listed.op
        }

    found: dict[str, list[str]] = look()
    return found


def test_every_op_that_tensorflow_has_is_judged(registered):
    assert len(registered) > 1500
    assert [op for op in registered if judgement(op) is None] == []


def test_no_op_is_judged_twice(registered):
    reaching = {op for op in registered if judgement(op) != HARMLESS}
    assert reaching & known_ops() == set()


def test_no_op_whose_parameters_name_something_outside_is_called_harmless(registered):
    telling = {
        op: names
        for op, texts in registered.items()
        if (names := [n for n in texts if _TELLING.search(n) and n not in _NO_NAMES])
        and judgement(op) == HARMLESS
    }
    assert telling == {}


def test_an_op_that_nobody_has_judged_is_named(tmp_path):
    summary = told(tmp_path, node("n", "OpOfNextYear"))
    assert [(f.what, f.name) for f in summary.findings] == [("unknown op", "OpOfNextYear")]


def told(folder: Path, *nodes: bytes) -> Any:
    graph = field(2, *nodes)
    (folder / "saved_model.pb").write_bytes(saved_model(graph, signature("s", "cache")))
    return inspect_model(folder)


CACHE = node("cache", "CacheDatasetV2", "data", "name")


@pytest.mark.parametrize("op", ["CacheDataset", "CacheDatasetV2"])
def test_a_cache_with_a_constant_name_writes_there(tmp_path, op):
    cache = node("cache", op, "data", "name")
    summary = told(tmp_path, constant("name", "/somewhere"), cache, node("data", "NoOp"))
    [finding] = summary.findings
    assert (finding.severity, finding.what, finding.name) == ("danger", "writes files", op)
    assert finding.detail == "a cache, to /somewhere"


def test_a_cache_without_a_name_is_in_memory(tmp_path):
    assert told(tmp_path, constant("name", ""), CACHE, node("data", "NoOp")).findings == ()


def packed(*tensors: bytes) -> bytes:
    """A constant called "name", of these parts."""
    value = field(5, field(1, "value"), field(2, *(field(8, tensor) for tensor in tensors)))
    return field(1, field(1, "name"), field(2, "Const"), value)


@pytest.mark.parametrize(
    "hidden",
    [
        node("name", "StringJoin"),
        node("name", "Placeholder"),
        packed(field(4, "\x0a/somewhere")),
        packed(field(8, ""), field(8, "/somewhere")),
        field(1, node("name", "Const")[2:], field(5, field(1, "value"), field(2, field(9, "n")))),
        constant("name", "") + constant("name", "/somewhere"),
        b"",
    ],
    ids=["computed", "fed", "packed", "in parts", "an attribute", "twice", "missing"],
)
def test_a_cache_whose_name_is_hidden_is_a_danger(tmp_path, hidden):
    summary = told(tmp_path, hidden, CACHE, node("data", "NoOp"))
    assert [f.name for f in summary.findings if f.severity == "danger"] == ["CacheDatasetV2"]
