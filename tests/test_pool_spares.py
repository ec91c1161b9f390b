"""Spare workers of a pool: the decisions, by a script of events."""

from __future__ import annotations

import pytest

from pool_script import GiB, Script
from sojourn.pool.decisions.effects import Open
from sojourn.pool.decisions.spares import QUIET_SECONDS
from sojourn.values import Place


@pytest.fixture
def script() -> Script:
    """4 GiB, and one spare worker of half a GiB that is ready."""
    script = Script(spares=1)
    for name in "abc":
        script.register(name, size=1, memory_bytes=None, estimate_bytes=GiB, takes_spares=True)
    script.wait(QUIET_SECONDS)
    script.do(script.scheduler.on_timer(script.now))
    script.spare_made()
    return script


def last_open(script: Script) -> Open:
    return next(effect for effect in reversed(script.log) if isinstance(effect, Open))


def test_a_spare_is_charged_and_told(script):
    assert repr(script) == "<Pool 0.5/4.0 GiB | 0 leased, 0 idle, 0 waiting, 1 spare>"
    [spare] = script.scheduler.status().spares
    assert (spare.state, spare.bytes) == ("ready", GiB // 2)
    assert script.scheduler.status().to_dict()["spares"] == [{"state": "ready", "bytes": GiB // 2}]


def test_an_open_takes_it_and_its_room(script):
    script.take("a")
    assert last_open(script).spare == 1
    assert script.scheduler.charged_bytes == GiB
    assert script.scheduler.counters.spares_taken == 1
    assert script.scheduler.status().spares == ()


def test_another_is_made_once_it_is_quiet(script):
    ticket = script.ask("a")
    script.wait(10)
    assert not script.making  # while something is being opened
    script.opened()
    script.scheduler.on_accepted(ticket)
    assert not script.making
    script.wait(QUIET_SECONDS / 2)
    assert not script.making
    script.wait(QUIET_SECONDS)
    assert script.making == [2]


def test_none_is_made_where_there_is_no_room(script):
    for name in "ab":
        script.take(name)
    script.sizes["c"] = 2 * GiB
    script.ask("c")
    script.opened(size=2)
    script.wait(10)
    assert not script.making


def test_a_model_that_cannot_take_it_leaves_it_alone(script):
    script.register("limited", size=1)
    script.take("limited")
    assert last_open(script).spare is None
    assert len(script.scheduler.status().spares) == 1


def test_it_leaves_before_any_model_does(script):
    script.register("large", size=3)
    script.use("a")
    script.wait(1)
    script.spare_made()
    ticket = script.ask("large")
    assert script.ending == [2]
    assert not script.closing  # 1 of a, 3 of large
    assert ticket not in script.granted
    script.spare_gone()
    script.settle()
    assert ticket in script.granted
    assert script.residents == ["a", "large"]


def test_one_that_an_open_is_about_to_take_does_not_leave_for_it():
    script = Script(limit=1.5, spares=1)
    for name in "ab":
        script.register(name, size=1, memory_bytes=None, estimate_bytes=GiB, takes_spares=True)
    script.do(script.scheduler.on_timer(script.now))
    script.spare_made()
    script.use("a")
    script.wait(1)
    script.spare_made()
    ticket = script.ask("b")
    assert not script.ending
    assert [copy.model for copy in script.closing] == ["a"]
    script.settle()
    assert last_open(script).spare == 2
    assert ticket in script.granted


def test_a_spare_leaves_when_a_model_has_grown(script):
    script.take("a")
    script.wait(1)
    script.spare_made()
    script.do(script.scheduler.on_measured(last_open(script).copy, 4 * GiB, script.now))
    assert script.ending == [2]
    assert not script.closing


def test_one_that_died_is_replaced_and_counted(script):
    script.spare_gone(1)
    assert script.scheduler.counters.spares_lost == 1
    script.wait(1)
    assert script.making == [2]


def test_what_cannot_be_made_is_tried_less_and_less_often():
    script = Script(spares=1)
    script.do(script.scheduler.on_timer(script.now))
    for _ in range(6):
        if not script.making:
            script.wait(30)
        script.spare_gone(script.making.pop(0))
    assert script.scheduler.counters.spares_lost == 6
    script.wait(1)
    assert not script.making


def test_they_end_with_the_pool(script):
    script.do(script.scheduler.on_shutdown(Place("app.py", 1), script.now))
    assert script.ending == [1]
    assert not script.scheduler.is_empty
    script.spare_gone()
    assert script.scheduler.is_empty
    script.wait(10)
    assert not script.making


def test_one_that_is_being_made_when_the_pool_closes_ends_once_it_is_there(script):
    script.take("a")
    script.wait(1)
    script.do(script.scheduler.on_shutdown(Place("app.py", 1), script.now))
    assert script.ending == [2]  # nobody has it yet
    script.ending.clear()
    script.spare_made()
    assert script.ending == [2]


def test_sessions_are_counted_without_spares():
    script = Script(limit=None, max_sessions=1, spares=1)
    script.register("a", takes_spares=True, memory_bytes=None)
    script.do(script.scheduler.on_timer(script.now))
    script.spare_made()
    script.take("a")
    assert script.residents == ["a"]


@pytest.fixture
def full() -> Script:
    """Room for one session: model a is there and idle, and a spare worker is ready."""
    script = Script(limit=None, max_sessions=1, spares=1)
    for name in "ab":
        script.register(name, takes_spares=True, memory_bytes=None)
    script.use("a")
    script.wait(1)
    script.spare_made()
    return script


def test_an_open_that_takes_a_spare_does_not_wait_until_the_evicted_has_ended(full):
    charged = full.scheduler.charged_bytes
    ticket = full.ask("b")
    assert [copy.model for copy in full.closing] == ["a"]
    assert [copy.model for copy in full.opening] == ["b"]
    assert full.scheduler.charged_bytes > charged - GiB  # what has not ended is still charged
    full.opened()
    assert ticket in full.granted
    full.closed()
    assert full.residents == ["b"]


def test_only_as_many_begin_early_as_there_are_spares(full):
    full.ask("b")
    full.register("c", takes_spares=True, memory_bytes=None)
    waiting = full.ask("c")
    assert [copy.model for copy in full.opening] == ["b"]
    full.wait(10)
    assert not full.making  # while workers come and go
    full.opened()
    full.closed()
    assert waiting not in full.granted


def test_without_a_spare_the_evicted_has_ended_first(full):
    full.register("limited", size=1)
    ticket = full.ask("limited")
    assert [copy.model for copy in full.closing] == ["a"]
    assert not full.opening
    full.settle()
    assert ticket in full.granted


def test_what_is_being_parked_may_yet_stay_and_keeps_its_place():
    script = Script(limit=None, max_sessions=1, spares=1)
    script.register("a", takes_spares=True, memory_bytes=None, parks=True)
    script.register("b", takes_spares=True, memory_bytes=None)
    script.use("a", changed=True)
    script.wait(1)
    script.spare_made()
    script.ask("b")
    assert len(script.parking) == 1
    assert not script.opening
    script.parked()
    assert [copy.model for copy in script.opening] == ["b"]  # its worker ends, which takes a while
