"""One step's way through a session: begin, send, wait, take, account.

Every step goes this way, awaited or not, of a session, a lease or the drop-in, and so does every
operation of the engine that may run beside others. The object is also the token by which the
session knows which callers are inside.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sojourn.errors import SessionBroken, SessionClosed
from sojourn.process.calls import NoAnswer, WorkerDied
from sojourn.process.deadlines import left_until

if TYPE_CHECKING:
    from sojourn.session.plans import StepPlan
    from sojourn.session.stay import Stay

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# How often an awaiting step checks whether the holders of exclusive use have finished.
_LOOK_SECONDS = 0.005
_UNDER_WAY = "a step was under way: its outcome is unknown"
_NOT_BEGUN = "a step was being prepared and has not begun"


class Step:
    """A context manager: until the block ends, the caller takes part in a session."""

    __slots__ = (
        "_is_sent", "_stay", "_timeout", "_what",
        "counts", "deadline", "is_left_behind", "started", "task", "thread",
    )  # fmt: skip

    def __init__(
        self,
        stay: Stay,
        deadline: float | None = None,
        timeout: float | None = None,
        what: str | None = None,
        counts: bool = True,
        task: weakref.ref[Any] | None = None,
    ) -> None:
        """`what` is the operation, None for a step; `task` is the task that awaits it, None if the
        thread itself waits."""
        self._stay = stay
        self.deadline = deadline
        self._timeout = timeout
        self._what = what
        self.counts = counts
        self.task = task
        self._is_sent = False
        self.is_left_behind = False  # set when the worker that it was prepared for is replaced
        self.thread = get_ident()
        self.started = 0.0

    # -- begin -----------------------------------------------------------------------------------

    def __enter__(self) -> Step:
        if self.started:
            return self  # its turn came earlier: it has begun
        stay = self._stay
        if stay.comeback is not None:
            stay.notice_death()  # the worker may have died while idle: it is replaced first
        while True:
            try:
                stay.lifecycle.begin_step(self)
                return self
            except TimeoutError:
                raise stay.words.excluded() from None
            except (SessionBroken, SessionClosed):
                if not stay.can_come_back:
                    raise
                stay.come_back(self.deadline)

    def begins_at_once(self) -> bool:
        """Begin an awaited step, unless it has to wait for its turn; return whether it began."""
        return self._stay.comeback is None and self._stay.lifecycle.begin_step(self)

    async def turn(self) -> Step:
        """Begin without blocking; await it before `with`. Waits until exclusive users of the
        session have finished, and a worker that died has been replaced."""
        import asyncio

        stay = self._stay
        while True:
            if stay.comeback is not None:
                stay.notice_death()
            try:
                if stay.lifecycle.begin_step(self):
                    return self
            except (SessionBroken, SessionClosed):
                if not stay.can_come_back:
                    raise
                await stay.acome_back(self.deadline)
                continue
            if left_until(self.deadline) <= 0:
                raise stay.words.excluded()
            await asyncio.sleep(_LOOK_SECONDS)

    def is_there(self, frame: FrameType | None) -> bool:
        """Whether the step is still to be finished, if its thread is at this frame. A thread that
        is in no function of this package is in no step; a task that is done is in none either."""
        if self.task is not None:
            task = self.task()
            return not (task is None or task.done() or task.get_loop().is_closed())
        while frame is not None and not frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        return frame is not None

    @property
    def is_awaited(self) -> bool:
        """Whether a task of an event loop finishes it, rather than the thread that began it."""
        return self.task is not None

    # -- send, wait, take --------------------------------------------------------------------------

    def run(self, plan: StepPlan, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        """Run a step of the plan."""
        backend = self._stay.backend
        if self.is_left_behind:  # checked after reading the backend: a new worker has other plans
            raise self._left_behind()
        if plan.changes_state:
            self._stay.changed = True  # before the step: one that fails may have changed something
        self._is_sent = True
        outputs = backend.step(plan.step, arrays, self.deadline)  # type: ignore[union-attr]
        return outputs if len(outputs) == plan.output_count else self._refuse(outputs, plan)

    async def arun(self, plan: StepPlan, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        """Run a step of the plan, awaited."""
        backend = self._stay.backend
        if self.is_left_behind:
            raise self._left_behind()
        if plan.changes_state:
            self._stay.changed = True
        self._is_sent = True
        outputs = await backend.astep(plan.step, arrays, self.deadline)  # type: ignore[union-attr]
        return outputs if len(outputs) == plan.output_count else self._refuse(outputs, plan)

    def _refuse(self, outputs: Sequence[np.ndarray], plan: StepPlan) -> NoReturn:
        raise self._stay.broke_protocol(f"{len(outputs)} results for {plan.output_count}")

    def _left_behind(self) -> WorkerDied:
        return WorkerDied("died, and another has taken its place", "", begun=False)

    # -- account -----------------------------------------------------------------------------------

    @property
    def is_run(self) -> bool:
        """Whether it counts as a run. A step that never reaches the engine does not."""
        return self.counts and (self._is_sent or self._what is not None)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        stay = self._stay
        counts = self.is_run
        if error is None:
            stay.lifecycle.end_step(self, counts)
            return False
        failure = None
        if isinstance(error, WorkerDied):
            counts = counts and error.begun
            failure = stay.broken_by(error, self._consequence(error), self)
        elif isinstance(error, NoAnswer):
            counts = counts and error.sent
            failure = stay.words.late(self._timeout, self._what, self._state_of_it(error.sent))
        stay.lifecycle.end_step(self, counts, failed=True)
        if failure is None:
            return False
        if self._may_be_repeated(error):
            return True  # the caller repeats it with the next worker
        try:
            raise failure from None
        finally:
            del failure, error, trace  # the errors refer to this frame: referenced here, they stay

    def _may_be_repeated(self, error: BaseException | None) -> bool:
        """Whether the dead worker never saw the step, and another worker takes its place."""
        if self._what is not None or not isinstance(error, WorkerDied):
            return False
        return not error.begun and self._stay.can_come_back

    def _consequence(self, death: WorkerDied) -> str:
        if self._what is not None:
            known = "was under way: its outcome is unknown" if death.begun else "has not begun"
            return f"{self._what!r} {known}"
        return self._state_of_it(death.begun)

    def _state_of_it(self, begun: bool) -> str:
        return _UNDER_WAY if self._is_sent and begun else _NOT_BEGUN
