"""The pool's decisions by plain calls: no threads, no clock, no workers."""

from __future__ import annotations

import pytest

from pool_script import GiB, Script
from sojourn.errors import (
    BudgetExceeded,
    CheckpointError,
    DeadlockDetected,
    InternalError,
    ModelError,
    PoolTimeout,
    SessionBroken,
    SessionClosed,
)
from sojourn.pool.decisions.effects import Close, Discard, Open, Park, Report
from sojourn.pool.decisions.eviction import Candidate, choose_victims
from sojourn.pool.decisions.health import GROWTH_READINGS, Growth, backoff_seconds
from sojourn.pool.decisions.residents import Copy, CopyState, Residents
from sojourn.pool.decisions.terms import CopyId, Holder, Model, Policy, Room
from sojourn.values import Place

# -- sharing ----------------------------------------------------------------------------------


def test_two_simultaneous_first_leases_open_the_model_once():
    script = Script()
    script.register("a")
    first, second = script.ask("a"), script.ask("a")
    assert len(script.opening) == 1
    copy = script.opened()
    assert script.granted == {first: copy, second: copy}


def test_eight_threads_share_one_copy():
    script = Script()
    script.register("a")
    tickets = [script.take("a") for _ in range(8)]
    assert script.count(Open) == 1
    assert {script.granted[t] for t in tickets} == {CopyId("a", 0, 1)}
    assert repr(script) == "<Pool 1.0/4.0 GiB | 1 leased, 0 idle, 0 waiting>"


def test_an_exclusive_copy_has_one_holder_at_a_time():
    script = Script()
    script.register("a", exclusive=True)
    first = script.take("a")
    second, third = script.ask("a"), script.ask("a")
    assert second not in script.granted
    script.give_back(first)
    assert second in script.granted
    assert third not in script.granted
    script.scheduler.on_accepted(second)
    script.give_back(second)
    assert third in script.granted


def test_exclusive_copies_are_opened_as_they_are_needed():
    script = Script()
    script.register("a", copies=2, exclusive=True)
    tickets = [script.ask("a") for _ in range(3)]
    assert len(script.opening) == 2
    script.settle()
    assert [t in script.granted for t in tickets] == [True, True, False]
    assert script.granted[tickets[0]] != script.granted[tickets[1]]


def test_a_busy_shared_model_gets_another_copy_and_the_least_loaded_is_chosen():
    script = Script()
    script.register("a", copies=2)
    script.take("a")
    script.ask("a")  # served at once by the busy copy, and the next one is on its way
    assert len(script.opening) == 1
    script.settle()
    third = script.take("a")
    assert script.granted[third].slot == 1


def test_another_copy_for_comfort_evicts_nobody():
    script = Script(limit=2)
    script.register("a", copies=2)
    script.register("b")
    script.use("b")
    script.take("a")
    script.take("a")
    assert script.residents == ["a[0]", "b"]


def test_a_cold_open_blocks_no_warm_lease():
    script = Script()
    script.register("a")
    script.register("b")
    script.use("a")
    script.ask("b")
    warm = script.ask("a")
    assert warm in script.granted
    assert len(script.opening) == 1


def test_preload_warms_every_copy_and_holds_none():
    script = Script()
    script.register("a", copies=2, exclusive=True)
    tickets = [script.ask("a", warm_slot=slot) for slot in range(2)]
    script.settle()
    assert set(script.warmed) == set(tickets)
    assert repr(script) == "<Pool 2.0/4.0 GiB | 0 leased, 2 idle, 0 waiting>"
    assert script.ask("a", warm_slot=0) in script.warmed


def test_preload_of_more_copies_than_fit_is_an_error_not_a_wait():
    script = Script(limit=4)
    script.register("a", size=3, copies=2)
    tickets = [script.ask("a", warm_slot=slot) for slot in range(2)]
    script.settle()
    assert tickets[0] in script.warmed
    assert isinstance(script.refused[tickets[1]], BudgetExceeded)


def test_copies_go_to_the_device_with_least_to_do():
    script = Script(limit=None, devices=("gpu:0", "gpu:1"))
    for name in ("a", "b", "c"):
        script.register(name)
        script.use(name)
    devices = [effect.device for effect in script.log if isinstance(effect, Open)]
    assert devices == ["gpu:0", "gpu:1", "gpu:0"]


# -- the queue --------------------------------------------------------------------------------


