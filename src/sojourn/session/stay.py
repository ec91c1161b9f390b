"""The record of one stay: the object that the handles (a session, a lease) act on.

The record outlives its handles, so that a forgotten session can still be closed, and a closed
session can still say where it was closed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sojourn.errors import SessionBroken, SessionClosed
from sojourn.process.calls import NoAnswer, WorkerDied
from sojourn.process.deadlines import deadline_after, left_until
from sojourn.session.backend import Backend
from sojourn.session.beginning import Beginning
from sojourn.session.ending import Ending, open_stays
from sojourn.session.keeping import Keeping
from sojourn.session.lifecycle import Lifecycle
from sojourn.session.planning import Planning, as_key
from sojourn.session.plans import Fetches, StepPlan
from sojourn.session.states import USABLE, Input, State
from sojourn.session.steps import Step
from sojourn.session.words import Words
from sojourn.values import Footprint, Place, Receipt, Signature, arguments, caller

if TYPE_CHECKING:
    from sojourn.session.lease import Terms

T = TypeVar("T")
# Seconds between two checks of an awaited close whether the steps have finished.
_LOOK_SECONDS = 0.002
_NOT_OPENING = frozenset(State) - {State.OPENING}
_COMES_BACK = USABLE | {State.BROKEN, State.OPENING}
_HAS_A_WORKER = _NOT_OPENING - {State.DRAINING, State.CLOSED}


class Stay:
    """One model on one device, from open to close."""

    def __init__(
        self,
        name: str,
        isolation: str,
        device: str,
        owner: Place,
        words: Callable[[Stay], Words] = Words,
        model: str = "session",
    ) -> None:
        """`model` is the name under which steps are counted, the same for all sessions of a
        model."""
        self.name = name
        self.isolation = isolation
        self.device = device
        self.owner = owner
        self.words = words(self)
        self.signature = Signature()
        self.receipt: Receipt | None = None
        self.closed_at: Place | None = None
        self.lifecycle = Lifecycle(name, model, owner, self.refusal, self.footprint)
        self.backend: Backend | None = None
        self.pid = 0
        self.maker = os.getpid()
        self.planning = Planning(self)
        self.how_it_died: str | None = None
        self.last_held = Footprint(0)
        self.beginning = Beginning(self)
        self.keeping = Keeping(self)
        self.ending = Ending(self)
        self.leases: set[Terms] = set()  # of all current leases
        self.changed = False  # whether variables may differ from those of a new session
        # Replaces a worker that died; takes the deadline of the step that waits for it.
        self.comeback: Callable[[float | None], None] | None = None
        self._coming_back: dict[Any, Any] = {}  # event loop -> future of the replacement under way
        open_stays.add(self)

    # -- steps ---------------------------------------------------------------------------------

    def run(self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None) -> Any:
        """Run one step."""
        if feeds is None:
            feeds = {}
        deadline = None if timeout is None else deadline_after(arguments.timeout(timeout))
        wanted = fetches if type(fetches) is str else as_key(fetches)
        while True:
            with Step(self, deadline, timeout) as step:
                try:
                    plan = self.planning.known[wanted, tuple(feeds)]
                except (KeyError, TypeError):  # a new step, or unhashable fetches
                    plan = self.planning.make(wanted, feeds, deadline)
                return plan.results(step.run(plan, plan.arrays(feeds)))
            # `Step` suppressed the error: the step never began, and the next worker may run it.

    async def arun(
        self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None
    ) -> Any:
        """Like `run`, awaited, without blocking the event loop."""

        if feeds is None:
            feeds = {}
        deadline = None if timeout is None else deadline_after(arguments.timeout(timeout))
        wanted = fetches if type(fetches) is str else as_key(fetches)
        task = _this_task()
        while True:
            step = Step(self, deadline, timeout, task=task)
            if not step.begins_at_once():
                await step.turn()
            with step:
                try:
                    plan = self.planning.known[wanted, tuple(feeds)]
                except (KeyError, TypeError):
                    plan = await self.planning.amake(wanted, feeds, deadline)
                return plan.results(await step.arun(plan, plan.arrays(feeds)))

    async def acan_repeat(self, fetches: Fetches, feeds: Iterable[str]) -> bool:
        """Whether this step certainly has no effect but its results. It is planned, not run."""

        wanted, names = as_key(fetches), dict.fromkeys(feeds)
        with await Step(self, counts=False, what="plan", task=_this_task()).turn():
            plan = await self.planning.amake(wanted, names, None)
        # The effects of a function or a queue are unknown; LiteRT models may keep state.
        has_effects = plan.changes_state or plan.step.may_wait or plan.step.prints
        return not has_effects and "litert" not in self.engine

    def step(self, plan: StepPlan, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        """Run one step of a plan that the caller has made, with arrays that need no checks."""
        with Step(self) as step:
            outputs = step.run(plan, arrays)
        return outputs

    def call(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: Any = Any,
        timeout: float | None = None,
        counts: bool = True,
    ) -> tuple[Any, Sequence[np.ndarray]]:
        """Have the engine carry out an operation, as a step beside which others may run."""
        deadline = deadline_after(timeout)
        with Step(self, deadline, timeout, what=name, counts=counts) as step:
            answer = self.operate(name, arguments, arrays, result, step.deadline)
        return answer

    async def acall(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: Any = Any,
        timeout: float | None = None,
    ) -> tuple[Any, Sequence[np.ndarray]]:
        """Like `call`, awaited."""

        deadline = deadline_after(timeout)
        with await Step(self, deadline, timeout, name, task=_this_task()).turn():
            assert self.backend is not None
            answer = await self.backend.acall(
                name, arguments, arrays, result=result, deadline=deadline
            )
        return answer

    def taking_part(self, what: str) -> Step:
        """Return a block during which the session is not ended, for work on the backend itself."""
        return Step(self, what=what, counts=False)

    def do_alone(self, work: Callable[[], T], consequence: str) -> T:
        """Call `work`, which uses the engine, while no step is under way."""
        step = Step(self, what=consequence, counts=False)
        while True:
            if self.comeback is not None:
                self.notice_death()  # the worker may have died while idle: it is replaced first
            try:
                self.lifecycle.begin_alone(step)
                break
            except (SessionBroken, SessionClosed):
                if not self.can_come_back:
                    raise
                self.come_back(None)
        try:
            return work()
        except WorkerDied as death:
            raise self.broken_by(death, consequence, step) from None
        finally:
            self.lifecycle.end_alone(step)

    @property
    def can_come_back(self) -> bool:
        """Whether a refused caller may try again: the worker that died can be replaced, or has just
        been replaced by another thread."""
        return self.comeback is not None and self.lifecycle.state in _COMES_BACK

    def come_back(self, deadline: float | None) -> None:
        """Replace the worker, which has died."""
        comeback = self.comeback
        try:
            if comeback is not None:  # else closed meanwhile: the caller's retry raises
                comeback(deadline)
        except NoAnswer:
            raise self.words.not_replaced() from None

    async def acome_back(self, deadline: float | None) -> None:
        """Like `come_back`, awaited: one step of an event loop has it done, the others wait."""
        import asyncio

        from sojourn.process.aside import aside

        loop = asyncio.get_running_loop()
        under_way = self._coming_back.get(loop)
        if under_way is not None:
            left = None if deadline is None else left_until(deadline)
            if not (await asyncio.wait([under_way], timeout=left))[0]:
                raise self.words.not_replaced()
            return
        done = self._coming_back[loop] = loop.create_future()
        try:
            await aside(lambda: self.come_back(deadline))
        finally:
            del self._coming_back[loop]
            done.set_result(None)

    def operate(
        self, name: str, arguments: Any, arrays: Any, result: Any, deadline: float | None
    ) -> tuple[Any, Sequence[np.ndarray]]:
        """Have the engine carry out an operation; the caller's step has already begun."""
        assert self.backend is not None
        return self.backend.call(name, arguments, arrays, result=result, deadline=deadline)

    # -- ending --------------------------------------------------------------------------------

    def close(self, timeout: float | None = None, place: Place | None = None) -> Receipt:
        """Refuse new steps, let running ones finish, end the worker, return the receipt."""
        return self.ending.close(timeout, place or caller())

    async def aclose(self, timeout: float | None, place: Place) -> Receipt:
        """Like `close`, awaited: steps under way finish while the event loop runs."""
        import asyncio

        from sojourn.process.aside import aside

        deadline = deadline_after(timeout)
        self.ending.refuse_steps(place)
        task = _this_task()
        try:
            while self.lifecycle.has_steps_beside(task) and left_until(deadline) > 0:
                await asyncio.sleep(_LOOK_SECONDS)
        except BaseException:
            self.ending.dropped()  # cancelled: it ends at once, as after a Ctrl-C in `close`
            raise
        left = None if deadline is None else left_until(deadline)
        return await aside(lambda: self.ending.close(left, place))

    def hurry(self) -> None:
        """Kill the worker now, whatever it does."""
        if self.backend is not None:
            self.backend.kill()

    # -- questions -----------------------------------------------------------------------------

    @property
    def engine(self) -> str:
        """The engine that computes, and why it was chosen."""
        return self.lifecycle.engine

    @engine.setter
    def engine(self, words: str) -> None:
        self.lifecycle.engine = words

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that opened the session."""
        return os.getpid() != self.maker

    def notice_death(self) -> str | None:
        """Return how the worker died by itself, if it did; the next use of the session raises
        that."""
        backend = self.backend
        if backend is None or self.lifecycle.state in (State.DRAINING, State.CLOSED):
            return None
        death = backend.death()
        if death is not None:
            self.broken_by(death, "it was idle")
        return self.how_it_died

    def require_usable(self) -> None:
        """Raise the error that a step would raise, unless the session is usable."""
        if self.is_foreign or self.lifecycle.state not in USABLE:
            raise self.refusal(self.lifecycle.state)

    def footprint(self) -> Footprint:
        """The memory that the session holds now; zero once it is closed."""
        if self.receipt is not None or self.backend is None or self.is_foreign:
            return Footprint(0)
        held = self.backend.footprint()
        if held.host_bytes:
            self.last_held = held
        return held

    # -- errors --------------------------------------------------------------------------------

    def broken_by(self, death: WorkerDied, consequence: str, step: Step | None = None) -> Exception:
        """Record that the worker has died, unless the step belongs to a worker that has been
        replaced; returns the error to raise."""
        if self.is_foreign:
            return self.refusal(self.lifecycle.state)

        def note() -> None:
            # Set before the event is sent: callers that are refused from now on report it.
            if self.lifecycle.state in _HAS_A_WORKER:
                self.how_it_died = death.describe()
                self.lifecycle.how_it_died = death.how

        # While a worker is being replaced, the death of the previous one is no news.
        before = self.lifecycle.state
        if step is None or not step.is_left_behind:
            before = self.lifecycle.happened_in(_NOT_OPENING, Input.DIED, None, note)
        if before in (State.DRAINING, State.CLOSED):
            return self.words.cut_off(consequence)
        return self.words.broken(death, consequence)

    def broke_protocol(self, how: str) -> WorkerDied:
        """Kill the worker, which sent something invalid; returns the error to raise."""
        self.hurry()
        return WorkerDied(f"broke the protocol ({how}) and was ended", "")

    def refusal(self, state: State) -> Exception:
        """Return the error for a use of the session in this state."""
        return self.words.refused(state)


def _this_task() -> weakref.ref[Any]:
    """A weak reference to the current task: a failed task has frames that refer to its step, so a
    strong reference would be a cycle and keep the task alive."""
    import asyncio

    return weakref.ref(asyncio.current_task())
