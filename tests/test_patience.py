"""How a caller waits for an answer: what is quicker is found by trying."""

from __future__ import annotations

from sojourn.transport.patience import MOST_LOOKS, Learned, Patience

PERIOD = 256
NEW = 32  # waits of a new step, which say nothing yet
TRIAL = 8 + 3  # the first three of them come after a pause


class Caller:
    """Waits again and again; looking takes so many seconds, or never helps."""

    def __init__(self) -> None:
        self.patience = Patience()
        self.now = 100.0

    def waits(
        self,
        looking: float | None,
        sleeping: float,
        count: int = PERIOD,
        *,
        pause: float = 5e-6,
        slow: frozenset[int] = frozenset(),
    ) -> list[int]:
        chosen = []
        for number in range(count):
            looks = self.patience.looks()
            chosen.append(looks)
            is_seen = looks > 0 and looking is not None
            seconds = looking if is_seen and looking is not None else sleeping
            self.now += pause
            began = self.now
            self.now += 5e-3 if number in slow else seconds
            if self.patience.is_trying:
                self.patience.learn(began, self.now, was_seen=is_seen)
        return chosen

    def settles_on(self, looking: float | None, sleeping: float, **options: float) -> set[int]:
        """What it does once it has tried."""
        self.waits(looking, sleeping, NEW + TRIAL)
        return set(self.waits(looking, sleeping, PERIOD - TRIAL - NEW, **options))  # type: ignore[arg-type]


def test_looking_is_kept_where_it_is_quicker():
    assert Caller().settles_on(looking=30e-6, sleeping=90e-6) == {MOST_LOOKS}


def test_sleeping_is_kept_where_the_server_needs_the_core():
    assert Caller().settles_on(looking=900e-6, sleeping=500e-6) == {0}


def test_nobody_looks_for_what_takes_longer_than_looking_lasts():
    assert Caller().settles_on(looking=None, sleeping=5e-3) == {0}


def test_what_was_learned_is_tried_again():
    caller = Caller()
    caller.waits(looking=None, sleeping=5e-3, count=2 * PERIOD)
    caller.waits(looking=30e-6, sleeping=90e-6, count=2 * PERIOD)
    chosen = caller.waits(looking=30e-6, sleeping=90e-6)
    assert chosen.count(0) <= TRIAL


def test_a_step_that_is_new_is_not_thought_slow_for_long():
    """Its first waits are those for TensorFlow to compile it."""
    caller = Caller()
    caller.waits(looking=None, sleeping=20e-3, count=20)
    assert set(caller.waits(looking=30e-6, sleeping=90e-6, count=NEW - 20)) == {MOST_LOOKS}
    caller.waits(looking=30e-6, sleeping=90e-6, count=TRIAL)
    assert set(caller.waits(looking=30e-6, sleeping=90e-6, count=200)) == {MOST_LOOKS}


def test_one_wait_that_was_disturbed_decides_nothing():
    caller = Caller()
    caller.waits(30e-6, 90e-6, NEW)
    caller.waits(30e-6, 90e-6, TRIAL, slow=frozenset({4}))
    assert set(caller.waits(30e-6, 90e-6, 200)) == {MOST_LOOKS}


def test_what_is_slow_after_a_pause_decides_nothing():
    caller = Caller()
    caller.waits(30e-6, 90e-6, NEW)
    caller.now += 1.0
    caller.waits(30e-6, 90e-6, TRIAL, slow=frozenset({0, 1, 2}))
    assert set(caller.waits(30e-6, 90e-6, 200)) == {MOST_LOOKS}


def test_a_caller_that_always_pauses_learns_all_the_same():
    caller = Caller()
    caller.waits(looking=None, sleeping=5e-3, count=NEW + 16 + 8, pause=0.01)
    assert set(caller.waits(looking=None, sleeping=5e-3, count=200, pause=0.01)) == {0}


def test_waits_that_were_given_up_teach_nothing():
    patience = Patience()
    for count in range(NEW + TRIAL):
        patience.looks()
        if count >= NEW + 4:
            patience.learn(100 + count * 90e-6, 100 + (count + 1) * 90e-6, was_seen=False)
    assert patience.looks() == MOST_LOOKS


def test_each_kind_of_request_is_learned_by_itself_and_few_are_remembered():
    learned = Learned()
    first = learned.of(b"s1", 1)
    assert learned.of(b"s1", 1) is first
    assert learned.of(b"s1", 2) is not first  # arrays of other shapes
    assert learned.of(b"s2", 1) is not first
    for number in range(1000):
        learned.of(b"%d" % number, 1)
    assert len(learned._by_kind) <= 256
