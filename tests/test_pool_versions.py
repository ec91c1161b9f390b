"""Models of a pool can be replaced and unregistered while they are used."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import pool_models
import sojourn
import sojourn.pool
from faults.tools import wait_until
from pool_script import GiB, Script
from sojourn.errors import ModelError
from sojourn.pool.decisions.effects import Discard, Open
from sojourn.pool.decisions.terms import CopyId, Model
from sojourn.pool.options import OpenOptions
from sojourn.session.opening import Blueprint
from sojourn.testing.injection import interrupted


def saying(word: str) -> Callable[[], Callable[..., str]]:
    return lambda: lambda a: word


def word_of(session: sojourn.pool.PoolLease) -> str:
    return str(session.run("output", {"a": 1}), "ascii")


def said(pool: sojourn.Pool, **which: int) -> str:
    with pool.lease("m", timeout=60, **which) as session:
        return word_of(session)


@pytest.fixture
def pool(zygote):
    with sojourn.Pool(memory="1GiB") as pool:
        pool.register("m", saying("one"))
        yield pool


def test_several_versions_are_resident_at_once_and_the_latest_is_the_default(pool):
    pool.register("m", saying("three"), version=3)
    pool.register("m", saying("two"), version=2)
    assert pool.versions("m") == (1, 2, 3)
    assert said(pool) == "three"
    assert [said(pool, version=n) for n in (1, 2, 3)] == ["one", "two", "three"]
    assert {(m.version, m.is_latest, m.copies) for m in pool.stats().models} == {
        (1, False, 1),
        (2, False, 1),
        (3, True, 1),
    }
    with pytest.raises(ModelError, match=r"no version 4 of 'm' is registered \(registered: 1, 2"):
        pool.lease("m", version=4)
    with pytest.raises(ValueError, match="registered already"):
        pool.register("m", saying("two"), version=2)


def test_an_update_takes_over_when_it_is_ready_and_refuses_nobody(pool):
    heard = []
    stop = sojourn.events.subscribe(heard.append)
    is_over = threading.Event()
    words: list[list[str]] = []

    def use() -> None:
        mine: list[str] = []
        words.append(mine)
        while not is_over.is_set():
            mine.append(said(pool))

    with ThreadPoolExecutor(3) as threads:
        using = [threads.submit(use) for _ in range(3)]
        try:
            wait_until(lambda: len(words) == 3 and all(words))
            assert pool.update("m", saying("two")) == 2
            assert said(pool) == "two"  # from now on
        finally:
            is_over.set()
        for future in using:
            future.result()
    for mine in words:
        assert set(mine) <= {"one", "two"}
        assert mine == sorted(mine)  # nobody went back
    wait_until(lambda: pool.versions("m") == (2,) and len(pool.stats().copies) == 1)
    stop()
    assert pool.stats().counters["refusals"] == 0
    [updated] = [event for event in heard if event.kind == "pool.updated"]
    assert (updated.session, updated.detail["version"]) == ("m", 2)
    assert updated.detail["replaces"] == [1]


def test_a_lease_of_the_old_version_lasts_until_it_is_given_back(pool):
    with pool.lease("m") as session:
        pool.update("m", saying("two"))
        assert word_of(session) == "one"
        assert said(pool) == "two"
        assert [m.state for m in pool.stats().models] == ["going", "serving"]
        with pytest.raises(ModelError, match="no version 1"):
            pool.lease("m", version=1)
    wait_until(lambda: [m.version for m in pool.stats().models] == [2])


def test_an_update_that_fails_changes_nothing_and_says_why(pool):
    assert said(pool) == "one"
    with pytest.raises(ModelError):
        pool.update("m", lambda: 7)
    with pytest.raises(sojourn.PoolTimeout, match=r"m@2 is still being opened.*\)$"):
        pool.update("m", pool_models.slow_to_open("/no/such/file"), ready_seconds=0.1)
    with pytest.raises(ModelError, match="no model named 'n'"):
        pool.update("n", saying("two"))
    with pytest.raises(ValueError, match="the new version must be higher, not 1"):
        pool.update("m", saying("two"), version=1)
    assert said(pool) == "one"
    assert pool.versions("m") == (1,)
    wait_until(lambda: len(pool.stats().models) == len(pool.stats().copies) == 1)


def test_an_older_update_that_is_ready_later_does_not_replace_the_newer_version(pool, tmp_path):
    with ThreadPoolExecutor(1) as threads:
        opens = pool_models.slow_to_open(str(tmp_path / "go"))
        late = threads.submit(pool.update, "m", opens)
        wait_until(lambda: pool.versions("m") == (1, 2))
        assert pool.update("m", saying("three")) == 3
        (tmp_path / "go").touch()
        with pytest.raises(ModelError, match="m@2 was not ready before m@3, which serves now"):
            late.result(60)
    assert said(pool) == "three"
    assert pool.versions("m") == (3,)
    wait_until(lambda: len(pool.stats().models) == 1)


def test_an_old_version_can_be_kept(pool):
    assert pool.update("m", saying("five"), version=5, keep_old=True) == 5
    assert said(pool) == "five"
    assert said(pool, version=1) == "one"
    pool.unregister("m", version=5)
    assert said(pool) == "one"


def test_an_update_that_is_interrupted_anywhere_leaves_one_version_that_serves(pool):
    said(pool)
    for point in range(1, 60, 7):
        try:
            with interrupted(point):
                pool.update("m", saying("one"))
        except KeyboardInterrupt:
            pass
        assert said(pool) == "one"
        wait_until(lambda: len(pool.versions("m")) == 1)


def test_unregistering_refuses_those_that_wait_and_lets_holders_finish(pool):
    pool.register("mine", saying("mine"), exclusive=True)
    with ThreadPoolExecutor(1) as threads, pool.lease("mine") as session:
        waiting = threads.submit(pool.lease, "mine")
        wait_until(lambda: pool.stats().waiting == 1)
        assert pool.unregister("mine")
        with pytest.raises(ModelError, match="mine was unregistered while this lease waited"):
            waiting.result()
        assert "mine" not in pool
        with pytest.raises(ModelError, match="no model named 'mine'"):
            pool.lease("mine")
        assert word_of(session) == "mine"
    wait_until(lambda: not pool.stats().copies)
    pool.register("mine", saying("another"))
    with pool.lease("mine") as session:
        assert word_of(session) == "another"
    with pytest.raises(ModelError, match="no model named 'nobody'"):
        pool.unregister("nobody")


def test_a_model_that_is_unregistered_while_it_opens_is_cut_off(pool, tmp_path):
    pool.register("slow", pool_models.slow_to_open(str(tmp_path / "never")))
    with ThreadPoolExecutor(1) as threads:
        cold = threads.submit(pool.lease, "slow")
        wait_until(lambda: pool.stats().opening == 1)
        assert pool.unregister("slow", timeout=60)
        with pytest.raises(ModelError, match="unregistered"):
            cold.result()


def test_the_typed_options_are_those_of_open():
    known = inspect.signature(Blueprint).parameters.keys() - {"model", "memory"}
    assert OpenOptions.__annotations__.keys() == known | {"device"}


# -- the decisions ------------------------------------------------------------------------------


def update(script: Script, name: str, version: int, **rules: object) -> str:
    rules.setdefault("memory_bytes", script.sizes[name])
    model = Model(name, version, **rules)  # type: ignore[arg-type]
    script.sizes[model.key] = script.sizes[name]
    script.scheduler.register(model, is_coming=True)
    return model.key


def test_requests_that_wait_for_a_model_follow_its_update():
    script = Script(limit=2)
    script.register("a", exclusive=True)
    held = script.take("a")
    follows, patient = script.ask("a"), script.ask("a")
    key = update(script, "a", 2)
    script.ask("a", who="updater", warm_slot=0)  # of version 1, and there already
    assert script.ask("a") not in script.granted  # it still goes to the old one
    script.do(script.scheduler.on_update(key, script.now))
    script.settle()
    assert script.granted[follows].model == script.granted[patient].model == "a@2"
    script.give_back(held)
    script.settle()
    assert script.residents == ["a@2"]


def test_an_update_that_a_newer_one_has_overtaken_fails_and_the_newer_one_stays():
    script = Script()
    script.register("a")
    late, quick = update(script, "a", 2), update(script, "a", 3)
    for version in (2, 3):
        script.warm("a", version)
        script.settle()
    script.do(script.scheduler.on_update(quick, script.now))
    with pytest.raises(ModelError, match="a@2 was not ready before a@3"):
        script.scheduler.on_update(late, script.now)
    script.do(script.scheduler.on_give_up([late], script.now, "its update failed"))
    script.settle()
    assert script.residents == ["a@3"]
    assert [model.version for model in script.scheduler.versions("a")] == [3]


def test_a_version_that_comes_late_may_stay_beside_the_newer_one():
    script = Script()
    script.register("a")
    late, quick = update(script, "a", 2), update(script, "a", 3)
    script.do(script.scheduler.on_update(quick, script.now, keeps_old=True))
    script.do(script.scheduler.on_update(late, script.now, keeps_old=True))
    assert [model.version for model in script.scheduler.versions("a")] == [1, 2, 3]
    assert script.scheduler.find("a").version == 3


def test_both_versions_wait_their_turn_where_only_one_fits():
    script = Script(limit=1)
    script.register("a")
    script.use("a")
    key = update(script, "a", 2)
    warming = script.warm("a", 2)
    script.settle()
    assert warming in script.warmed
    script.do(script.scheduler.on_update(key, script.now))
    script.use("a")
    assert script.residents == ["a@2"]


@pytest.mark.parametrize("estimate", [9 * GiB, None])
def test_a_guess_refuses_no_update(estimate: int | None):
    script = Script(limit=1, unknown_bytes=2 * GiB)
    script.register("a", size=0.1, memory_bytes=None, estimate_bytes=estimate)
    script.use("a")
    update(script, "a", 2, memory_bytes=None, estimate_bytes=estimate)
    warming = script.warm("a", 2)
    script.settle()
    assert warming in script.warmed


def test_what_a_pinned_model_has_reserved_on_a_guess_refuses_nobody():
    script = Script(limit=1)
    script.register("a", size=0.1, memory_bytes=None, estimate_bytes=9 * GiB, pinned=True)
    script.register("b", size=0.1, memory_bytes=None)
    script.ask("a")  # all of the pool, until it is open and measured
    warming = script.ask("b", warm_slot=0)
    assert not script.refused
    script.settle()
    assert warming in script.warmed


def test_a_version_of_which_nothing_is_known_is_taken_to_be_as_large_as_the_one_before():
    script = Script(limit=1)
    script.register("a", size=0.1, memory_bytes=None)
    script.use("a")
    update(script, "a", 2, memory_bytes=None)
    script.warm("a", 2)
    script.settle()
    assert sorted(script.residents) == ["a", "a@2"]  # the old one did not have to leave
    assert [e.reserve_bytes for e in script.log if isinstance(e, Open)][1] == script.sizes["a"]


def test_what_an_unregistered_model_had_parked_is_deleted():
    script = Script()
    script.register("a")
    script.use("a", changed=True)
    script.do(script.scheduler.on_evict("a", script.now))
    script.settle()
    script.do(script.scheduler.on_unregister(["a"], script.now, "unregistered"))
    assert [e.state for e in script.log if isinstance(e, Discard)] == ["state of a[0]#1"]
    script.register("a")  # the name is free, and generations go on
    script.take("a")
    assert script.granted[max(script.granted)] == CopyId("a", 0, 2)


def test_changed_variables_of_an_unregistered_model_are_not_parked():
    script = Script()
    script.register("a")
    script.use("a", changed=True)
    script.do(script.scheduler.on_unregister(["a"], script.now, "unregistered"))
    assert not script.parking
    assert script.closing == [CopyId("a", 0, 1)]


def test_a_name_that_looks_like_a_version_is_refused():
    with pytest.raises(ValueError, match="must not end like a version: 'a@2'"):
        Model("a@2")
