"""The pool's decisions against a simple model, in any order of events that hypothesis thinks of."""

from __future__ import annotations

import copy as copying
import os
import random
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pool_script import GiB, Script
from sojourn.errors import CheckpointError, DeadlockDetected, ModelError, SessionBroken
from sojourn.pool.decisions.copy_events import PARK_RETRY_SECONDS
from sojourn.pool.decisions.effects import (
    Close,
    Effects,
    EndSpare,
    Grant,
    MakeSpare,
    Open,
    Park,
    Refuse,
    Warmed,
)
from sojourn.pool.decisions.terms import CopyId

LIMIT = 4
SPARE = 0.5
HOLDERS = ("t1", "t2", "t3", "t4", "t5")
# More examples for a long look: POOL_EXAMPLES=2000 pytest tests/test_pool_decisions_machine.py
EXAMPLES = int(os.environ.get("POOL_EXAMPLES", "100"))


class Checked(Script):
    """A script that keeps its own, much simpler books and compares every effect with them."""

    def __init__(self, spares: int = 0) -> None:
        super().__init__(limit=LIMIT, idle_seconds=50, spares=spares)
        self.spares: dict[int, int] = {}  # what each is charged with
        self.ready_spares: set[int] = set()
        self.rules: dict[str, dict[str, object]] = {}
        self.asked: dict[int, tuple[str, str]] = {}  # ticket: model, who
        self.warming: set[int] = set()
        self.waiting: set[int] = set()
        self.offered: dict[int, CopyId] = {}
        self.held: dict[int, CopyId] = {}
        self.charged: dict[CopyId, int] = {}
        self.ready: set[CopyId] = set()
        self.park_failed_at: dict[CopyId, float] = {}
        self.crashed: set[str] = set()

    def holders_of(self, copy: CopyId) -> list[int]:
        return [t for t, c in (*self.offered.items(), *self.held.items()) if c == copy]

    def is_holding(self, who: str) -> bool:
        return any(self.asked[t][1] == who for t in (*self.offered, *self.held))

    def do(self, effects: Effects) -> Effects:
        for effect in effects:
            match effect:
                case Open(copy, reserve_bytes):
                    assert all(c[:2] != copy[:2] for c in self.charged), "the slot is taken"
                    if effect.spare is not None:
                        self.ready_spares.remove(effect.spare)
                        del self.spares[effect.spare]
                    self.charged[copy] = reserve_bytes
                case MakeSpare(number):
                    self.spares[number] = self.scheduler._state.spares.expected_bytes
                case EndSpare(number):
                    self.ready_spares.discard(number)
                case Grant(ticket, copy):
                    model, who = self.asked[ticket]
                    assert ticket in self.waiting, "answered twice"
                    assert copy in self.ready, "a copy that is not there"
                    assert copy.model == model
                    if self.rules[model]["exclusive"]:
                        assert not self.holders_of(copy), "exclusive, and leased"
                    if not self.is_holding(who):
                        ahead = (t for t in self.waiting - self.warming if t < ticket)
                        assert all(self.asked[t][0] != model for t in ahead), "not in order"
                    self.waiting.remove(ticket)
                    self.offered[ticket] = copy
                case Warmed(ticket, copy):
                    assert ticket in self.waiting & self.warming
                    assert copy in self.ready
                    self.waiting.remove(ticket)
                case Refuse(ticket):
                    assert ticket in self.waiting, "answered twice"
                    self.waiting.remove(ticket)
                case Park(copy) | Close(copy):
                    assert not self.holders_of(copy), "closed under somebody's feet"
                    self.ready.discard(copy)
        return super().do(effects)

    def ask_for(self, model: str, who: str, warm_slot: int | None = None) -> int:
        ticket = self._tickets + 1
        self.asked[ticket] = (model, who)
        self.waiting.add(ticket)
        if warm_slot is not None:
            self.warming.add(ticket)
        return self.ask(model, who, warm_slot=warm_slot)

    def accept(self, ticket: int) -> None:
        assert self.scheduler.on_accepted(ticket)
        self.held[ticket] = self.offered.pop(ticket)

    def end_lease(self, ticket: int, runs: int = 1, changed: bool = False) -> None:
        if runs:
            self.crashed.discard(self.held[ticket].model)
        del self.held[ticket]
        self.give_back(ticket, runs=runs, changed=changed)

    def opened(self, copy: CopyId | None = None, size: float | None = None) -> CopyId:
        copy = self.opening[0] if copy is None else copy
        self.ready.add(copy)
        return super().opened(copy, size)

    def fail_opening(self, error: Exception) -> None:
        del self.charged[self.opening[0]]
        if isinstance(error, SessionBroken):
            self.crashed.add(self.opening[0].model)
        self.open_failed(error)

    def die(self, copy: CopyId) -> None:
        self.ready.discard(copy)
        self.parking = [c for c in self.parking if c != copy]
        self.crashed.add(copy.model)
        for ticket in self.holders_of(copy):
            if self.offered.pop(ticket, None) is not None:
                self.waiting.add(ticket)
            else:
                del self.held[ticket]
        self.died(copy)

    def fail_parking(self) -> None:
        copy = self.parking.pop(0)
        self.ready.add(copy)
        self.park_failed_at[copy] = self.now
        self.do(self.scheduler.on_park_failed(copy, CheckpointError("disk full"), self.now))

    def closed(self, residue_bytes: int = 0) -> CopyId:
        del self.charged[self.closing[0]]
        return super().closed(residue_bytes)

    def spare_made(self, size: float = SPARE) -> int:
        number = self.making[0]
        if number in self.ending:  # it is told again once it is there
            self.ending.remove(number)
        else:
            self.spares[number] = int(size * GiB)
            self.ready_spares.add(number)
        return super().spare_made(size)

    def spare_gone(self, number: int | None = None) -> None:
        number = self.ending[0] if number is None else number
        del self.spares[number]
        self.ready_spares.discard(number)
        super().spare_gone(number if number not in self.ending else None)

    def settle(self) -> None:
        super().settle()
        while self.making:
            self.spare_made()
        while self.ending:
            self.spare_gone()
            super().settle()

    # -- what must hold -----------------------------------------------------------------------

    def is_idle(self, copy: CopyId) -> bool:
        return copy in self.ready and not self.holders_of(copy)

    def check(self) -> None:
        total = sum(self.charged.values()) + sum(self.spares.values())
        assert total <= LIMIT * GiB, "over the budget"
        assert self.scheduler.charged_bytes == total
        status = self.scheduler.status()
        assert status.waiting == len(self.waiting)
        assert status.idle == sum(map(self.is_idle, self.ready))
        assert status.leased == len({*self.offered.values(), *self.held.values()})
        for ticket in self.waiting - self.warming:
            model = self.asked[ticket][0]
            idle = [c for c in self.ready if c.model == model and self.is_idle(c)]
            assert not idle, "somebody waits for what is idle"
        self._check_that_room_is_used(total)

    def _check_that_room_is_used(self, total: int) -> None:
        """The first who waits for room has it as soon as idle ones could make it."""
        if self.opening or self.closing or self.parking or not self.waiting:
            return
        if self.making or self.ending:
            return
        for ticket in sorted(self.waiting):
            model = self.asked[ticket][0]
            copies = sum(copy.model == model for copy in self.charged)
            if copies == self.rules[model]["copies"]:
                continue  # he waits for a holder, not for room
            if copies or model in self.crashed:
                return  # he may have a claim, which is more than these books know
            movable = sum(self.spares.values()) + sum(
                self.charged[copy]
                for copy in self.ready
                if self.is_idle(copy)
                and not self.rules[copy.model]["pinned"]
                and self.now >= self.park_failed_at.get(copy, -99) + PARK_RETRY_SECONDS
            )
            assert LIMIT * GiB - total + movable < self.sizes[model], "room lies idle"
            return

    def play_out(self, rounds: int = 60) -> None:
        """Whoever does not wait gives back; workers finish; time passes; nobody gives up."""
        for _ in range(rounds):
            self.settle()
            for ticket in tuple(self.offered):
                self.accept(ticket)
            blocked = {self.asked[t][1] for t in self.waiting}
            for ticket in tuple(self.held):
                if self.asked[ticket][1] not in blocked and ticket in self.held:
                    self.end_lease(ticket)
            self.wait(2.0)
            if not self.waiting and not self.held and not self.offered:
                return