def test_a_waiter_that_times_out_loses_nothing():
    script = Script()
    script.register("a", exclusive=True)
    first = script.take("a", line=7)
    gone, patient = script.ask("a"), script.ask("a")
    script.now += 5
    script.time_out(gone)
    assert isinstance(script.refused[gone], PoolTimeout)
    assert "5.0 s" in str(script.refused[gone])
    assert "app.py:7" in str(script.refused[gone])
    script.give_back(first)
    assert patient in script.granted
    assert gone not in script.granted


def test_a_time_out_that_comes_after_the_offer_changes_nothing():
    script = Script()
    script.register("a")
    ticket = script.ask("a")
    script.settle()
    script.time_out(ticket)
    assert ticket not in script.refused
    assert script.scheduler.on_accepted(ticket)


def test_an_offer_that_nobody_takes_goes_to_the_next():
    script = Script()
    script.register("a", exclusive=True)
    first = script.take("a")
    gone, next_one = script.ask("a"), script.ask("a")
    script.give_back(first)
    assert gone in script.granted
    script.do(script.scheduler.on_cancel(gone, script.now))
    assert next_one in script.granted
    assert not script.scheduler.on_accepted(gone)


def test_who_was_offered_a_copy_that_died_waits_on_ahead_of_those_who_came_later():
    script = Script()
    script.register("a", exclusive=True)
    first = script.ask("a")
    script.settle()
    second = script.ask("a")
    script.died(script.granted.pop(first))
    assert not script.scheduler.on_accepted(first)
    script.settle()
    assert first in script.granted
    assert second not in script.granted


def test_an_open_goes_on_when_the_one_who_wanted_it_has_left():
    script = Script()
    script.register("a")
    ticket = script.ask("a")
    script.now += 1
    script.time_out(ticket)
    assert "still being opened" in str(script.refused[ticket])
    script.settle()
    assert repr(script) == "<Pool 1.0/4.0 GiB | 0 leased, 1 idle, 0 waiting>"


def test_nobody_starves_for_room_behind_a_model_that_is_never_idle():
    script = Script(limit=1)
    script.register("hot")
    script.register("cold")
    held = script.take("hot")
    waiter = script.ask("cold")
    for _ in range(30):  # overlapping leases: without a claim, "hot" is never idle
        script.wait(0.1)
        following = script.ask("hot")
        script.give_back(held)
        if following not in script.granted:
            break
        script.scheduler.on_accepted(following)
        held = following
    script.settle()
    assert waiter in script.granted
    assert script.now - 100 < 1.5
    script.scheduler.on_accepted(waiter)
    script.give_back(waiter)
    script.settle()
    assert following in script.granted


def test_a_claim_ends_with_the_one_who_made_it():
    script = Script(limit=1)
    script.register("hot")
    script.register("cold")
    script.take("hot")
    waiter = script.ask("cold")
    script.wait(2)
    later = script.ask("hot")
    assert later not in script.granted
    script.time_out(waiter)
    assert isinstance(script.refused[waiter], BudgetExceeded)
    assert later in script.granted


def test_room_on_its_way_is_not_taken_by_somebody_later():
    script = Script(limit=4)
    script.register("small", size=1)
    script.register("large", size=3)
    script.register("old", size=3)
    script.use("old")
    large = script.ask("large")  # waits for the receipt of "old"
    small = script.ask("small")
    assert len(script.closing) == 1
    assert not script.opening
    script.settle()
    assert large in script.granted
    assert small in script.granted


def test_an_unknown_name_is_refused_at_once_with_the_known_ones():
    script = Script()
    script.register("a")
    ticket = script.ask("b")
    assert isinstance(script.refused[ticket], ModelError)
    assert "registered: a" in str(script.refused[ticket])


# -- the budget -------------------------------------------------------------------------------


def test_bytes_stay_charged_until_the_receipt_is_in():
    script = Script(limit=1)
    script.register("a")
    script.register("b")
    script.use("a")
    script.ask("b")
    assert script.closing == [CopyId("a", 0, 1)]
    assert not script.opening
    assert repr(script) == "<Pool 1.0/1.0 GiB | 0 leased, 0 idle, 1 waiting, 1 leaving>"
    script.closed()
    assert script.opening == [CopyId("b", 0, 1)]


def test_what_is_being_unloaded_causes_no_cascade_of_evictions():
    script = Script(limit=3)
    for name in "abcd":
        script.register(name)
    for name in "abc":
        script.use(name)
        script.now += 1
    script.ask("d")
    for _ in range(5):
        script.now += 0.1
        script.do(script.scheduler.on_timer(script.now))
    assert script.closing == [CopyId("a", 0, 1)]


