"""Calls from a worker to its client, over lanes that the client has opened for them.

Answering a call may make the client use the session again, which may make the worker call again.
So there is always one more lane than there are calls under way.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

import numpy as np

from sojourn.errors import SessionBusy
from sojourn.transport.lane import CallerLane, LaneRefused, PeerGone
from sojourn.transport.messages import ProtocolError
from sojourn.transport.server_lane import ServerLane

Answer = Callable[[bytes, Sequence[np.ndarray]], tuple[int, bytes, Sequence[np.ndarray]]]


class Asking:
    """The worker's end: take a free lane, send the request, wait for the answer."""

    def __init__(self) -> None:
        self._free: list[CallerLane] = []
        self._count = 0  # lanes that are free or in use
        self._came_back = threading.Condition()

    def add(self, lane: CallerLane) -> None:
        """Add a lane that requests can be sent over."""
        with self._came_back:
            self._count += 1
            self._free.append(lane)
            self._came_back.notify()

    def ask(self, meta: bytes, arrays: Sequence[np.ndarray]) -> tuple[int, bytes, list[np.ndarray]]:
        """Send a request to the client; return its answer, whose arrays own their memory."""
        while True:
            lane = self._take()
            try:
                return lane.exchange(meta, arrays)
            except LaneRefused:  # the client stopped while opening it and received nothing
                lane.close()
            finally:
                self._put_back(lane)

    def _take(self) -> CallerLane:
        with self._came_back:
            while not self._free:
                if not self._count:
                    raise LaneRefused("the client answers no questions")
                self._came_back.wait()
            return self._free.pop()

    def _put_back(self, lane: CallerLane) -> None:
        with self._came_back:
            if lane.has_answer:  # also if the message was refused before it was sent
                self._free.append(lane)
                self._came_back.notify()
            else:
                self._count -= 1
                self._came_back.notify_all()


class Answering:
    """The client's end: one thread for each lane, of which at least one is always idle."""

    def __init__(
        self,
        open_lane: Callable[[], ServerLane],
        answer: Answer,
        give_up: Callable[[], None],
        name: str,
    ) -> None:
        self._open_lane = open_lane
        self._answer = answer
        self._give_up = give_up  # ends the worker
        self._name = name
        self._lock = threading.Lock()
        self._idle = 0
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._lanes: list[ServerLane] = []  # the open ones
        self._start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop the threads; one that is still answering ends after its answer."""
        with self._lock:
            self._stopped = True
            for lane in self._lanes:
                lane.stop()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    def is_answering_here(self) -> bool:
        """Whether the calling thread is one of the answering threads."""
        me = threading.current_thread()
        return any(thread is me for thread in self._threads)

    def forget(self) -> None:
        """In a fork of the client: close the descriptors; the threads do not exist here."""
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self._threads.clear()

    def _start(self) -> None:
        with self._lock:
            if self._stopped:
                return
            # Start the thread first: a lane that no thread serves would hang the worker.
            given: queue.SimpleQueue[ServerLane | None] = queue.SimpleQueue()
            thread = threading.Thread(
                target=self._serve, args=(given,), name=f"sojourn-answers-{self._name}", daemon=True
            )
            lane = None
            try:
                thread.start()
                lane = self._open_lane()
                self._threads.append(thread)
                self._lanes.append(lane)
                self._idle += 1
            finally:  # also after a Ctrl-C
                given.put(lane)

    def _start_another(self) -> None:
        try:
            self._start()
        except (SessionBusy, OSError, RuntimeError):
            # No lane, descriptor or thread is available. The next request waits for one of the
            # existing lanes; the current one is answered all the same.
            pass

    def _serve(self, given: queue.SimpleQueue[ServerLane | None]) -> None:
        lane = given.get()
        if lane is None:
            return
        try:
            while True:
                meta, arrays = lane.wait()
                with self._lock:
                    self._idle -= 1
                    is_last = self._idle == 0
                if is_last:
                    self._start_another()
                result = self._answer(meta, arrays)
                with self._lock:
                    self._idle += 1
                if self._stopped:
                    return
                lane.answer(*result)
                del meta, arrays, result
        except PeerGone:
            pass  # the session has ended
        except BaseException as error:
            # The worker sent an invalid message, or the answer cannot be sent while it waits.
            self._give_up()
            if not isinstance(error, ProtocolError | OSError):
                raise
        finally:
            with self._lock:  # `stop` must not ring a bell whose descriptor number was reused
                lane.close()
                if lane in self._lanes:
                    self._lanes.remove(lane)
