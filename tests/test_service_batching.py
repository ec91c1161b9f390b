"""Which requests go together: decided without a loop, a clock or an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sojourn.service.batching import Costs, Line


@dataclass(eq=False)
class Ask:
    key: Any
    rows: int = 1
    name: str = ""


def everybody(ask: Ask) -> bool:
    return True


def line(*asks: Ask, max_rows: int = 8, costs: Costs | None = None) -> Line[Ask]:
    made: Line[Ask] = Line(max_rows, costs or Costs())
    for ask in asks:
        made.add(ask)
    return made


def test_what_waits_goes_together_in_the_order_it_came() -> None:
    asks = [Ask("a") for _ in range(5)]
    waiting = line(*asks)
    assert waiting.take(everybody) == asks
    assert len(waiting) == 0
    assert waiting.take(everybody) == []


def test_a_batch_has_at_most_so_many_rows() -> None:
    asks = [Ask("a", 3), Ask("a", 3), Ask("a", 3)]
    waiting = line(*asks, max_rows=8)
    assert waiting.take(everybody) == asks[:2]
    assert waiting.take(everybody) == asks[2:]


def test_a_request_with_more_rows_than_fit_goes_alone() -> None:
    large, small = Ask("a", 100), Ask("a")
    waiting = line(large, small)
    assert waiting.take(everybody) == [large]
    assert waiting.take(everybody) == [small]


def test_only_requests_of_one_kind_are_joined_and_kinds_take_turns() -> None:
    many = [Ask("a", 4) for _ in range(4)]
    one = Ask("b")
    waiting = line(*many, one, max_rows=8)
    assert waiting.take(everybody) == many[:2]
    assert waiting.take(everybody) == [one]
    assert waiting.take(everybody) == many[2:]


def test_requests_without_a_kind_are_never_joined() -> None:
    asks = [Ask(None), Ask(None)]
    waiting = line(*asks)
    assert waiting.take(everybody) == [asks[0]]
    assert waiting.take(everybody) == [asks[1]]


def test_requests_that_get_a_kind_while_they_wait_are_joined_from_then_on() -> None:
    asks = [Ask(None, name="a"), Ask(None, name="b"), Ask(None, name="a")]
    waiting = line(*asks)

    def rekey(ask: Ask) -> None:
        ask.key = "a" if ask.name == "a" else None

    waiting.regroup(rekey)
    assert len(waiting) == 3
    assert waiting.take(everybody) == [asks[0], asks[2]]
    assert waiting.take(everybody) == [asks[1]]


def test_what_nobody_waits_for_any_more_is_not_run() -> None:
    here, gone = Ask("a", name="here"), Ask("a", name="gone")
    waiting = line(gone, here, gone, max_rows=1)
    assert waiting.take(lambda ask: ask.name == "here") == [here]
    assert waiting.take(lambda ask: ask.name == "here") == []
    assert len(waiting) == 0


def test_what_is_dropped_takes_no_place_and_its_kind_no_turn() -> None:
    joined, alone, other = Ask("a"), Ask(None), Ask("b")
    waiting = line(joined, alone, other)
    for ask in (joined, alone, joined, Ask("a"), Ask(None)):  # also if it does not wait
        waiting.drop(ask)
    assert len(waiting) == 1
    assert waiting.take(everybody) == [other]
    assert waiting.take(everybody) == []


def test_single_rows_are_sent_where_joining_costs_more() -> None:
    costs = Costs()
    costs.note(1, 10e-6)
    costs.note(2, 100e-6)  # two rows cost as much as sixteen
    costs.note(16, 100e-6)
    few = [Ask("a"), Ask("a")]
    waiting = line(*few, max_rows=32, costs=costs)
    assert waiting.take(everybody) == few[:1]
    assert len(waiting) == 1
    many = [Ask("a") for _ in range(16)]
    assert line(*many, max_rows=32, costs=costs).take(everybody) == many


def test_joining_is_tried_again_now_and_then() -> None:
    costs = Costs()
    costs.note(1, 10e-6)
    costs.note(2, 100e-6)
    tried = [costs.pays([1, 1]) for _ in range(64)]
    assert tried.count(True) == 2


def test_what_a_step_takes_is_learned_slowly() -> None:
    costs = Costs()
    assert costs.of(1) is None
    costs.note(1, 1.0)
    costs.note(1, 9.0)
    assert costs.of(1) == pytest.approx(2.0)


def test_what_a_full_queue_takes_is_told_by_the_size_that_was_best() -> None:
    costs = Costs()
    assert costs.for_all(1000) == 0.0, "nothing is known"
    costs.note(1, 0.1)
    assert costs.for_all(1024) == pytest.approx(102.4)
    costs.note(64, 0.2)
    assert costs.for_all(1024) == pytest.approx(3.2)