def test_bytes_that_did_not_come_back_stay_charged_and_are_named():
    script = Script(limit=2)
    script.register("a")
    script.register("b", size=1.5)
    script.use("a")
    ticket = script.ask("b")
    copy = script.closed(residue_bytes=GiB)
    assert not script.opening
    assert isinstance(script.refused[ticket], BudgetExceeded)
    assert "a 1.0 GiB, closed, but its memory is still in use" in str(script.refused[ticket])
    script.do(script.scheduler.on_closed(copy, script.now))  # it ended after all
    assert script.scheduler.charged_bytes == 0
    script.use("b")


def test_a_model_that_can_never_fit_is_an_error_at_once():
    script = Script(limit=4)
    with pytest.raises(BudgetExceeded, match=r"big needs 5\.0 GiB .* pool has 4\.0 GiB"):
        script.register("big", size=5)


def test_a_model_found_to_be_too_big_is_closed_again_and_its_waiters_get_the_numbers():
    script = Script(limit=4)
    script.register("big", memory_bytes=None, estimate_bytes=GiB)
    script.sizes["big"] = 5 * GiB
    ticket = script.ask("big")
    script.settle()
    assert "big needs 5.0 GiB" in str(script.refused[ticket])
    assert repr(script) == "<Pool 0.0/4.0 GiB | 0 leased, 0 idle, 0 waiting>"
    assert script.count(Open) == 1


def test_a_model_larger_than_reserved_makes_idle_ones_leave():
    script = Script(limit=4)
    script.register("old", size=2)
    script.register("big", memory_bytes=None, estimate_bytes=GiB)
    script.use("old")
    script.sizes["big"] = 3 * GiB
    ticket = script.ask("big")
    script.settle()
    assert ticket in script.granted
    assert script.residents == ["big"]


def test_all_residents_pinned_is_an_error_not_a_wait():
    script = Script(limit=2)
    script.register("a", pinned=True)
    script.register("b", pinned=True)
    script.register("c")
    script.use("a")
    script.use("b")
    ticket = script.ask("c")
    assert isinstance(script.refused[ticket], BudgetExceeded)
    assert "waiting cannot help" in str(script.refused[ticket])
    assert "pinned" in str(script.refused[ticket])


def test_a_model_can_be_pinned_and_let_go_again_while_it_is_there():
    script = Script(limit=2, idle_seconds=60)
    for name in "abc":
        script.register(name)
    script.use("a")
    script.use("b")
    script.do(script.scheduler.on_change("a", script.now, pinned=True))
    assert [copy.leaves_at is None for copy in script.scheduler.status().copies] == [True, False]
    script.use("c")
    assert script.residents == ["a", "c"]
    script.do(script.scheduler.on_change("c", script.now, pinned=True))
    ticket = script.ask("b")
    assert "waiting cannot help" in str(script.refused[ticket])
    script.do(script.scheduler.on_change("a", script.now, pinned=False))
    script.wait(61)
    script.settle()
    assert script.residents == ["c"]


def test_those_who_wait_are_refused_when_what_they_wait_for_is_pinned():
    script = Script(limit=1)
    script.register("a")
    script.register("b")
    held = script.take("a")
    ticket = script.ask("b")
    script.do(script.scheduler.on_change("a", script.now, pinned=True))
    script.give_back(held)
    assert "waiting cannot help" in str(script.refused[ticket])


def test_the_status_says_who_waits_for_what():
    script = Script(limit=2)
    for name in "abc":
        script.register(name)
    script.take("a", line=11)
    script.take("b")
    script.ask("c")
    script.ask("c")
    script.now += 3
    [wait] = script.scheduler.status(script.now).waits
    assert (wait.name, wait.version, wait.waiting, wait.seconds) == ("c", 1, 2, 3.0)
    assert "c needs 1.0 GiB; 0 B of 2.0 GiB is free" in wait.why
    assert "leased at app.py:11" in wait.why


def test_everything_leased_waits_and_then_says_who_holds_what():
    script = Script(limit=2)
    for name in "abc":
        script.register(name)
    script.take("a", line=11)
    script.now += 1
    script.take("b", line=22)
    ticket = script.ask("c")
    script.now += 2
    script.time_out(ticket)
    error = script.refused[ticket]
    assert isinstance(error, BudgetExceeded)
    assert str(error) == (
        "c needs 1.0 GiB; 0 B of 2.0 GiB is free, and nothing could be evicted in 2.0 s. "
        "Held: a 1.0 GiB, leased at app.py:11 for 3.0 s; "
        "b 1.0 GiB, leased at app.py:22 for 2.0 s."
    )


