"""Rows that go in together, and whether what comes out is what each request gets alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sojourn.service.joining import NoRows, feeds_of, split
from sojourn.service.proving import PROOFS, Proof, agree
from sojourn.service.signatures import plain
from sojourn.service.targets import Target
from sojourn.values import Signature, TensorSpec
from sojourn.values.rows import Rows

OPEN = TensorSpec("float32", (None, 2))
TARGET = Target(
    plain("serving_default", Signature({"x": OPEN}, {"y": OPEN, "z": OPEN})), ("y", "z")
)


def test_a_single_request_is_fed_as_it_is_and_several_as_rows() -> None:
    one, two = np.ones((1, 2), np.float32), np.ones((3, 2), np.float32)
    assert feeds_of(TARGET, [[one]])["x"] is one
    joined = feeds_of(TARGET, [[one], [two]])["x"]
    assert isinstance(joined, Rows)
    assert joined.shape == (4, 2)


def test_each_gets_as_many_rows_as_it_has_sent() -> None:
    y, z = np.arange(8).reshape(4, 2), np.arange(4)
    first, second = split(TARGET, [y, z], [1, 3])
    assert (first["y"].tolist(), first["z"].tolist()) == ([[0, 1]], [0])
    assert (second["y"].tolist(), second["z"].tolist()) == ([[2, 3], [4, 5], [6, 7]], [1, 2, 3])


@pytest.mark.parametrize("value", [np.arange(3), np.float32(1)])
def test_outputs_of_another_length_have_no_rows(value: Any) -> None:
    with pytest.raises(NoRows):
        split(TARGET, [np.arange(4), value], [1, 3])


@pytest.mark.parametrize(
    ("alone", "joined", "agrees"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), True),
        (np.float32([1, 2]), np.float32([1, 2.1]), False),
        (np.float32([1e-9, 50]), np.float32([2e-9, 50]), True),  # relative to the largest
        (np.float32([math.nan, math.inf]), np.float32([math.nan, math.inf]), True),
        (np.float32([math.nan]), np.float32([0]), False),
        (np.float32([]), np.float32([]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([b"a"], object), np.array([b"a"], object), True),
        (np.array([b"a"], object), np.array([b"b"], object), False),
        (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2.01], ml_dtypes.bfloat16), True),
        (np.complex64([1 + 1j]), np.complex64([1 - 1j]), False),
        (np.float32([1]), np.float32([[1]]), False),
    ],
)
def test_answers_agree_but_for_rounding(alone: Any, joined: Any, agrees: bool) -> None:
    assert agree({"y": alone}, {"y": joined}) is agrees


def batch(*values: Any, dtype: Any = np.float32) -> list[list[np.ndarray]]:
    return [[np.array([value], dtype)] for value in values]


def proved_by(requests: list[list[np.ndarray]]) -> bool:
    proof = Proof(len(requests[0]))
    for _ in range(PROOFS):
        if (two := proof.to_compare(requests)) is not None:
            proof.add(requests, two)
    return proof.is_complete


@pytest.mark.parametrize(
    ("requests", "proves"),
    [
        (batch(1, 2, 3), True),
        (batch(5, 5, 5), False),
        (batch(0, 0), False),
        (batch(math.nan, math.nan), False),
        (batch(20, 20.001), False),  # the answers may differ by more from rounding
        (batch(1, 2, 2), True),
        (batch(1, 1, 2, 1, 1), True),
        (batch(100, 100.5, 101, 101.5), False),  # no two neighbours differ by much
        ([[np.float32([5])], [np.float32([5, 5, 5])]], False),  # the same, of another length
        (batch(b"a", b"b", dtype=object), True),
        (batch(b"a", b"a", dtype=object), False),
        (batch(1, 2, dtype=ml_dtypes.bfloat16), True),
        (batch(7, 8, dtype=np.int32), True),
    ],
)
def test_only_requests_that_differ_prove_that_rows_do_not_depend_on_each_other(
    requests: list[list[np.ndarray]], proves: bool
) -> None:
    assert proved_by(requests) is proves


@pytest.mark.parametrize(
    ("requests", "compared"),
    [
        (batch(1, 2, 3), (0, 2)),
        (batch(1, 2, 2), (0, 1)),
        (batch(1, 1, 2, 1, 1), (1, 3)),
        (batch(5, 5, 5), (0, 2)),
    ],
)
def test_those_are_compared_that_have_something_else_beside_them(
    requests: list[list[np.ndarray]], compared: tuple[int, int]
) -> None:
    assert Proof(1).to_compare(requests) == compared


def test_each_input_is_proved_by_itself() -> None:
    same, other = np.float32([1]), np.float32([2])
    proof = Proof(2)
    for value in (same, other, same):
        proof.add([[value, same], [value + 1, same]], (0, 1))
    assert not proof.is_complete
    assert not proof.to_compare([[same, same], [other, same]])
    assert proof.to_compare([[same, same], [same, other]])


def test_a_batch_of_what_was_compared_before_is_not_compared_again() -> None:
    proof = Proof(1)
    assert proof.to_compare(batch(5, 5))
    proof.add(batch(5, 5), (0, 1))
    assert not proof.to_compare(batch(5, 5, 5))
    assert proof.to_compare(batch(5, 6, 5))
    assert proof.to_compare(batch(6, 6))


def compared(proof: Proof, batches: Iterable[list[list[np.ndarray]]]) -> int:
    count = 0
    for requests in batches:
        if not proof.is_complete and (two := proof.to_compare(requests)) is not None:
            count += 1
            proof.add(requests, two)
    return count


def test_an_input_that_everybody_sends_alike_is_not_compared_for_ever() -> None:
    lengths = (8, 16, 5) * 300
    tokens = (
        [[np.arange(n)[None] + i, np.zeros((rows, n), np.int64)] for i, rows in enumerate((1, 2))]
        for n in lengths
    )
    assert compared(Proof(2), tokens) == PROOFS


def test_inputs_that_hardly_differ_are_compared_ever_more_rarely_but_always_again() -> None:
    proof = Proof(1)
    times = [batch([1.7e9, i], [1.7e9, i + 0.5]) for i in range(300)]
    assert 2 * PROOFS < compared(proof, times) < 15
    assert compared(proof, [batch([1.0, 2.0], [3.0, 4.0])]) == 1  # this shows something
    assert any(proof.to_compare(requests) for requests in 4 * times)


def test_a_new_row_is_compared_however_long_there_was_another() -> None:
    proof = Proof(1)
    assert compared(proof, [batch(0, 0)] * 10_000) == 1
    assert compared(proof, [batch(6, 6)]) == 1


@pytest.mark.parametrize(
    "alike", [[1000.0, 5.0], [[7.0, 7.0], [8.0, 8.0]]], ids=["several rows", "of two values"]
)
def test_requests_of_the_same_rows_are_compared_once(alike: Any) -> None:
    request = [np.float32(alike)]
    assert compared(Proof(1), [[request] * n for n in (2, 5, 64) * 300]) == 1


def test_a_new_value_in_every_batch_is_compared_ever_more_rarely() -> None:
    assert compared(Proof(1), [batch(n, n) for n in range(1, 2000)]) < 20


def test_inputs_that_drift_are_compared_ever_more_rarely() -> None:
    assert compared(Proof(1), [batch(*range(1000 + n, 1064 + n)) for n in range(2000)]) < 20


@pytest.mark.parametrize(
    "requests",
    [
        batch(1000, 1004),  # by less than counts as a proof
        batch(1, 1, 9, 1, 1),
        [[np.float32([1000])], [np.float32([1000, 5, 1000, 5])]],
    ],
    ids=["hardly", "in the middle", "in number"],
)
def test_what_differs_is_compared_however_long_everything_was_alike(
    requests: list[list[np.ndarray]],
) -> None:
    proof = Proof(1)
    compared(proof, [[[np.float32([1000, 5])]] * 3] * 5000)
    compared(proof, [batch(n, n) for n in range(5000)])
    assert proof.to_compare(requests)


def test_one_input_that_hardly_differs_puts_off_the_comparison_of_no_other() -> None:
    proof = Proof(2)
    same = np.float32([1])
    compared(proof, [[[np.float32([1000 + n]), same] for n in (0, 1)]] * 5000)
    assert proof.to_compare([[same, np.float32([1000 + n])] for n in (0, 1)])
