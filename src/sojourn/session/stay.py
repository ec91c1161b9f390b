"""The record of one stay: what the handles (a session, a lease) act on.

The record outlives its handles, so that a forgotten session can still be closed and a closed one
can still say who closed it.
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
# How often a close that is awaited looks whether the steps have finished.
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
        """`model` is what its steps are counted under: one name for all sessions of a model."""
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
        self.leases: set[Terms] = set()  # who has borrowed it
        self.changed = False  # whether variables may differ from what its keeper last knew
        # Replaces a worker that died, by the deadline of who waits for it.
        self.comeback: Callable[[float | None], None] | None = None
        self._coming_back: dict[Any, Any] = {}  # by the event loop that waits for it
        open_stays.add(self)

    # -- steps ---------------------------------------------------------------------------------

    def run(self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None) -> Any:
        """One step."""
        if feeds is None:
            feeds = {}
        deadline = None if timeout is None else deadline_after(arguments.timeout(timeout))
        wanted = fetches if type(fetches) is str else as_key(fetches)
        while True:
            with Step(self, deadline, timeout) as step:
                try:
                    plan = self.planning.known[wanted, tuple(feeds)]
                except (KeyError, TypeError):  # a new one, or no names at all
                    plan = self.planning.make(wanted, feeds, deadline)
                return plan.results(step.run(plan, plan.arrays(feeds)))
            # It never began, and the next worker may run it.

    async def arun(
        self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None
    ) -> Any:
        """The same, awaited: nothing here blocks the event loop."""

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
        """Whether this step is sure to have no effect but its results. It is planned, not run."""

        wanted, names = as_key(fetches), dict.fromkeys(feeds)
        with await Step(self, counts=False, what="plan", task=_this_task()).turn():
            plan = await self.planning.amake(wanted, names, None)
        # What a function or a queue does is unknown; LiteRT may remember what it has seen.
        has_effects = plan.changes_state or plan.step.may_wait or plan.step.prints
        return not has_effects and "litert" not in self.engine

    def step(self, plan: StepPlan, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        """One step of a plan that the caller has made, with arrays that need no checks."""
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
        """Have the engine carry out an operation, as a step that others may accompany."""
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
        """The same, awaited."""

        deadline = deadline_after(timeout)
        with await Step(self, deadline, timeout, name, task=_this_task()).turn():
            assert self.backend is not None
            answer = await self.backend.acall(
                name, arguments, arrays, result=result, deadline=deadline
            )
        return answer

    def taking_part(self, what: str) -> Step:
        """A block in which the session cannot be ended, for work on the backend itself."""
        return Step(self, what=what, counts=False)

    def do_alone(self, work: Callable[[], T], consequence: str) -> T:
        """Do something with the engine while no step is under way."""
        step = Step(self, what=consequence, counts=False)
        while True:
            if self.comeback is not None:
                self.notice_death()  # while it was idle: another takes its place first
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
        """Whether who was refused may ask again: another worker takes the place of one that has
        died, or has done so just now."""
        return self.comeback is not None and self.lifecycle.state in _COMES_BACK

    def come_back(self, deadline: float | None) -> None:
        """Have the worker, which has died, replaced by another."""
        comeback = self.comeback
        try:
            if comeback is not None:  # or it was closed meanwhile, as the caller will see
                comeback(deadline)
        except NoAnswer:
            raise self.words.not_replaced() from None

    async def acome_back(self, deadline: float | None) -> None:
        """The same, awaited: one of a loop's steps has it done, the others wait for that one."""
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
        """Have the engine carry out an operation; the caller takes part already."""
        assert self.backend is not None
        return self.backend.call(name, arguments, arrays, result=result, deadline=deadline)

    # -- ending --------------------------------------------------------------------------------

    def close(self, timeout: float | None = None, place: Place | None = None) -> Receipt:
        """Refuse new steps, let running ones finish, end the worker, hand over the receipt."""
        return self.ending.close(timeout, place or caller())

    async def aclose(self, timeout: float | None, place: Place) -> Receipt:
        """The same, awaited: what is under way finishes while the event loop goes on."""
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
        """End the worker now, whatever it does."""
        if self.backend is not None:
            self.backend.kill()

    # -- questions -----------------------------------------------------------------------------

    @property
    def engine(self) -> str:
        """What computes, and why it does."""
        return self.lifecycle.engine

    @engine.setter
    def engine(self, words: str) -> None:
        self.lifecycle.engine = words

    @property
    def is_foreign(self) -> bool:
        """Whether this is a fork of the process that opened it."""
        return os.getpid() != self.maker

    def notice_death(self) -> str | None:
        """How the worker died, if it has by itself; the next use of the session raises it."""
        backend = self.backend
        if backend is None or self.lifecycle.state in (State.DRAINING, State.CLOSED):
            return None
        death = backend.death()
        if death is not None:
            self.broken_by(death, "it was idle")
        return self.how_it_died

    def require_usable(self) -> None:
        """Raise what a step would raise if it is not open."""
        if self.is_foreign or self.lifecycle.state not in USABLE:
            raise self.refusal(self.lifecycle.state)

    def footprint(self) -> Footprint:
        """What it holds now; zero once closed."""
        if self.receipt is not None or self.backend is None or self.is_foreign:
            return Footprint(0)
        held = self.backend.footprint()
        if held.host_bytes:
            self.last_held = held
        return held

    # -- errors --------------------------------------------------------------------------------

    def broken_by(self, death: WorkerDied, consequence: str, step: Step | None = None) -> Exception:
        """Record that the worker has died, unless the step was of one that has been replaced;
        returns what to raise."""
        if self.is_foreign:
            return self.refusal(self.lifecycle.state)

        def note() -> None:
            # Before the event: those who are refused from now on want to know.
            if self.lifecycle.state in _HAS_A_WORKER:
                self.how_it_died = death.describe()
                self.lifecycle.how_it_died = death.how

        # While a worker is being replaced, those who saw the last one die tell nothing new.
        before = self.lifecycle.state
        if step is None or not step.is_left_behind:
            before = self.lifecycle.happened_in(_NOT_OPENING, Input.DIED, None, note)
        if before in (State.DRAINING, State.CLOSED):
            return self.words.cut_off(consequence)
        return self.words.broken(death, consequence)

    def broke_protocol(self, how: str) -> WorkerDied:
        """The worker sent something invalid: it is ended."""
        self.hurry()
        return WorkerDied(f"broke the protocol ({how}) and was ended", "")

    def refusal(self, state: State) -> Exception:
        """What to raise if it is used in this state."""
        return self.words.refused(state)


def _this_task() -> weakref.ref[Any]:
    """Not the task itself: one that failed has frames that know its step, and would stay."""
    import asyncio

    return weakref.ref(asyncio.current_task())