def test_max_sessions_counts_sessions():
    script = Script(limit=None, max_sessions=2)
    for name in "abc":
        script.register(name)
    script.use("a")
    script.now += 1
    script.use("b")
    script.take("c")
    assert script.residents == ["b", "c"]


def test_the_measured_footprint_is_reserved_next_time():
    script = Script(limit=4)
    script.register("a", memory_bytes=None, estimate_bytes=GiB)
    script.sizes["a"] = 2 * GiB
    script.use("a")
    script.do(script.scheduler.on_evict("a", script.now))
    script.settle()
    script.ask("a")
    assert script.log[-1] == Open(CopyId("a", 0, 2), 2 * GiB, known_bytes=2 * GiB)


def test_a_session_that_grew_makes_idle_ones_leave():
    script = Script(limit=3)
    script.register("a")
    script.register("b")
    script.register("c")
    script.use("b")
    script.use("c")
    script.take("a")
    script.measured(CopyId("a", 0, 1), 2 * GiB)
    script.settle()
    assert script.scheduler.charged_bytes == 3 * GiB


# -- eviction ---------------------------------------------------------------------------------


def candidate(name: str, idle: float, cost: float = 1, size: int = 1, age: float = 100):
    return Candidate(CopyId(name, 0, 1), size, 1000 - idle, 1000 - age, cost)


def victims(*candidates: Candidate, need: int = 1, spare_newcomers: float = 0.0):
    chosen = choose_victims(candidates, Room(need, 0), 1000, spare_newcomers)
    return None if chosen is None else "".join(copy.model for copy in chosen)


def test_the_least_recently_used_leaves():
    assert victims(candidate("a", 10), candidate("b", 30), candidate("c", 20)) == "b"


def test_what_is_expensive_to_bring_back_stays_longer():
    assert victims(candidate("a", 30, cost=8), candidate("b", 10, cost=1)) == "b"
    assert victims(candidate("a", 90, cost=8), candidate("b", 10, cost=1)) == "a"


def test_noise_in_the_costs_does_not_change_the_order():
    assert victims(candidate("a", 30, cost=0.11), candidate("b", 29, cost=0.09)) == "a"


def test_nobody_leaves_in_vain():
    small, large = candidate("a", 30, size=1), candidate("b", 20, size=3)
    assert victims(small, large, need=3) == "b"
    assert victims(small, large, need=4) == "ab"
    assert victims(small, large, need=5) is None


def test_a_newcomer_leaves_only_if_nobody_else_will_do():
    new, old = candidate("a", 2, age=2), candidate("b", 1)
    assert victims(new, old, spare_newcomers=5) == "b"
    assert victims(new, spare_newcomers=5) == "a"


def test_a_leased_session_is_never_evicted():
    script = Script(limit=2)
    for name in "abc":
        script.register(name)
    script.take("a")
    script.now += 50
    script.use("b")
    script.take("c")
    assert script.residents == ["a", "c"]


def test_idle_sessions_leave_after_their_time_and_pinned_ones_stay():
    script = Script(idle_seconds=60)
    script.register("a")
    script.register("b", keep_seconds=10)
    script.register("c", pinned=True)
    for name in "abc":
        script.use(name)
    script.wait(11)
    script.settle()
    assert script.residents == ["a", "c"]
    script.use("a")
    script.wait(59)
    assert script.residents == ["a", "c"]
    script.wait(2)
    script.settle()
    assert script.residents == ["c"]


def test_rounding_never_makes_the_timer_go_off_for_ever():
    script = Script(idle_seconds=0.1)
    script.register("a")
    script.now = 0.4  # 0.4 + 0.1 - 0.4 is a little less than 0.1
    script.use("a")
    script.wait(1)
    assert script.closing == [CopyId("a", 0, 1)]


def test_evict_lets_holders_finish_and_the_next_lease_opens_a_new_generation():
    script = Script()
    script.register("a")
    held = script.take("a")
    script.do(script.scheduler.on_evict("a", script.now))
    assert not script.closing
    later = script.ask("a")
    assert later not in script.granted
    script.give_back(held)
    script.settle()
    assert script.granted[later] == CopyId("a", 0, 2)


# -- generations ------------------------------------------------------------------------------


