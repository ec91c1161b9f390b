"""The requests of one model version: they wait, are joined into steps, and get their own answers.

A step belongs to the queue and not to the task of a request, unless it has only that request: a
client that leaves must not cancel the answers of others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from sojourn.errors import OutOfMemory, SessionBroken
from sojourn.service.asking import Ask, latest, too_late
from sojourn.service.batching import Costs, Line
from sojourn.service.catalogue import Catalogue
from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.inference import Inference, as_array
from sojourn.service.joining import NoRows, feeds_of, split
from sojourn.service.proving import Outputs, agree
from sojourn.service.served import Served
from sojourn.service.signatures import CallSignature
from sojourn.service.statistics import ModelStatistics
from sojourn.service.targets import Target, Targets
from sojourn.session.session import Usable

# A request that finds this many others in the queue is "in company", and so are the next few: they
# yield to the loop more often, because more requests may arrive meanwhile that can be joined (over
# gRPC they trickle in). An idle loop iterates in a microsecond; one client, or two, never wait.
_COMPANY = 3
_COMPANY_REMEMBERED = 8  # requests after that one that count as in company
_ROUNDS_IN_COMPANY = 60
_HOLD_SECONDS = 0.05  # a lease is returned after this, so that the pool can schedule others
_LONGEST_RETRY_SECONDS = 60.0  # cap of the retry hint; others may have left by then
clock = time.monotonic
_log = logging.getLogger("sojourn.service")


class _Full(Refused):
    """The queue is full."""


class ModelQueue:
    """The queue of one model version, from its first request until it is retired."""

    def __init__(self, catalogue: Catalogue, served: Served) -> None:
        self._catalogue = catalogue
        self.served = served
        self.rules = rules = served.options
        self._max_queue = rules.max_queue
        self._width = catalogue.copies(served)
        self._timeout = rules.timeout_seconds
        self._joins = rules.max_batch > 1
        self._busy = 0  # copies that this queue has leased
        self._learning = 0  # requests that wait for the signature
        self._inside = 0  # requests that wait or are under way
        self._company = 0  # requests that still count as being in company
        self._is_gathering = False  # a request waits for concurrent ones to join it
        self._costs = Costs()
        self._line: Line[Ask] = Line(rules.max_batch, self._costs)
        self._targets = Targets()
        self._tasks: set[asyncio.Task[None]] = set()
        self.statistics = ModelStatistics(served.name, served.version)

    @property
    def waiting(self) -> int:
        """How many requests wait for a copy or for the signature."""
        return len(self._line) + self._learning

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and no step is under way."""
        return not self._busy and not self.waiting

    # -- one request -----------------------------------------------------------------------------

    async def run(self, inference: Inference) -> Outputs:
        """Run one request and return its outputs."""
        arrived = clock()
        served, statistics = self.served, self.statistics
        served.enter()  # the version stays open until this request is answered
        try:
            deadline = self.deadline(inference.deadline, arrived)
            target = self._targets.find(inference.signature, inference.outputs)
            if target is None:
                call = await self.signature(inference.signature, deadline)
                target = self._targets.choose(call, inference.signature, inference.outputs)
            ask = Ask(target, target.arrays(inference.inputs), arrived, deadline)
            if not self._joins or not target.is_pure:
                ask.key = None  # state changed by a step depends on how requests are joined
            if inference.keep_alive is not None:
                self._catalogue.keep(served, inference.keep_alive)
            outputs = await self._answered(ask)
        except Exception as error:
            self.note_failure(error)
            raise
        finally:
            served.leave()
        statistics.note_answer(clock() - arrived)
        if inference.outputs is not None and len(outputs) != len(inference.outputs):
            return {name: outputs[name] for name in inference.outputs}
        return outputs

    def deadline(self, deadline: float | None, arrived: float) -> float | None:
        """Return the effective deadline of a request with a `deadline` of its own. Raises Refused
        if it has passed."""
        if self._timeout is not None:
            own = arrived + self._timeout
            deadline = own if deadline is None else min(deadline, own)
        if deadline is not None and arrived >= deadline:
            raise too_late()
        return deadline

    async def signature(self, name: str | None, deadline: float | None) -> CallSignature:
        """Return the signature, for the first request of its kind. The model may be opened for
        it."""
        if self.waiting >= self._max_queue:
            raise self._full()
        self._learning += 1
        try:
            return await self._catalogue.signature(self.served, name, deadline)
        finally:
            self._learning -= 1

    def note_failure(self, error: Exception) -> None:
        """Count a failed request. Each counts once, and for one reason."""
        statistics = self.statistics
        statistics.failed += 1
        if isinstance(error, _Full):
            statistics.refused += 1
        elif refusal(error).status is Status.DEADLINE_EXCEEDED:
            statistics.late += 1

    def _full(self) -> Refused:
        return _Full(
            Status.RESOURCE_EXHAUSTED,
            f"{self._max_queue} requests wait for {self.served.name!r} already",
            self._seconds_to_wait(),
        )

    async def _answered(self, ask: Ask) -> Outputs:
        if len(self._line) >= self._max_queue:
            raise self._full()
        if self._inside >= _COMPANY:
            self._company = _COMPANY_REMEMBERED
        elif self._company:
            self._company -= 1
        self._line.add(ask)
        self._inside += 1
        timer = None
        try:
            is_first = self._busy < self._width and not self._is_gathering
            if is_first and await self._gather(ask):
                return await self._alone(ask)
            if ask.deadline is not None:
                loop = asyncio.get_running_loop()
                timer = loop.call_later(max(0.0, ask.deadline - clock()), ask.expire)
            return await ask.future
        except BaseException:  # it expired, or its client has left: make room for others
            self._line.drop(ask)
            raise
        finally:
            self._inside -= 1
            if timer is not None:
                timer.cancel()
            if not ask.future.done():
                ask.future.cancel()

    async def _gather(self, ask: Ask) -> bool:
        """Let requests that arrive together join one step. Returns True if the request is alone:
        then its own task runs it, on a copy that is reserved for it here."""
        self._is_gathering = True
        try:
            for _ in range(_ROUNDS_IN_COMPANY if self._company and self._joins else 1):
                await asyncio.sleep(0)
        except BaseException:
            ask.future.cancel()
            raise
        else:
            batch = self._line.take(Ask.is_wanted) if self._busy < self._width else []
            is_alone = len(batch) == 1 and batch[0] is ask
            if is_alone:
                self._busy += 1
            elif batch:
                self._start(batch)
            return is_alone
        finally:
            self._is_gathering = False
            self._go_on()

    def _seconds_to_wait(self) -> float:
        seconds = self._costs.for_all(len(self._line)) / max(1, self._width)
        return min(max(1.0, seconds), _LONGEST_RETRY_SECONDS)

    async def _alone(self, ask: Ask) -> Outputs:
        """Run a single request on its own task."""
        try:
            while True:
                session = None
                try:
                    async with self._catalogue.session(self.served, ask.deadline) as session:
                        return (await self._step(session, [ask]))[0]
                except SessionBroken as error:
                    if session is None or not self._may_repeat(ask, error):
                        raise
        finally:
            self._busy -= 1
            self._go_on()

    def _may_repeat(self, ask: Ask, error: SessionBroken) -> bool:
        """Whether to repeat a request whose worker died during its step: only if it is pure and was
        not repeated before."""
        if ask.is_repeated or isinstance(error, OutOfMemory) or not ask.target.is_pure:
            return False
        ask.is_repeated = True
        self.statistics.repeated += 1
        return True

    # -- steps for several requests --------------------------------------------------------------

    def _start(self, batch: list[Ask]) -> None:
        self._busy += 1
        task = asyncio.get_running_loop().create_task(self._work(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _go_on(self) -> None:
        """Start steps for waiting requests while copies are free."""
        while self._busy < self._width and self._line:
            batch = self._line.take(Ask.is_wanted)
            if batch:
                self._start(batch)

    async def _work(self, batch: list[Ask]) -> None:
        """Run this batch and then further waiting requests, on one copy at a time."""
        again: deque[Ask] = deque()  # run one at a time: one of them caused the failure
        try:
            while batch:
                session = None
                try:
                    deadline = latest(batch)
                    async with self._catalogue.session(self.served, deadline) as session:
                        until = clock() + _HOLD_SECONDS
                        # Opening the session may have taken too long for some requests, or for all.
                        batch = [ask for ask in batch if ask.is_wanted()] or self._next(again)
                        while batch and clock() < until:
                            await self._settle(session, batch, again)
                            batch = self._next(again)
                except Exception as error:
                    if session is None:  # no session was available: no request is to blame
                        for ask in batch:
                            ask.fail(error)
                    else:
                        self._sort_out(batch, error, again)
                    batch = self._next(again)
        finally:
            for ask in (*batch, *again):  # the server is being stopped
                ask.fail(_stopping())
            self._busy -= 1
            self._go_on()

    def _next(self, again: deque[Ask]) -> list[Ask]:
        while again:
            ask = again.popleft()
            if ask.is_wanted():
                return [ask]
        return self._line.take(Ask.is_wanted)

    async def _settle(self, session: Usable, batch: list[Ask], again: deque[Ask]) -> None:
        """Run a batch and give each request its answer or its error. Raises if the worker has
        died."""
        try:
            answers = await self._step(session, batch)
        except SessionBroken:
            raise
        except Exception as error:
            self._sort_out(batch, error, again)
            return
        for ask, answer in zip(batch, answers, strict=True):
            if not ask.future.done():
                ask.future.set_result(answer)

    def _sort_out(self, batch: list[Ask], error: Exception, again: deque[Ask]) -> None:
        """Handle a failed step: joined requests are run again one by one, if they are pure."""
        if isinstance(error, SessionBroken):
            for ask in batch:
                if self._may_repeat(ask, error):
                    again.append(ask)
                else:
                    ask.fail(error)
        elif len(batch) > 1 and not isinstance(error, Refused):
            again.extend(batch)  # only pure requests are joined
        else:
            for ask in batch:
                ask.fail(error)

    # -- one step --------------------------------------------------------------------------------

    async def _step(self, session: Usable, batch: Sequence[Ask]) -> list[Outputs]:
        began = clock()
        target = batch[0].target
        sizes = [ask.rows for ask in batch]
        rows = sum(sizes)
        if len(batch) > 1 and not target.has_rows:
            raise NoRows  # discovered while they waited
        requests = [ask.arrays for ask in batch]
        feeds = feeds_of(target, requests)
        deadline = latest(batch)
        timeout = None if deadline is None else max(0.0, deadline - began)
        values = await session.arun(target.fetches, feeds, timeout=timeout)
        seconds = clock() - began
        statistics = self.statistics
        statistics.note_step(rows, seconds)
        statistics.queue_seconds += sum(began - ask.arrived for ask in batch)
        statistics.last_request = time.time()
        self._costs.note(rows, seconds)
        if target.is_pure is None:
            rules = self.served.options
            target.is_pure = rules.pure or session.changes_nothing(target.fetches, feeds)
            if target.is_pure and self._joins:  # now earlier requests can be joined too
                self._line.regroup(lambda ask: ask.rekey(target))
        if len(batch) == 1:
            return [dict(zip(target.names, map(as_array, values), strict=True))]
        try:
            answers = split(target, values, sizes)
            if not target.proof.is_complete and (two := target.proof.to_compare(requests)):
                await self._compare(session, target, requests, answers, two)
        except NoRows:
            target.has_rows = False
            _log.warning("%s: rows depend on each other, so requests are not joined", self.served)
            raise
        return answers

    async def _compare(
        self,
        session: Usable,
        target: Target,
        requests: Sequence[list[np.ndarray]],
        answers: Sequence[Outputs],
        two: tuple[int, int],
    ) -> None:
        """Run two requests of a batch again, each alone, and compare the answers."""
        for at in two:
            values = await session.arun(target.fetches, feeds_of(target, [requests[at]]))
            if not agree(dict(zip(target.names, values, strict=True)), answers[at]):
                raise NoRows
        target.proof.add(requests, two)

    # -- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Refuse the waiting requests and cancel the steps under way."""
        self._width = 0
        while batch := self._line.take(Ask.is_wanted):
            for ask in batch:
                ask.fail(_stopping())
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))


def _stopping() -> Refused:
    return Refused(Status.UNAVAILABLE, "the server is being stopped", 1.0)
