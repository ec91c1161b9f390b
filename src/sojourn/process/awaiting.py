"""Requests that an event loop waits for: no thread, only descriptors that the loop watches.

Each loop that uses a worker has one `AwaitedLanes`, used on the loop's own thread only. A few
requests are under way at a time, because a worker gains nothing from more; the others wait here in
order. A request that may wait for another one (a queue) gets its own lane at once, because
otherwise both would wait forever.

A request that was cancelled leaves its lane behind: the lane counts as taken until its late answer
arrives, so that callers who give up early do not pile up work in the worker.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence

import numpy as np

from sojourn.process.bundles import Bundle, Request, next_bundle
from sojourn.process.deadlines import left_until
from sojourn.process.lanes import Lanes, under_way
from sojourn.transport.board import CAN_SPIN, CORES
from sojourn.transport.lane import Answer, CallerLane, LaneRefused, PeerGone, silence
from sojourn.transport.patience import Learned
from sojourn.values.rows import Rows

# Requests under way at a time. For short requests a single lane is best: its server keeps spinning
# for the next one and never blocks, where several would compete for the interpreter lock.
WIDTH = max(2, CORES)
_SHORT_SECONDS = 300e-6
_TOGETHER_SECONDS = 1e-3  # for all steps of one message: the first is answered with the last
_TICK_SECONDS = 0.05
# Spins in each iteration of the event loop. Few, because the loop has other tasks to run.
_LOOKS_IN_A_ROUND = 30
_ROUND_IN_LOOKS = 150  # time of one loop iteration, counted in spins


class _Round:
    """When awaited, lets the loop run one iteration, at less cost than `asyncio.sleep(0)`."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_ROUND = _Round()