def test_a_request_for_a_model_that_is_being_unloaded_waits_and_opens_the_next_generation():
    script = Script(idle_seconds=10)
    script.register("a")
    script.use("a")
    script.wait(11)
    ticket = script.ask("a")
    assert ticket not in script.granted
    script.closed()
    script.opened()
    assert script.granted[ticket] == CopyId("a", 0, 2)


def test_a_late_or_doubled_message_about_an_old_generation_is_ignored():
    script = Script()
    script.register("a")
    script.use("a")
    script.do(script.scheduler.on_evict("a", script.now))
    script.settle()
    held = script.take("a")
    old = CopyId("a", 0, 1)
    scheduler = script.scheduler
    before = repr(scheduler)
    assert scheduler.on_closed(old, script.now) == ()
    assert scheduler.on_died(old, "late", script.now) == ()
    assert scheduler.on_opened(old, GiB, 1.0, script.now) == ()
    assert scheduler.on_open_failed(old, SessionBroken("late"), script.now) == ()
    assert scheduler.on_park_failed(old, OSError("late"), script.now) == ()
    assert scheduler.on_measured(old, 9 * GiB, script.now) == ()
    assert repr(scheduler) == before
    script.give_back(held)
    script.give_back(held)  # a lease that has ended is ignored too
    assert repr(script) == "<Pool 1.0/4.0 GiB | 0 leased, 1 idle, 0 waiting>"


def test_a_move_that_the_table_does_not_know_tells_the_history():
    residents = Residents()
    model = Model("a")
    residents.register(model)
    copy: Copy = residents.begin(residents.slots("a")[0], model, 0.0)
    copy.move("opened")
    with pytest.raises(InternalError, match=r"a\[0\]#1 is resident: no move for opened"):
        copy.move("opened")
    assert copy.state is CopyState.READY


# -- parking ----------------------------------------------------------------------------------


def test_a_changed_session_that_cannot_be_parked_makes_room_and_the_loss_is_reported():
    script = Script(limit=1)
    script.register("a", parks=False)
    script.register("b")
    script.use("a", changed=True)
    script.ask("b")
    assert not script.parking
    assert script.closing == [CopyId("a", 0, 1)]
    assert script.count(Report) == 1
    script.settle()
    assert CopyId("b", 0, 1) in script.granted.values()


def test_a_changed_session_is_parked_before_it_closes_and_comes_back_with_its_state():
    script = Script(limit=1)
    script.register("a")
    script.register("b")
    script.use("a", changed=True)
    script.ask("b")
    assert script.parking == [CopyId("a", 0, 1)]
    assert not script.closing
    script.parked("checkpoint 1")
    assert script.closing == [CopyId("a", 0, 1)]
    script.settle()
    script.do(script.scheduler.on_evict("b", script.now))
    script.give_back(2, runs=0)
    script.settle()
    script.ask("a")
    assert script.log[-1] == Open(CopyId("a", 0, 2), GiB, "checkpoint 1")


def test_a_session_that_did_not_change_since_it_was_parked_needs_no_second_save():
    script = Script(limit=1)
    script.register("a")
    script.register("b")
    script.use("a", changed=True)
    script.use("b")
    script.use("a")
    script.use("b")
    assert script.count(Park) == 1
    script.ask("a")
    script.settle()
    opens = [e for e in script.log if isinstance(e, Open) and e.copy.model == "a"]
    assert [e.state for e in opens] == [None, "state of a[0]#1", "state of a[0]#1"]


def test_a_newer_state_replaces_the_older_one():
    script = Script()
    script.register("a")
    for number in (1, 2):
        script.use("a", changed=True)
        script.do(script.scheduler.on_evict("a", script.now))
        script.parked(f"checkpoint {number}")
        script.settle()
    assert [e for e in script.log if isinstance(e, Discard)] == [Discard("checkpoint 1")]


def test_parking_that_fails_leaves_the_session_resident_and_says_so():
    script = Script(limit=1)
    script.register("a")
    script.register("b")
    script.use("a", changed=True)
    waiter = script.ask("b")
    copy = script.parking.pop()
    script.do(script.scheduler.on_park_failed(copy, CheckpointError("disk full"), script.now))
    assert script.residents == ["a"]
    assert any(isinstance(e, Report) and e.kind == "pool.park_failed" for e in script.log)
    again = script.ask("a")  # it can be used meanwhile
    assert script.granted[again] == copy
    script.scheduler.on_accepted(again)
    script.give_back(again)
    assert not script.parking  # not at once again
    script.now += 0.5
    script.do(script.scheduler.on_timer(script.now))
    assert waiter not in script.refused
    script.wait(11)
    script.settle()
    assert waiter in script.granted


