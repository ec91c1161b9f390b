"""Any feeds and fetches: what would be damaged is refused, the rest gets a verdict of its type."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sojourn
from faults import any_input
from faults.any_input import HIGHEST_RANK, echo, explore, values, verdict, verdicts


@pytest.fixture(scope="module")
def session(zygote: None) -> Iterator[sojourn.Session]:
    with sojourn.open(any_input.several, name="several") as opened:
        yield opened


@pytest.fixture(scope="module", params=["graph", "saved model", "keras model", "function"])
def any_session(
    request: pytest.FixtureRequest, zygote: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sojourn.Session]:
    """Every kind of model that gives back what it is fed."""
    opened: dict[str, tuple[Any, ...]] = {
        "graph": (any_input.several,),
        "saved model": (any_input.saved_in(str(tmp_path_factory.mktemp("saved"))),),
        "keras model": (any_input.keras_model,),
        "function": (any_input.function, ["anything_back"]),
    }
    build, *outputs = opened[request.param]
    with sojourn.open(build, outputs=outputs[0] if outputs else None) as session:
        yield session


@pytest.fixture
def number(request: pytest.FixtureRequest) -> int:
    """What the examples follow from: always the same, but another one whenever it is repeated."""
    asked = request.config.getoption("--hypothesis-seed")
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if asked is None:
        asked = 0 if parameters.get("repeat", 1) == 1 else secrets.randbits(32)
    print(f"the same examples again: --hypothesis-seed={asked}")
    return int(asked)


fetches = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.sampled_from(["product", "picked", "nothing", "floats", "floats:0", "product:0", ":0", ""]),
    st.lists(
        st.one_of(st.sampled_from(["product", "texts_back", "no"]), st.text(max_size=4)), max_size=3
    ),
    st.lists(st.sampled_from(["product", "floats", "floats_back"]), max_size=4).map(tuple),
    st.dictionaries(st.sampled_from(["product", "no"]), st.text(max_size=2), max_size=2),
    st.just(np.array(["product"])),
    st.sampled_from(["\ud800", ["product", "\ud800"]]),
    st.lists(st.one_of(st.none(), st.integers(), st.just(["product"])), min_size=1, max_size=2),
    st.sampled_from([b"product", 1, 1.5, object(), {"product"}, len]),
)


def test_any_value_for_any_input_arrives_unharmed_or_is_refused(any_session, number):
    any_input.explore_values(any_session, number, examples=150)


def test_any_value_for_an_inline_session_arrives_unharmed_or_is_refused(number):
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", any_input.__file__, str(number), "150"],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.endswith("all is well\n"), f"{done.returncode}: {done.stderr[-3000:]}"


def test_any_fetch_gets_a_result_or_is_refused_by_name(session, number):
    def holds(fetched: Any, rows: int, names: list[str]) -> None:
        feeds: dict[Any, Any] = {"floats": np.ones((rows, 3), np.float32)}
        feeds.update(dict.fromkeys(names, 1.0))
        result = verdict(session, fetched, feeds)
        if isinstance(fetched, list | tuple) and not isinstance(result, Exception):
            assert len(result) == len(fetched)

    names = st.lists(st.text(max_size=6), max_size=2)
    explore(holds, number, 120, fetched=fetches, rows=st.integers(0, 3), names=names)


def test_any_name_for_an_input_is_known_or_refused(session, number):
    def holds(key: Any, value: Any) -> None:
        verdict(session, "product", {"floats": np.ones((1, 3), np.float32), key: value})

    keys = st.one_of(
        st.none(), st.integers(), st.text(max_size=6), st.tuples(st.text(max_size=2)), st.binary()
    )
    explore(holds, number, 120, key=keys, value=values)


def test_an_index_out_of_range_is_tensorflows_verdict(session, number):
    def holds(index: np.ndarray) -> None:
        result = verdict(session, "picked", {"integers": index})
        if ((index >= 0) & (index < 10)).all():
            assert result.tolist() == index.tolist()
        else:
            assert isinstance(result, verdicts()[1:])

    shapes = hnp.array_shapes(min_dims=0, max_dims=2, max_side=4)
    explore(holds, number, 120, index=hnp.arrays(np.int32, shapes))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("floats", np.array([[1 + 2j, 0, 0]])),
        ("any_floats", np.array([1.0, None], dtype=object)),
        ("any_floats", 1e300),
        ("any_floats", np.ma.array([1.0, 2.0], mask=[False, True])),
        ("any_floats", np.ma.array([1, 2], mask=[False, True], dtype=np.float32)),
        ("halves", np.float32(3.4e38)),
        ("integers", 1.5),
        ("integers", 2**40),
        ("bytes8", -1),
        ("flags", 2),
        ("texts", np.array(["a", None], dtype=object)),
        ("texts", ["a", 1]),
        ("texts", ["a", 1.5]),
    ],
)
def test_what_tensorflow_damages_without_a_word_is_refused(session, name, value):
    assert isinstance(verdict(session, f"{name}_back", {name: value}), sojourn.InputError)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("any_floats", [[1.0], [1.0, 2.0]]),
        ("any_floats", any_input.NoArray(RuntimeError("not now"))),
        ("any_floats", np.zeros(1, "V3")),
        ("texts", [["a"], ["b", "c"]]),
        ("texts", "\ud800"),
        ("texts", np.array(["\ud800"], dtype=object)),
        ("texts", any_input.NoArray(RuntimeError("not now"))),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_name_of_the_input(session, name, value):
    result = verdict(session, f"{name}_back", {name: value})
    assert isinstance(result, sojourn.InputError)
    assert f"input {name!r}" in str(result)


@pytest.mark.parametrize("text", ["a\0", b"a\0", "\0", "ä\0\0"], ids=ascii)
def test_text_comes_back_with_all_of_its_bytes(session, text):
    expected = text.encode() if isinstance(text, str) else text
    assert echo(session, "texts", text) == expected
    assert echo(session, "texts", [text, "b"]).tolist() == [expected, b"b"]


@pytest.mark.parametrize("rank", [32, 33, 40, 64])
def test_any_rank_that_numpy_has_is_taken_or_refused(session, rank):
    """TensorFlow crashes of text of a rank above 32."""
    shape = (1,) * min(rank, HIGHEST_RANK)
    for name in ("any_floats", "halves", "texts"):
        for dtype in (np.float64, np.float32, object):
            value = np.full(shape, "x" if dtype is object else 1.5, dtype)
            result = echo(session, name, value)
            if (dtype is object) != (name == "texts") or (name == "texts" and len(shape) > 32):
                assert isinstance(result, verdicts())
            else:
                assert result.shape == shape


@pytest.mark.parametrize("rank", [33, 64])
def test_a_function_takes_and_gives_numbers_and_texts_of_any_rank(zygote, rank):
    shape = (1,) * min(rank, HIGHEST_RANK)
    with sojourn.open(lambda: lambda anything: anything) as session:
        for value in (1.5, b"x"):
            result = session.run("output", {"anything": np.full(shape, value, dtype=type(value))})
            assert result.shape == shape
            assert result.reshape(-1).tolist() == [value]


@pytest.mark.parametrize(
    "shape", [(0, 3), (2**13, 3), (1, 3, 1), (3,), (), (1, 2), (1, 4)], ids=str
)
def test_any_shape_is_taken_or_refused(session, shape):
    result = verdict(session, "product", {"floats": np.ones(shape, np.float32)})
    fits = len(shape) == 2 and shape[1] == 3
    assert isinstance(result, np.ndarray if fits else sojourn.InputError)
