"""What is opened where, and who leaves for it: scripts, and any order of events."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sojourn.cluster.planner import (
    Close,
    Lost,
    Model,
    Node,
    Open,
    Order,
    Park,
    Planner,
    Rules,
)

GiB = 2**30
EXAMPLES = int(os.environ.get("CLUSTER_EXAMPLES", "100"))


class Script:
    """A cluster that carries out every order at once, and a clock."""

    def __init__(self, *nodes: int, **rules: object) -> None:
        self.planner = Planner(Rules(**rules))  # type: ignore[arg-type]
        self.now = 0.0
        self.orders: list[Order] = []
        for index, budget in enumerate(nodes):
            self.does(self.planner.on_node(Node(f"n{index}", budget * GiB), self.now))

    def does(self, orders: tuple[Order, ...]) -> list[Order]:
        """Carry them out, and what follows from them."""
        begun = len(self.orders)
        queue = list(orders)
        while queue:
            order = queue.pop(0)
            self.orders.append(order)
            if isinstance(order, Open):
                size = self.planner.books.copies[order.copy].bytes
                queue += self.planner.on_opened(order.copy, size, self.now)
            elif isinstance(order, Park | Close):
                parked = isinstance(order, Park)
                queue += self.planner.on_closed(order.copy, self.now, parked=parked)
        return self.orders[begun:]

    def model(self, name: str, size: int, **options: object) -> list[Order]:
        return self.does(
            self.planner.on_model(Model(name, size * GiB, **options), self.now)  # type: ignore[arg-type]
        )

    def demand(self, name: str, after: float = 10.0) -> list[Order]:
        self.now += after
        return self.does(self.planner.on_demand(name, self.now))

    def where(self, name: str) -> set[str]:
        return {copy.node for copy in self.planner.books.entries[name].copies.values()}


def test_a_model_is_opened_when_it_is_asked_for_and_a_pinned_one_at_once() -> None:
    script = Script(4, 4)
    assert script.model("lazy", 1) == []
    assert len(script.model("pinned", 1, pinned=True)) == 1
    assert [type(order) for order in script.demand("lazy")] == [Open]
    assert script.demand("lazy") == []  # it is open


def test_copies_of_a_model_are_on_different_nodes() -> None:
    script = Script(8, 8, 8)
    script.model("m", 1, copies=3)
    script.demand("m")
    assert script.where("m") == {"n0", "n1", "n2"}


def test_more_copies_than_nodes_wait_for_a_node_that_joins() -> None:
    script = Script(8)
    script.model("m", 1, copies=2, pinned=True)
    assert script.where("m") == {"n0"}
    script.does(script.planner.on_node(Node("late", 8 * GiB), script.now))
    assert script.where("m") == {"n0", "late"}


def test_nothing_moves_because_a_node_is_new() -> None:
    script = Script(4)
    for name in ("a", "b", "c"):
        script.model(name, 1)
        script.demand(name)
    assert script.does(script.planner.on_node(Node("new", 4 * GiB), script.now)) == []


def test_a_model_that_is_idle_for_as_long_as_it_may_be_leaves() -> None:
    script = Script(4)
    script.model("brief", 1, keep_seconds=5.0)
    script.demand("brief")
    [copy] = script.planner.books.entries["brief"].copies.values()
    script.planner.on_holders(copy.id, 1, script.now)
    script.now += 60
    assert script.does(script.planner.expire(script.now)) == []  # it is leased
    script.planner.on_holders(copy.id, 0, script.now)
    script.now += 6
    assert [type(order) for order in script.does(script.planner.expire(script.now))] == [Close]
    assert script.where("brief") == set()
    assert [type(order) for order in script.demand("brief")] == [Open]


def test_a_model_can_be_pinned_and_let_go_again_while_it_is_open() -> None:
    script = Script(2)
    script.model("m", 2)
    script.demand("m")
    script.does(script.planner.on_rules("m", script.now, pinned=True, keep_seconds=None))
    script.model("other", 2)
    assert script.demand("other") == []  # nobody may leave
    script.does(script.planner.on_rules("m", script.now, pinned=False, keep_seconds=None))
    closed, opened = script.demand("other")
    assert (closed.copy.model, opened.copy.model) == ("m", "other")  # type: ignore[union-attr]
    assert script.planner.books.largest_pinned() == 0


def test_a_model_is_evicted_unless_it_is_leased() -> None:
    script = Script(4, 4)
    script.model("m", 1, copies=2)
    script.demand("m")
    leased, idle = script.planner.books.entries["m"].copies.values()
    script.planner.on_holders(leased.id, 1, script.now)
    [order] = script.does(script.planner.on_evict("m", script.now))[:1]
    assert order.copy == idle.id  # type: ignore[union-attr]


def test_the_model_that_was_idle_longest_leaves_wherever_it_is() -> None:
    script = Script(2, 2)
    for name in ("a", "b"):
        script.model(name, 2)
        script.demand(name)
    script.demand("a")
    script.model("c", 2)
    closed, opened = script.demand("c")
    assert isinstance(closed, Close)
    assert closed.copy.model == "b"
    assert isinstance(opened, Open)
    assert opened.node == closed.node


def test_a_model_that_is_dear_to_bring_back_may_be_idle_for_longer() -> None:
    script = Script(2)
    script.model("dear", 1, cost_seconds=60)
    script.model("cheap", 1, cost_seconds=0.1)
    script.demand("dear")
    script.demand("cheap")
    script.model("c", 1)
    assert script.demand("c")[0].copy.model == "cheap"  # type: ignore[union-attr]


def test_what_was_changed_is_parked_and_comes_back_with_its_state() -> None:
    script = Script(2, has_shared_storage=True)
    script.model("training", 2)
    [opened] = script.demand("training")
    assert isinstance(opened, Open)
    script.planner.on_changed(opened.copy)
    script.model("other", 2)
    assert isinstance(script.demand("other")[0], Park)
    script.does(script.planner.on_node(Node("second", 2 * GiB), script.now))
    [back] = script.demand("training")
    assert (back.node, back.restores) == ("second", True)  # type: ignore[union-attr]


def test_without_shared_storage_it_comes_back_to_its_own_node() -> None:
    script = Script(2)
    script.model("training", 2)
    [opened] = script.demand("training")
    script.planner.on_changed(opened.copy)  # type: ignore[union-attr]
    script.model("other", 2)
    script.demand("other")
    script.does(script.planner.on_node(Node("second", 2 * GiB), script.now))
    *_, back = script.demand("training")
    assert (back.node, back.restores) == ("n0", True)  # type: ignore[union-attr]


def test_state_that_was_on_a_lost_node_only_is_said_to_be_lost() -> None:
    script = Script(2)
    script.model("training", 2)
    [opened] = script.demand("training")
    script.planner.on_changed(opened.copy)  # type: ignore[union-attr]
    script.model("other", 2)
    script.demand("other")
    orders = script.does(script.planner.on_node_lost("n0", script.now))
    assert [type(order) for order in orders] == [Lost]
    assert orders[0].copy.model == "training"  # type: ignore[union-attr]


def test_pinned_models_come_back_after_a_lost_node_at_the_expense_of_others() -> None:
    script = Script(4, 4)
    script.model("pinned", 3, pinned=True)
    [lost] = script.where("pinned")
    script.model("idle", 2)
    script.demand("idle")
    [kept] = script.where("idle")
    assert kept != lost
    orders = script.does(script.planner.on_node_lost(lost, script.now))
    assert [type(order) for order in orders] == [Close, Open]
    assert script.where("pinned") == {kept}


def test_what_nobody_asks_for_comes_back_only_where_there_is_room() -> None:
    script = Script(4, 4)
    for name in ("a", "b"):
        script.model(name, 3)
        script.demand(name)
    [node] = script.where("a")
    assert script.does(script.planner.on_node_lost(node, script.now)) == []
    script.does(script.planner.on_node(Node("new", 4 * GiB), script.now))
    assert script.where("a") == {"new"}


def test_the_last_hole_for_the_largest_pinned_model_is_left_alone() -> None:
    script = Script(8, 8)
    script.model("big", 6, pinned=True)  # leaves 2 GiB beside it, and 8 on the other node
    [node] = script.where("big")
    for name in ("a", "b"):
        script.model(name, 1)
        script.demand(name)
    script.model("c", 2)
    script.demand("c")
    other = {"n0": "n1", "n1": "n0"}[node]
    free = script.planner.books.places[other].free_bytes
    assert free >= 6 * GiB
    script.does(script.planner.on_node_lost(node, script.now))
    assert script.where("big") == {other}


def test_a_newcomer_is_not_evicted_for_another_that_is_not_pinned() -> None:
    script = Script(2)
    script.model("a", 2)
    script.model("b", 2)
    script.demand("a")
    assert script.demand("b", after=1.0) == []  # it waits
    script.now += 5
    assert [type(o) for o in script.does(script.planner.plan(script.now))] == [Close, Open]


def test_a_leased_copy_is_not_evicted() -> None:
    script = Script(2)
    script.model("a", 2)
    script.model("b", 2)
    [opened] = script.demand("a")
    script.planner.on_holders(opened.copy, 1, script.now)  # type: ignore[union-attr]
    assert script.demand("b") == []
    script.planner.on_holders(opened.copy, 0, script.now)  # type: ignore[union-attr]
    script.now += 10
    assert [type(o) for o in script.does(script.planner.plan(script.now))] == [Close, Open]


def test_a_copy_that_has_grown_makes_others_leave() -> None:
    script = Script(4)
    script.model("a", 1)
    script.model("b", 2)
    [a] = script.demand("a")
    script.demand("b")
    script.demand("a")
    orders = script.does(script.planner.on_measured(a.copy, 3 * GiB, script.now))  # type: ignore[union-attr]
    assert [(type(o), o.copy.model) for o in orders] == [(Close, "b")]  # type: ignore[union-attr]


def test_a_copy_that_could_not_leave_is_charged_again_and_its_room_is_not_given_away() -> None:
    script = Script(4)
    for name in ("a", "b"):
        script.model(name, 3)
    [a] = script.demand("a")
    script.now += 10
    close, b = script.planner.on_demand("b", script.now)
    assert (close.copy, script.planner.has_room(b.copy)) == (a.copy, True)  # type: ignore[union-attr]
    assert script.planner.on_stayed(a.copy, script.now, is_leased=True)  # type: ignore[union-attr]
    assert not script.planner.has_room(b.copy)  # type: ignore[union-attr]
    assert script.does(script.planner.on_failed(b.copy, script.now)) == []  # type: ignore[union-attr]
    assert script.demand("b") == []  # it is leased
    script.planner.on_holders(a.copy, 0, script.now)  # type: ignore[union-attr]
    script.now += 10
    assert [type(order) for order in script.demand("b")] == [Close, Open]


def test_a_copy_whose_state_could_not_be_kept_is_asked_again_later_and_others_leave_first() -> None:
    script = Script(4)
    for name in ("a", "b", "c"):
        script.model(name, 2)
    [a], _ = script.demand("a"), script.demand("b")
    script.now += 10
    close, c = script.planner.on_demand("c", script.now)
    assert close.copy == a.copy  # type: ignore[union-attr]
    assert script.planner.on_stayed(a.copy, script.now, is_leased=False)  # type: ignore[union-attr]
    assert script.planner.on_evict("a", script.now) == ()
    script.planner.on_failed(c.copy, script.now)  # type: ignore[union-attr]
    orders = script.demand("c")
    assert [(type(o), o.copy.model) for o in orders] == [(Close, "b"), (Open, "c")]  # type: ignore[union-attr]
    script.now += script.planner.rules.stay_seconds
    assert [type(order) for order in script.planner.on_evict("a", script.now)] == [Close]


def test_a_model_that_need_not_stay_any_more_leaves_a_node_that_is_too_full() -> None:
    script = Script(4)
    [opened] = script.model("m", 1, pinned=True)
    assert script.does(script.planner.on_measured(opened.copy, 5 * GiB, script.now)) == []  # type: ignore[union-attr]
    rules = {"pinned": False, "keep_seconds": None}
    orders = script.does(script.planner.on_rules("m", script.now, **rules))  # type: ignore[arg-type]
    assert [type(order) for order in orders] == [Close]


def test_a_model_that_is_open_nowhere_says_what_it_lacks() -> None:
    script = Script(4, 2)
    script.model("pinned", 2, pinned=True)
    script.model("large", 3)
    script.model("small", 2)
    script.model("huge", 5)
    script.model("drawing", 1, device="gpu")
    for name in ("large", "small", "huge", "drawing"):
        script.demand(name)

    def lack(name: str) -> str:
        error = script.planner.lack(name)
        return f"{type(error).__name__}: {error}"

    script.model("other", 2)
    script.demand("other")
    for name in ("small", "other"):
        assert script.planner.lack(name) is None
        for copy in script.planner.books.entries[name].copies.values():
            script.planner.on_holders(copy.id, 1, script.now)
    script.model("waiting", 2)
    script.demand("waiting", after=0.1)
    assert lack("waiting").startswith("PoolTimeout: 'waiting' needs 2.0 GiB; at most 0 B ")
    pinned = "the roomiest node has 4.0 GiB, of which 2.0 GiB are pinned"
    assert lack("large") == f"BudgetExceeded: 'large' needs 3.0 GiB; {pinned}"
    assert lack("huge").startswith("BudgetExceeded: 'huge' needs 5.0 GiB; ")
    assert lack("drawing") == "DeviceError: 'drawing' needs a gpu, and no node has one for it"


def test_a_model_that_needs_a_gpu_is_opened_where_there_is_one() -> None:
    script = Script(8)
    script.model("m", 1, device="gpu", pinned=True)
    assert script.where("m") == set()
    gpu = Node("gpu", 4 * GiB, frozenset({"cpu", "gpu"}))
    script.does(script.planner.on_node(gpu, script.now))
    assert script.where("m") == {"gpu"}


NAMES = st.sampled_from([f"m{index}" for index in range(8)])
NODES = st.sampled_from([f"n{index}" for index in range(5)])


class AnyOrder(RuleBasedStateMachine):
    """Events in any order; orders are carried out late, in any order, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.planner = Planner(Rules(has_shared_storage=True))
        self.now = 0.0
        self.pending: list[Order] = []
        self.pinned: dict[str, Model] = {}
        self.crowded: set[str] = set()  # nodes where somebody stayed, until that is looked at
        self.copies: dict[object, str] = {}  # what a much simpler book says is charged, and where

    def take(self, orders: tuple[Order, ...], wanted_back: str = "") -> None:
        for order in orders:
            if isinstance(order, Lost):
                continue
            self.pending.append(order)
            node = order.node
            assert node in self.planner.books.places, f"{order} is for a node that is gone"
            if isinstance(order, Park | Close):
                model = self.planner.books.entries[order.copy.model]
                may_leave = model.is_gone or order.copy.model == wanted_back
                assert may_leave or not model.model.pinned, f"{order}: pinned"
                assert self.copies[order.copy] == node
            else:
                assert order.copy not in self.copies
                self.copies[order.copy] = node

    @rule(seconds=st.floats(0, 5))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.planner.plan(self.now))

    @rule(name=NODES, size=st.integers(2, 8), gpu=st.booleans())
    def a_node_joins(self, name: str, size: int, gpu: bool) -> None:
        if name not in self.planner.books.places:
            devices = frozenset({"cpu", "gpu"} if gpu else {"cpu"})
            self.take(self.planner.on_node(Node(name, size * GiB, devices), self.now))

    @rule(name=NODES)
    def a_node_is_lost(self, name: str) -> None:
        if name in self.planner.books.places:
            self.pending = [o for o in self.pending if o.node != name]
            self.copies = {copy: node for copy, node in self.copies.items() if node != name}
            self.take(self.planner.on_node_lost(name, self.now))

    @rule(
        name=NAMES,
        size=st.integers(0, 4),
        copies=st.integers(1, 3),
        pinned=st.booleans(),
        device=st.sampled_from(["cpu", "cpu", "gpu"]),
        keep=st.sampled_from([None, 0.0, 5.0]),
    )
    def a_model_is_registered(
        self, name: str, size: int, copies: int, pinned: bool, device: str, keep: float | None
    ) -> None:
        if name not in self.planner.books.entries:
            model = Model(name, size * GiB, copies, pinned, device, keep_seconds=keep)
            self.take(self.planner.on_model(model, self.now))

    @rule(name=NAMES)
    def a_model_is_unregistered(self, name: str) -> None:
        entry = self.planner.books.entries.get(name)
        if entry is not None and not entry.is_gone:
            self.take(self.planner.on_model_gone(name, self.now))

    @rule(name=NAMES)
    def a_model_is_asked_for(self, name: str) -> None:
        entry = self.planner.books.entries.get(name)
        if entry is not None and not entry.is_gone:
            self.take(self.planner.on_demand(name, self.now))

    @rule(name=NAMES, pinned=st.booleans(), keep=st.sampled_from([None, 0.0, 5.0]))
    def a_model_gets_other_rules(self, name: str, pinned: bool, keep: float | None) -> None:
        entry = self.planner.books.entries.get(name)
        if entry is not None and not entry.is_gone:
            now = self.now
            self.take(self.planner.on_rules(name, now, pinned=pinned, keep_seconds=keep))

    @rule(name=NAMES)
    def a_model_is_evicted(self, name: str) -> None:
        entry = self.planner.books.entries.get(name)
        if entry is not None and not entry.is_gone:
            self.take(self.planner.on_evict(name, self.now), wanted_back=name)

    @rule()
    def time_is_up_for_some(self) -> None:
        self.take(self.planner.expire(self.now))
        self.crowded.clear()

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), fails=st.booleans(), grown=st.integers(0, 2 * GiB))
    def an_order_is_carried_out(self, data: st.DataObject, fails: bool, grown: int) -> None:
        order = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        planner = self.planner
        if isinstance(order, Open):
            copy = planner.books.copies.get(order.copy)
            if copy is None:
                return
            if fails or not planner.has_room(order.copy):
                self.copies.pop(order.copy, None)
                self.pending = [o for o in self.pending if getattr(o, "copy", None) != order.copy]
                self.take(planner.on_failed(order.copy, self.now))
            else:
                self.take(planner.on_opened(order.copy, copy.bytes + grown, self.now))
        elif fails and planner.on_stayed(order.copy, self.now, is_leased=bool(grown % 2)):
            self.crowded.add(order.node)
        elif isinstance(order, Park | Close):
            self.copies.pop(order.copy, None)
            self.pending = [o for o in self.pending if getattr(o, "copy", None) != order.copy]
            parked = isinstance(order, Park)
            self.take(planner.on_closed(order.copy, self.now, parked=parked))

    @precondition(lambda self: self.copies)
    @rule(data=st.data(), holders=st.integers(0, 2), changes=st.booleans())
    def a_copy_is_used(self, data: st.DataObject, holders: int, changes: bool) -> None:
        copy = data.draw(st.sampled_from(sorted(self.copies, key=str)))
        self.planner.on_holders(copy, holders, self.now)  # type: ignore[arg-type]
        if changes:
            self.planner.on_changed(copy)  # type: ignore[arg-type]

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def a_worker_dies(self, data: st.DataObject) -> None:
        copy = data.draw(st.sampled_from(sorted(self.copies, key=str)))
        del self.copies[copy]
        self.pending = [o for o in self.pending if getattr(o, "copy", None) != copy]
        self.take(self.planner.on_closed(copy, self.now))  # type: ignore[arg-type]

    @invariant()
    def the_books_are_right(self) -> None:
        books = self.planner.books
        assert {copy.id: copy.node for copy in books.copies.values()} == self.copies
        for name, place in books.places.items():
            staying = [copy for copy in place.copies.values() if not copy.is_leaving]
            assert place.staying_bytes == sum(copy.bytes for copy in staying)
            assert place.pinned_bytes == sum(c.bytes for c in staying if c.model.pinned)
            models = [copy.model.name for copy in place.copies.values()]
            assert len(models) == len(set(models)), f"two copies of a model on {name}"
            if place.free_bytes < 0 and name not in self.crowded:  # what has grown cannot leave
                since_looked = [c for c in place.copies.values() if c.stays_until]
                assert since_looked or not books.candidates_on(place, self.now)
        listed = sorted((p.free_bytes, n) for n, p in books.places.items())
        assert books._by_room == listed
        for entry in books.entries.values():
            assert entry.copies or not entry.is_gone

    @invariant()
    def no_more_copies_than_wanted(self) -> None:
        for entry in self.planner.books.entries.values():
            staying = [copy for copy in entry.copies.values() if not copy.is_leaving]
            assert len(staying) <= entry.model.copies

    @invariant()
    def a_pinned_model_waits_only_if_it_fits_nowhere(self) -> None:
        planner = self.planner
        if planner.has_due:
            return
        for name, entry in planner.books.entries.items():
            if entry.model.pinned and entry.is_short and name not in planner._later:
                slots = set(range(entry.model.copies)) - entry.copies.keys()
                assert not slots, f"{name} is short of copies, and nothing is planned"


AnyOrder.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
test_any_order_of_events = AnyOrder.TestCase