def test_what_cannot_be_parked_is_leased_on_even_when_it_should_be_recycled():
    script = Script()
    script.register("a", max_runs=1)
    script.use("a", changed=True)
    copy = script.parking.pop()
    script.do(script.scheduler.on_park_failed(copy, CheckpointError("disk full"), script.now))
    script.use("a")
    assert script.granted[script.take("a")] == copy


def test_a_time_out_behind_a_failed_parking_names_the_reason():
    script = Script(limit=1)
    script.register("a")
    script.register("b")
    script.use("a", changed=True)
    waiter = script.ask("b")
    script.do(
        script.scheduler.on_park_failed(
            script.parking.pop(), CheckpointError("disk full"), script.now
        )
    )
    script.time_out(waiter)
    assert "cannot be parked (disk full)" in str(script.refused[waiter])


# -- health -----------------------------------------------------------------------------------


def test_a_worker_that_died_idle_is_replaced_before_the_next_lease():
    script = Script()
    script.register("a")
    script.use("a")
    script.died(CopyId("a", 0, 1))
    assert repr(script) == "<Pool 1.0/4.0 GiB | 0 leased, 0 idle, 0 waiting, 1 leaving>"
    ticket = script.ask("a")
    assert ticket not in script.granted
    script.settle()
    assert script.granted[ticket] == CopyId("a", 0, 2)


def test_a_model_that_keeps_crashing_is_left_alone_for_longer_and_longer():
    script = Script()
    script.register("a")
    for _ in range(2):
        script.died(script.granted[script.take("a")], "tensor of doom")
        script.settle()
        script.wait(1)
    script.died(script.granted[script.take("a")], "tensor of doom")
    script.settle()
    ticket = script.ask("a")
    assert isinstance(script.refused[ticket], SessionBroken)
    assert "crashed 3 times in a row" in str(script.refused[ticket])
    assert "tensor of doom" in str(script.refused[ticket])
    script.wait(1)
    script.use("a")  # one more attempt is made, and a good lease forgives everything
    script.died(CopyId("a", 0, 4))
    script.settle()
    script.use("a")


def test_a_worker_that_dies_while_opening_is_tried_again_for_those_who_wait():
    script = Script()
    script.register("a")
    ticket = script.ask("a")
    script.open_failed(SessionBroken("killed"))
    assert script.opening == [CopyId("a", 0, 2)]
    script.open_failed(SessionBroken("killed"))
    assert not script.opening
    script.wait(0.2)
    assert script.opening == [CopyId("a", 0, 3)]
    script.open_failed(SessionBroken("killed"))
    assert "crashed 3 times" in str(script.refused[ticket])
    assert script.scheduler.charged_bytes == 0


def test_a_model_that_cannot_be_loaded_is_not_tried_again_and_every_caller_gets_the_error():
    script = Script()
    script.register("a")
    tickets = [script.ask("a") for _ in range(3)]
    script.open_failed(ModelError("no such file"))
    assert all(isinstance(script.refused[t], ModelError) for t in tickets)
    assert len({id(error) for error in script.refused.values()}) == 3
    assert not script.opening


def test_back_off_grows_and_is_bounded():
    waits = [backoff_seconds(n) for n in range(1, 40)]
    assert waits == sorted(waits)
    assert waits[0] == 0
    assert waits[-1] == 30


def test_max_runs_recycles_between_leases():
    script = Script()
    script.register("a", max_runs=10)
    script.use("a", runs=9)
    assert not script.closing
    held = script.take("a")
    script.give_back(held, runs=1)
    assert script.closing == [CopyId("a", 0, 1)]
    script.settle()
    assert script.granted[script.take("a")] == CopyId("a", 0, 2)


def test_who_holds_a_lease_gets_a_second_one_even_when_the_copy_is_to_be_recycled():
    script = Script()
    script.register("a", max_runs=1)
    first = script.take("a", who="t1")
    other = script.take("a", who="t2")
    script.give_back(other)
    assert script.ask("a", who="t3") not in script.granted
    assert script.ask("a", who="t1") in script.granted
    assert first in script.granted


def test_growth_counts_only_when_repeated_readings_agree():
    growth = Growth()
    for reading in (100, 300, 120, 300, 310):
        growth.record(reading, 100)
    assert not growth.is_proven  # one high reading went away again
    growth.record(305, 100)
    assert growth.is_proven
    assert growth.grown_bytes == 205