class AwaitedLanes:
    """The lanes of one worker, as one event loop uses them."""

    def __init__(
        self, lanes: Lanes, loop: asyncio.AbstractEventLoop, show: Callable[[], None]
    ) -> None:
        self._lanes = lanes
        # Not the loop itself: it is the weak key of these lanes, which would keep it alive forever.
        self._loop_of_this = weakref.ref(loop)
        self._show = show  # shows what the worker has printed
        self._waiting: deque[Request] = deque()
        self._busy: dict[CallerLane, Bundle] = {}
        self._owed: list[tuple[CallerLane, int]] = []  # answers that nobody waits for any more
        # Duplicates of the bells: a lane may close its own while the loop still watches.
        self._bells: dict[CallerLane, int] = {}
        self._end_fd = -1
        self._ticking: asyncio.TimerHandle | None = None
        self._suspects: set[CallerLane] = set()
        self._learned = Learned()
        self._seconds = _SHORT_SECONDS  # recent average that the worker took for a request

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop_of_this()
        assert loop is not None, "it is running us"
        return loop

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether these lanes belong to this loop."""
        return self._loop_of_this() is loop

    async def exchange(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        *,
        adoptable: bool = False,
        may_wait: bool = True,
        prints: bool = True,
        deadline: float | None = None,
    ) -> Answer:
        """Send a request when it is its turn, and wait for the answer, whose arrays own their
        memory. Raises NoAnswer at the deadline and PeerGone when the worker has ended."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        request = Request(future, meta, arrays, adoptable, may_wait, prints)
        timer = patience = None
        was_seen = False
        began = time.perf_counter()
        try:
            if self._waiting and not may_wait:
                self._queue(request)
            else:
                self._begin(request)
            lane = request.lane
            if lane is not None and len(self._busy) == 1:
                looks = 0
                if CAN_SPIN and lane.is_apart:
                    patience = self._learned.of(meta, lane.layout)
                    looks = patience.looks()
                was_seen = await self._look(request, looks)
            if deadline is not None and not future.done():
                timer = self._loop.call_later(left_until(deadline), request.expire)
            answer = await future
            if patience is not None and patience.is_trying:
                patience.learn(began, time.perf_counter(), was_seen=was_seen)
            return answer
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(request)
            if self._ticking is not None and not self._busy:
                while self._waiting and self._waiting[0].future.done():
                    self._waiting.popleft()
                if not self._waiting:  # a timer left when the loop ends would keep the lanes alive
                    self._ticking.cancel()
                    self._ticking = None

    def drain(self, deadline: float | None) -> None:
        """Block the loop's own thread until all requests are answered: this thread closes the
        session, and the loop cannot run until that is done."""
        while self._busy:
            lane = next(iter(self._busy))
            try:
                lane.wait(may_spin=False, deadline=deadline)
            except TimeoutError:
                return
            except (PeerGone, LaneRefused):
                self._on_end()
                return
            self._answered(lane)

    def __del__(self) -> None:
        # The loop was freed without closing these.
        for fd in (*self._bells.values(), self._end_fd):
            if fd >= 0:
                os.close(fd)

    # -- sending ---------------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        is_idle = not (self._busy or self._owed)
        has_room = is_idle or request.may_wait or self._taken() < self._width
        try:
            lane = self._lanes.acquire() if has_room else None
        except Exception as error:  # the session was closed, or no descriptors are left
            request.fail(error)
            return
        if lane is None:
            self._queue(request)
        else:
            self._send(Bundle([request]), lane)

    def _queue(self, request: Request) -> None:
        request.has_waited = True
        self._waiting.append(request)
        self._tick_later()

    @property
    def _width(self) -> int:
        return 1 if CAN_SPIN and self._seconds < _SHORT_SECONDS else WIDTH

    def _taken(self) -> int:
        self._owed = [
            (lane, n) for lane, n in self._owed if lane.serial == n and not lane.has_answer
        ]
        return len(self._owed) + sum(not bundle.may_wait for bundle in self._busy.values())

    def _send(self, bundle: Bundle, lane: CallerLane) -> bool:
        first = bundle.requests[0]
        try:
            meta, arrays = bundle.message()
            may_spin = CAN_SPIN and not self._busy
            lane.send(meta, arrays, adoptable=first.adoptable, may_spin=may_spin)
        except LaneRefused:
            self._lanes.give_up(lane)
            bundle.fail(functools.partial(self._lanes.refusal_of, lane))
            return False
        except Exception as error:
            self._lanes.abandon(lane)
            is_gone = self._lanes.is_closed and isinstance(error, OSError | ValueError)
            bundle.fail(lane.peer_gone if is_gone else _giving(error))
            return False
        for request in bundle.requests:
            request.lane = lane
        self._busy[lane] = bundle
        under_way.add(lane)
        if len(self._busy) > 1 or first.has_waited:
            try:
                self._watch(lane)
            except PeerGone:
                pass  # other requests may be waiting too: `_tick` fails them all
        return True

    async def _look(self, request: Request, looks: int) -> bool:
        """Spin for the answer to a lone request while the loop goes on. For a short step that is
        faster than being woken, and every other task gets its turn. Returns whether the answer was
        seen; if not, the loop watches for it."""
        lane, future = request.lane, request.future
        assert lane is not None
        for _ in range(0, looks, _LOOKS_IN_A_ROUND + _ROUND_IN_LOOKS):
            if lane.answers_within(_LOOKS_IN_A_ROUND):
                self._answered(lane)
                return True
            await _ROUND
            if future.done():
                return True
            if len(self._busy) > 1:
                break
        self._watch(lane)
        return False

    # -- answers ---------------------------------------------------------------------------------

    def _on_bell(self, lane: CallerLane, bell: int) -> None:
        silence(bell)
        if lane.has_answer and lane in self._busy:
            self._answered(lane)

    def _answered(self, lane: CallerLane) -> None:
        bundle = self._busy.pop(lane)
        under_way.discard(lane)
        self._seconds += (lane.seconds / len(bundle.requests) - self._seconds) / 8
        try:
            bundle.resolve(lane.take())
        except Exception as error:
            bundle.fail(_giving(error))
            self._unwatch(lane)
            self._lanes.abandon(lane)
            self._go_on()
            return
        while self._waiting and self._taken() < self._width:
            following = next_bundle(self._waiting, int(_TOGETHER_SECONDS / (self._seconds + 1e-6)))
            if following is not None:
                if not self._send(following, lane):
                    self._unwatch(lane)
                    self._go_on()  # over another lane
                return
        self._unwatch(lane)
        self._lanes.give_back(lane)

    def _on_end(self) -> None:
        """Take the last answers and fail all other requests: the worker has ended, and it wrote its
        answers before that."""
        waiting, self._waiting = self._waiting, deque()
        self._owed.clear()
        for lane in list(self._busy):
            if lane.has_answer:
                self._answered(lane)
                continue
            self._busy.pop(lane).fail(lane.peer_gone)
            under_way.discard(lane)
            self._unwatch(lane)
            self._lanes.abandon(lane)
        for request in waiting:
            request.fail(PeerGone())

    def _leave(self, request: Request) -> None:
        """Forget a request whose caller no longer waits, usually because the answer has arrived."""
        lane = request.lane
        request.is_left = True
        bundle = None if lane is None else self._busy.get(lane)
        if bundle is not None and lane is not None and request in bundle.requests:
            if bundle.is_awaited:
                return  # other callers still wait for it
            del self._busy[lane]
            under_way.discard(lane)
            self._unwatch(lane)
            self._owed.append((lane, lane.serial))
            self._lanes.abandon(lane)
            self._go_on()
        elif lane is None:
            request.arrays = ()  # the request may stay in the queue for a while
            request.future.cancel()

    def _go_on(self) -> None:
        """Send the waiting requests, as far as lanes are free."""
        waiting, self._waiting = self._waiting, deque()
        try:
            while waiting:
                request = waiting.popleft()
                if not request.future.done():
                    self._begin(request)
                    if request.lane is None and not request.future.done():
                        break  # it waits again, first in the new queue
        finally:
            self._waiting.extend(waiting)

    # -- watching --------------------------------------------------------------------------------

    def _watch(self, lane: CallerLane) -> None:
        """Have the loop watch for the lane's answer and the worker's end. If no descriptor is left
        for that, `_tick` finds both."""
        if lane in self._bells:
            return
        self._tick_later()
        try:
            bell = self._bells[lane] = os.dup(lane.bell)
            self._loop.add_reader(bell, self._on_bell, lane, bell)
            if self._end_fd < 0:
                self._end_fd = os.dup(self._lanes.pidfd)
                self._loop.add_reader(self._end_fd, self._on_end)
        except OSError as error:
            if error.errno == errno.EBADF:  # another thread has reaped the worker meanwhile
                raise lane.peer_gone() from None

    def _unwatch(self, lane: CallerLane) -> None:
        bell = self._bells.pop(lane, -1)
        if bell >= 0:
            self._stop_reading(bell)
        if not self._bells and self._end_fd >= 0:
            fd, self._end_fd = self._end_fd, -1
            self._stop_reading(fd)

    def _stop_reading(self, fd: int) -> None:
        if not self._loop.is_closed():  # a closed loop watches nothing
            self._loop.remove_reader(fd)
        os.close(fd)

    def _tick_later(self) -> None:
        if self._ticking is None:
            self._ticking = self._loop.call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Check periodically, while requests are under way, for what no descriptor reports."""
        self._ticking = None
        if any(bundle.requests[0].prints for bundle in self._busy.values()):
            self._show()
        for lane in list(self._busy):
            if lane in self._busy and lane.has_answer:
                self._answered(lane)
        refused = {lane for lane in self._busy if lane.is_refused}
        if self._lanes.has_peer_ended():
            self._on_end()
        for lane in refused & self._suspects & self._busy.keys():
            self._busy.pop(lane).fail(functools.partial(self._lanes.refusal_of, lane))
            under_way.discard(lane)
            self._unwatch(lane)
            self._lanes.give_up(lane)
        self._suspects = refused  # not at once: an ending worker closes its files a moment earlier
        if self._waiting:
            self._go_on()
        if self._busy or self._waiting:
            self._tick_later()


def _giving(error: Exception) -> Callable[[], Exception]:
    """Return a function that returns the error. Stored in a local variable of the frame that raised
    it, the error would keep itself and the lanes alive."""
    return lambda: error
