"""The lanes between a client and one worker: opened on demand, reused, and never mixed up.

A lane whose caller went away before the answer came (Ctrl-C, a timeout) is abandoned: nobody uses
it until its late answer has arrived. Whatever fails here because the worker has ended raises
PeerGone; what that means is for the worker's handle to find out.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from sojourn.errors import PlatformError, SessionBusy, SojournError
from sojourn.process.protocol import OpenLane
from sojourn.transport import board, frames
from sojourn.transport.lane import CallerLane, LaneRefused, PeerGone, ServerLane, bell
from sojourn.transport.segment import Segment

T = TypeVar("T")
_Rows = tuple[memoryview, memoryview]
_Bells = tuple[int, int]

# Steps under way in this process, over all workers. More of them than pairs of cores, and nobody
# spins. A set, because adding and discarding are atomic where counting is not.
under_way: set[CallerLane] = set()


class Lanes:
    """All lanes of one worker."""

    _board_fd = -1

    def __init__(
        self, name: str, control: socket.socket, pidfd: int, most_bytes: int | None = None
    ) -> None:
        """`most_bytes` is the most that an answer may take, None if the worker is trusted."""
        self._name = name
        self._most_bytes = most_bytes
        self._control = control
        self._pidfd = pidfd
        self._board: Segment | None
        self._count = 0  # in both directions
        self._all: list[CallerLane] = []
        self._free: list[CallerLane] = []
        self._abandoned: list[CallerLane] = []
        self._lock = threading.Lock()
        self._board, self._board_fd = Segment.create(board.BYTES)

    def __del__(self) -> None:
        self._forget_board_fd()  # only after a Ctrl-C that came before anybody could know of it

    def exchange(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray],
        *,
        adoptable: bool = False,
        may_spin: bool = True,
        deadline: float | None = None,
        while_waiting: Callable[[], None] | None = None,
    ) -> tuple[int, bytes, list[np.ndarray]]:
        """Ask over a free lane and wait for the answer, whose arrays own their memory."""
        try:
            lane = self._free.pop()
        except IndexError:
            lane = self._another(deadline)
        try:
            under_way.add(lane)
            status, answer, views = lane.exchange(
                meta,
                arrays,
                adoptable=adoptable,
                may_spin=may_spin and len(under_way) <= board.SPINNERS_AT_MOST,
                deadline=deadline,
                while_waiting=while_waiting,
            )
            results = [view.copy() for view in views]
        except LaneRefused:
            self._abandoned.append(lane)
            raise self._refused(lane) from None
        except BaseException:
            self._abandoned.append(lane)
            raise
        finally:
            under_way.discard(lane)
        self._free.append(lane)
        return status, answer, results

    def _refused(self, lane: CallerLane) -> SojournError:
        why = "its worker may not open more files or start more threads"
        if lane.index == 0:
            return PlatformError(f"session {self._name!r} cannot be used: {why}")
        return SessionBusy(f"session {self._name!r} cannot take one more call at a time: {why}")

    def open_reverse(self) -> ServerLane:
        """A lane over which the worker asks and we answer."""
        with self._lock:
            return self._wire(True, lambda _, rows, ours, bells: ServerLane(rows, ours, bells))

    def close(self) -> None:
        """Give back every descriptor and the board's memory."""
        with self._lock:
            self._close()

    def after_fork_in_child(self) -> None:
        """The same, in a fork of the client, where the lock may belong to nobody."""
        self._lock = threading.Lock()
        self._close()

    def _close(self) -> None:
        for lane in self._all:
            lane.close()
        for lanes in (self._all, self._free, self._abandoned):
            lanes.clear()
        self._board = None  # whoever still holds the session does not hold this memory
        self._forget_board_fd()

    def _another(self, deadline: float | None) -> CallerLane:
        while True:
            with self._lock:
                for lane in self._abandoned:
                    if lane.is_free:  # its late answer has come and is of no interest
                        self._abandoned.remove(lane)
                        return lane
                # The last is for those who do not wait for ever, such as a close that cancels.
                if self._count < board.LANES - (deadline is None):
                    lane = self._wire(False, self._caller_lane)
                    self._all.append(lane)
                    return lane
            if self._has_peer_ended():
                raise PeerGone
            time.sleep(0.001)
            try:
                return self._free.pop()
            except IndexError:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError from None

    def _caller_lane(
        self, index: int, rows: _Rows, ours: socket.socket, bells: _Bells
    ) -> CallerLane:
        return CallerLane(index, rows, ours, bells, self._pidfd, self._most_bytes)

    def _has_peer_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def _wire(self, reverse: bool, make: Callable[[int, _Rows, socket.socket, _Bells], T]) -> T:
        """Connect one more lane: made of its number, words, our end, and the two bells."""
        index = self._count
        if index >= board.LANES:
            raise SessionBusy(
                f"session {self._name!r} has {index} calls under way, the most it can"
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        bells: list[int] = []
        try:
            bells.append(bell())
            bells.append(bell())
            lane = make(index, self._rows(index), ours, (bells[0], bells[1]))
            fds = [theirs.fileno(), *bells]
            if self._board_fd >= 0:
                fds.append(self._board_fd)
            # Counted before it is sent: after a Ctrl-C in between, the next has another number.
            self._count += 1
            frames.send(self._control, OpenLane(index, reverse), fds)
            self._forget_board_fd()
            return lane
        except BaseException as error:
            ours.close()
            for fd in bells:
                os.close(fd)
            if isinstance(error, BrokenPipeError | ConnectionError):
                raise PeerGone from None
            if isinstance(error, Exception):
                self._count = index
            raise
        finally:
            theirs.close()

    def _rows(self, index: int) -> tuple[memoryview, memoryview]:
        assert self._board is not None
        return board.rows(self._board, index)

    def _forget_board_fd(self) -> None:
        fd, self._board_fd = self._board_fd, -1
        if fd >= 0:
            os.close(fd)