def test_a_session_that_keeps_growing_is_recycled():
    script = Script(limit=8)
    script.register("a", max_growth_bytes=GiB, memory_bytes=None)
    script.use("a")
    copy = CopyId("a", 0, 1)
    script.measured(copy, GiB)
    for _ in range(GROWTH_READINGS):
        assert not script.closing
        script.measured(copy, 3 * GiB)
    assert script.log[-1] == Close(copy, "grew by 2.0 GiB")


# -- deadlocks --------------------------------------------------------------------------------


def test_two_holders_that_wait_for_each_other_are_found():
    script = Script()
    script.register("a", exclusive=True)
    script.register("b", exclusive=True)
    script.take("a", who="thread 1", line=10)
    script.take("b", who="thread 2", line=20)
    first = script.ask("b", who="thread 1", line=11)
    assert not script.refused
    second = script.ask("a", who="thread 2", line=21)
    error = script.refused[second]
    assert isinstance(error, DeadlockDetected)
    assert str(error) == (
        "deadlock: thread 2 holds b (1.0 GiB, leased at app.py:20) and waits for a at app.py:21; "
        "thread 1 holds a (1.0 GiB, leased at app.py:10) and waits for b at app.py:11. "
        "Give back before you ask for more, or ask in the same order everywhere."
    )
    assert first not in script.refused


def test_a_request_that_would_wait_for_itself_is_refused_at_once():
    script = Script()
    script.register("a", exclusive=True)
    script.take("a", who="t1", line=5)
    error = script.refused[script.ask("a", who="t1", line=6)]
    assert isinstance(error, DeadlockDetected)
    assert "app.py:5" in str(error)
    assert "app.py:6" in str(error)


def test_holders_that_wait_for_each_others_bytes_are_found():
    script = Script(limit=2)
    for name in "abcd":
        script.register(name)
    script.take("a", who="t1", line=1)
    script.take("b", who="t2", line=2)
    first = script.ask("c", who="t1", line=3)
    assert not script.refused  # t2 may give back
    second = script.ask("d", who="t2", line=4)
    assert isinstance(script.refused[second], DeadlockDetected)
    told = str(script.refused[second])
    assert "1.0 GiB of room for d" in told
    assert all(f"app.py:{line}" in told for line in (1, 2, 3, 4))
    script.give_back(2)
    script.settle()
    assert first in script.granted


def test_a_holder_of_what_pinned_models_leave_of_the_room_is_refused():
    script = Script(limit=4)
    script.register("pinned", size=2, pinned=True)
    script.register("held", size=2)
    script.register("more", size=1)
    script.use("pinned")
    script.take("held", who="t1")
    assert isinstance(script.refused[script.ask("more", who="t1")], DeadlockDetected)


def test_three_in_a_ring_are_found_and_the_message_names_all():
    script = Script()
    for name in "abc":
        script.register(name, exclusive=True)
    for name, who in zip("abc", ("t1", "t2", "t3"), strict=True):
        script.take(name, who=who)
    script.ask("b", who="t1")
    script.ask("c", who="t2")
    last = script.ask("a", who="t3")
    assert all(f"t{n} holds" in str(script.refused[last]) for n in (1, 2, 3))


def test_a_deadlock_says_whether_bytes_or_sessions_are_short():
    for limits, wanted in (
        ({"limit": None, "max_sessions": 1}, "waits for one of 1 sessions for b at"),
        ({"limit": 1}, "waits for 1.0 GiB of room for b at"),
    ):
        script = Script(**limits)
        script.register("a")
        script.register("b")
        script.take("a", who="t1")
        error = script.refused[script.ask("b", who="t1")]
        assert isinstance(error, DeadlockDetected)
        assert wanted in str(error)


def test_a_wait_that_any_of_several_copies_can_end_is_no_deadlock():
    script = Script()
    script.register("a", exclusive=True, copies=2)
    script.register("b", exclusive=True)
    script.take("a", who="t1")
    free_to_go = script.take("a", who="t3")
    script.take("b", who="t2")
    script.ask("b", who="t1")
    ticket = script.ask("a", who="t2")
    assert not script.refused
    script.give_back(free_to_go)
    assert ticket in script.granted


def test_waiting_for_somebody_who_does_not_wait_is_no_deadlock():
    script = Script(limit=2)
    for name in "abc":
        script.register(name)
    script.take("a", who="t1")
    script.take("b", who="t2")
    script.ask("c", who="t1")
    assert not script.refused