class PoolMachine(RuleBasedStateMachine):
    @initialize(
        sizes=st.lists(st.integers(1, 3), min_size=3, max_size=5),
        exclusive=st.integers(0, 31),
        pinned=st.sampled_from([0, 0, 0, 1, 2]),
        copies=st.sampled_from([1, 1, 2]),
        spares=st.integers(0, 2),
    )
    def build(
        self, sizes: list[int], exclusive: int, pinned: int, copies: int, spares: int
    ) -> None:
        self.script = Checked(spares)
        for index, size in enumerate(sizes):
            rules = {
                "exclusive": bool(exclusive >> index & 1),
                "pinned": bool(pinned >> index & 1),
                "copies": copies if index == 0 else 1,
                "takes_spares": index != 2,
                # A pinned one that is recycled would make room that nobody could count on.
                "max_runs": 3 if index == 1 and not pinned >> index & 1 else None,
            }
            self.script.rules[f"m{index}"] = rules
            self.script.register(f"m{index}", size=size, **rules)

    def _models(self) -> list[str]:
        return sorted(self.script.rules)

    def _pick(self, number: int, things: object) -> object:
        listed = sorted(things)  # type: ignore[call-overload]
        return listed[number % len(listed)]

    @rule(model=st.integers(0, 4), who=st.sampled_from(HOLDERS))
    def ask(self, model: int, who: str) -> None:
        script = self.script
        if any(script.asked[t][1] == who for t in (*script.waiting, *script.offered)):
            return  # a thread waits for one thing at a time
        name = self._models()[model % len(script.rules)]
        before = copying.deepcopy(script)
        ticket = script.ask_for(name, who)
        if isinstance(script.refused.get(ticket), DeadlockDetected):
            with mock.patch("sojourn.pool.decisions.serving.find_deadlock", return_value=None):
                before.ask_for(name, who)
                before.play_out()
            assert ticket not in before.granted, "that was no deadlock"

    @rule(slot=st.integers(0, 1))
    def preload(self, slot: int) -> None:
        copies = self.script.rules["m0"]["copies"]
        self.script.ask_for("m0", "preloader", warm_slot=slot % copies)  # type: ignore[operator]

    @precondition(lambda self: self.script.offered)
    @rule(which=st.integers(0, 9))
    def accept(self, which: int) -> None:
        self.script.accept(self._pick(which, self.script.offered))  # type: ignore[arg-type]

    @precondition(lambda self: self.script.held)
    @rule(which=st.integers(0, 9), runs=st.integers(0, 2), changed=st.booleans())
    def give_back(self, which: int, runs: int, changed: bool) -> None:
        ticket = self._pick(which, self.script.held)
        self.script.end_lease(ticket, runs, changed)  # type: ignore[arg-type]

    @precondition(lambda self: self.script.waiting or self.script.offered)
    @rule(which=st.integers(0, 9))
    def leave(self, which: int) -> None:
        script = self.script
        ticket = self._pick(which, {*script.waiting, *script.offered})
        script.waiting.discard(ticket)  # type: ignore[arg-type]
        script.offered.pop(ticket, None)  # type: ignore[call-overload]
        script.do(script.scheduler.on_cancel(ticket, script.now))  # type: ignore[arg-type]

    @precondition(lambda self: self.script.waiting)
    @rule(which=st.integers(0, 9))
    def time_out(self, which: int) -> None:
        ticket = self._pick(which, self.script.waiting)
        self.script.time_out(ticket)  # type: ignore[arg-type]
        assert ticket in self.script.refused

    @precondition(lambda self: self.script.opening)
    @rule()
    def opened(self) -> None:
        self.script.opened()

    @precondition(lambda self: self.script.opening)
    @rule(crash=st.booleans())
    def open_failed(self, crash: bool) -> None:
        self.script.fail_opening(SessionBroken("killed") if crash else ModelError("no file"))

    @precondition(lambda self: self.script.ready or self.script.parking)
    @rule(which=st.integers(0, 9))
    def died(self, which: int) -> None:
        script = self.script
        script.die(self._pick(which, {*script.ready, *script.parking}))  # type: ignore[arg-type]

    @precondition(lambda self: self.script.parking)
    @rule()
    def parked(self) -> None:
        self.script.parked()

    @precondition(lambda self: self.script.parking)
    @rule()
    def park_failed(self) -> None:
        self.script.fail_parking()

    @precondition(lambda self: self.script.closing)
    @rule()
    def closed(self) -> None:
        self.script.closed()

    @precondition(lambda self: self.script.making)
    @rule()
    def spare_made(self) -> None:
        self.script.spare_made()

    @precondition(lambda self: [n for n in self.script.ending if n not in self.script.making])
    @rule()
    def spare_ended(self) -> None:
        script = self.script
        script.ending.sort(key=lambda number: number in script.making)
        script.spare_gone()

    @precondition(lambda self: self.script.ready_spares)
    @rule()
    def spare_died(self) -> None:
        self.script.spare_gone(min(self.script.ready_spares))

    @rule(seconds=st.sampled_from([0.05, 0.5, 1.5, 12.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.script.wait(seconds)

    @rule(model=st.integers(0, 4))
    def evict(self, model: int) -> None:
        name = self._models()[model % len(self.script.rules)]
        self.script.do(self.script.scheduler.on_evict(name, self.script.now))

    @rule(model=st.integers(0, 4), generation=st.integers(0, 2))
    def hear_about_somebody_long_gone(self, model: int, generation: int) -> None:
        script = self.script
        old = CopyId(self._models()[model % len(script.rules)], 0, generation)
        if old not in script.charged:
            for answer in (
                script.scheduler.on_opened(old, GiB, 0.1, script.now),
                script.scheduler.on_died(old, "late", script.now),
                script.scheduler.on_closed(old, script.now),
                script.scheduler.on_park_failed(old, OSError("late"), script.now),
            ):
                assert answer == ()

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "script"):
            self.script.check()

    def teardown(self) -> None:
        """Nobody is forgotten: when all who can go on do so, everybody gets an answer."""
        if hasattr(self, "script"):
            self.script.play_out()
            assert not self.script.waiting, "somebody waits for ever"


# Seeded walks go further than the machine above: they are fast, and weighted towards what fills
# the pool with holders that wait. Each operation is drawn as often as it is named.
OPERATIONS = (
    ["ask"] * 8
    + ["work"] * 5
    + ["accept"] * 6
    + ["give_back"] * 4
    + ["opened", "closed", "parked", "wait", "wait"]
    + ["rest", "rest", "spare_made", "spare_ended", "spare_died"]
    + ["leave", "time_out", "died", "open_failed", "park_failed", "evict", "preload", "gone"]
)


def walk(seed: int, steps: int) -> PoolMachine:
    rng = random.Random(seed)
    machine = PoolMachine()
    machine.build(
        sizes=[rng.randint(1, 3) for _ in range(rng.randint(3, 5))],
        exclusive=rng.randrange(32),
        pinned=rng.choice([0, 0, 0, 1, 2]),
        copies=rng.choice([1, 1, 2]),
        spares=rng.choice([0, 1, 2]),
    )
    script = machine.script
    for _ in range(steps):
        match rng.choice(OPERATIONS):
            case "ask":
                machine.ask(rng.randrange(5), rng.choice(HOLDERS))
            case "work":
                script.settle()
            case "rest":
                script.settle()
                machine.wait(0.2)
                script.settle()
            case "accept" if script.offered:
                machine.accept(rng.randrange(9))
            case "give_back" if script.held:
                machine.give_back(rng.randrange(9), rng.randrange(3), rng.random() < 0.3)
            case "opened" if script.opening:
                machine.opened()
            case "closed" if script.closing:
                machine.closed()
            case "spare_made" if script.making:
                machine.spare_made()
            case "spare_ended" if [n for n in script.ending if n not in script.making]:
                machine.spare_ended()
            case "spare_died" if script.ready_spares:
                machine.spare_died()
            case "parked" if script.parking:
                machine.parked()
            case "wait":
                machine.wait(rng.choice([0.05, 0.5, 1.5, 12.0]))
            case "leave" if script.waiting or script.offered:
                machine.leave(rng.randrange(9))
            case "time_out" if script.waiting:
                machine.time_out(rng.randrange(9))
            case "died" if script.ready or script.parking:
                machine.died(rng.randrange(9))
            case "open_failed" if script.opening:
                machine.open_failed(rng.random() < 0.7)
            case "park_failed" if script.parking:
                machine.park_failed()
            case "evict":
                machine.evict(rng.randrange(5))
            case "preload":
                machine.preload(rng.randrange(2))
            case "gone":
                machine.hear_about_somebody_long_gone(rng.randrange(5), rng.randrange(3))
        script.check()
    return machine


def test_long_walks_keep_every_promise():
    deadlocks = claims = taken = 0
    for seed in range(EXAMPLES * 2):
        try:
            machine = walk(seed, steps=60)
            claims += machine.script.scheduler._state.claim is not None
            deadlocks += machine.script.scheduler.counters.deadlocks
            taken += machine.script.scheduler.counters.spares_taken
            machine.teardown()
        except AssertionError as error:
            raise AssertionError(f"walk {seed}: {error}") from error
    assert deadlocks > EXAMPLES / 10  # otherwise the walks prove little
    assert claims > EXAMPLES / 100
    assert taken > EXAMPLES / 10


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(
    max_examples=EXAMPLES // 2,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
