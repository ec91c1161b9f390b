"""How a caller waits for an answer: what is quicker is found by trying."""

from __future__ import annotations

from sojourn.transport.patience import MOST_LOOKS, Learned, Patience


def waits(
    patience: Patience, looking: float | None, sleeping: float, count: int = 256
) -> list[int]:
    """Some waits; looking takes so many seconds, or never helps."""
    chosen = []
    for _ in range(count):
        looks = patience.looks()
        chosen.append(looks)
        if patience.is_trying:
            is_seen = looks > 0 and looking is not None
            patience.learn(looking if is_seen else sleeping, was_seen=is_seen)  # type: ignore[arg-type]
    return chosen


def test_looking_is_kept_where_it_is_quicker():
    chosen = waits(Patience(), looking=30e-6, sleeping=90e-6)
    assert chosen[8:] == [MOST_LOOKS] * 248


def test_sleeping_is_kept_where_the_server_needs_the_core():
    chosen = waits(Patience(), looking=700e-6, sleeping=500e-6)
    assert chosen[8:] == [0] * 248


def test_nobody_looks_for_what_takes_longer_than_looking_lasts():
    chosen = waits(Patience(), looking=None, sleeping=5e-3)
    assert chosen[8:] == [0] * 248


def test_what_was_learned_is_tried_again():
    patience = Patience()
    waits(patience, looking=None, sleeping=5e-3)
    waits(patience, looking=30e-6, sleeping=90e-6)
    assert waits(patience, looking=30e-6, sleeping=90e-6)[8:] == [MOST_LOOKS] * 248


def test_one_wait_that_was_disturbed_decides_nothing():
    patience = Patience()
    for count in range(8):
        patience.looks()
        is_looking = count < 4
        seconds = 5e-3 if count == 1 else 30e-6 if is_looking else 90e-6
        patience.learn(seconds, was_seen=is_looking)
    assert patience.looks() == MOST_LOOKS


def test_waits_that_were_given_up_teach_nothing():
    patience = Patience()
    for count in range(8):
        patience.looks()
        if count >= 4:
            patience.learn(90e-6, was_seen=False)
    assert patience.looks() == MOST_LOOKS


def test_each_kind_of_request_is_learned_by_itself_and_few_are_remembered():
    learned = Learned()
    first = learned.of(b"s1")
    assert learned.of(b"s1") is first
    assert learned.of(b"s2") is not first
    for number in range(1000):
        learned.of(b"%d" % number)
    assert len(learned._by_meta) <= 256