def test_a_holder_is_not_held_up_by_a_claim_that_waits_for_him():
    script = Script(limit=4)
    script.register("held", size=2)
    script.register("large", size=3)
    script.register("small", size=1)
    first = script.take("held", who="t1")
    large = script.ask("large", who="t2")
    script.wait(2)  # t2 has a claim on "held" by now, and the spare room is kept for him
    ahead = script.ask("small", who="t3")
    assert not script.opening
    more = script.ask("small", who="t1")  # if t1 waited for t2, both would wait for ever
    script.settle()
    assert more in script.granted
    assert ahead in script.granted
    for ticket in (first, more, ahead):
        script.scheduler.on_accepted(ticket)
        script.give_back(ticket)
    script.settle()
    assert large in script.granted


def test_a_lease_that_moved_to_another_thread_is_that_threads():
    script = Script()
    script.register("a", exclusive=True)
    ticket = script.take("a", who="t1")
    script.scheduler.on_moved(ticket, Holder("t2", Place("app.py", 9)))
    again = script.ask("a", who="t1")
    assert again not in script.refused
    script.give_back(ticket)
    assert again in script.granted


# -- closing ----------------------------------------------------------------------------------


def test_closing_refuses_waiters_and_lets_holders_finish():
    script = Script(limit=1)
    script.register("a")
    script.register("b")
    held = script.take("a")
    waiter = script.ask("b")
    script.do(script.scheduler.on_shutdown(Place("main.py", 99), script.now))
    assert isinstance(script.refused[waiter], SessionClosed)
    assert "main.py:99" in str(script.refused[waiter])
    assert isinstance(script.refused[script.ask("a")], SessionClosed)
    assert not script.closing
    script.give_back(held, changed=True)
    script.settle()
    assert script.scheduler.is_empty
    assert script.count(Park) == 0


def test_closing_refuses_those_that_have_not_taken_what_they_were_offered():
    script = Script()
    script.register("a", exclusive=True)
    held = script.take("a")
    waiter = script.ask("a")
    script.give_back(held)
    assert waiter in script.granted
    script.do(script.scheduler.on_shutdown(Place("main.py", 99), script.now))
    assert isinstance(script.refused[waiter], SessionClosed)
    assert not script.scheduler.on_accepted(waiter)
    assert not script.scheduler.is_leased
    script.settle()
    assert script.scheduler.is_empty
    assert script.scheduler.counters.grants == 1


def test_an_open_that_is_called_off_is_no_death():
    script = Script()
    script.register("a")
    script.ask("a")
    script.do(script.scheduler.on_shutdown(Place("main.py", 99), script.now))
    script.open_failed(SessionBroken("the worker was killed by SIGKILL"))
    assert script.scheduler.counters.deaths == 0
    assert script.scheduler.is_empty


def test_leases_that_are_not_given_back_in_time_expire():
    script = Script()
    script.register("a")
    script.register("b")
    held = script.take("a")
    script.ask("b")  # still opening
    script.do(script.scheduler.on_shutdown(Place("main.py", 99), script.now))
    script.do(script.scheduler.on_shutdown_timeout(script.now))
    assert script.expired == [held]
    script.opening.clear()
    script.settle()
    assert script.scheduler.is_empty
    assert repr(script) == "<Pool 0.0/4.0 GiB | 0 leased, 0 idle, 0 waiting>"


# -- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules", [{"copies": 0}, {"max_runs": 0}, {"keep_seconds": -1}, {"memory_bytes": -1}]
)
def test_settings_that_make_no_sense_are_refused(rules):
    with pytest.raises(ValueError, match=f"a: {next(iter(rules))}"):
        Model("a", **rules)


def test_a_name_is_registered_once():
    script = Script()
    script.register("a")
    with pytest.raises(ValueError, match="registered already"):
        script.register("a")


def test_a_pool_without_a_limit_says_what_it_uses():
    script = Script(limit=None)
    script.register("a")
    script.use("a")
    assert repr(script) == "<Pool 1.0 GiB | 0 leased, 1 idle, 0 waiting>"
    assert Policy().limit.covers(Room(2**60, 10**6))


def test_the_status_says_what_each_copy_does():
    script = Script()
    script.register("a")
    script.take("a", line=42)
    (copy,) = script.scheduler.status().copies
    assert (copy.name, copy.state, copy.bytes) == ("a", "leased", GiB)
    assert [str(place) for place in copy.holders] == ["app.py:42"]
    assert script.scheduler.status().counters["opens"] == 1
