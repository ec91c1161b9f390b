"""The lanes between a client and one worker: opened on demand, reused, and never mixed up.

A lane whose caller left before the answer arrived (Ctrl-C, a timeout) is abandoned: it is not used
again until its late answer has arrived. Any failure here because the worker has ended raises
PeerGone; the worker's handle finds out how it ended.
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
from sojourn.process.calls import NoAnswer
from sojourn.process.deadlines import held_or_stopped, left_until
from sojourn.process.nets import close_all, net
from sojourn.process.protocol import OpenLane
from sojourn.transport import board, frames
from sojourn.transport.lane import (
    BEGUN,
    Answer,
    CallerLane,
    LaneRefused,
    PeerGone,
    new_bell,
    ring,
)
from sojourn.transport.messages import SEQUENCE
from sojourn.transport.segment import Segment
from sojourn.transport.server_lane import ServerLane
from sojourn.values.rows import Rows

T = TypeVar("T")
_Rows = tuple[memoryview, memoryview]
_Bells = tuple[int, int]

_SETTLE_SECONDS = 0.002  # between two checks

# Steps under way in this process, over all workers. While there are more than `SPINNERS_AT_MOST`,
# no lane spins. A set, because adding and discarding are atomic and counting is not.
under_way: set[CallerLane] = set()


class Lanes:
    """All lanes of one worker."""

    def __init__(
        self,
        name: str,
        control: socket.socket,
        pidfd: int,
        *,
        trusted: bool = True,
        most_bytes: int | None = None,
    ) -> None:
        """`most_bytes` limits the size of an answer, None: no limit."""
        self.name = name
        self._is_trusted = trusted
        self._most_bytes = most_bytes
        self._control = control
        self.pidfd = pidfd
        self._board: Segment | None
        self._count = 0  # lanes in both directions
        self._all: list[CallerLane] = []
        self._their_bells: dict[int, int] = {}
        self._free: list[CallerLane] = []
        self._abandoned: list[CallerLane] = []
        self._lock = threading.Lock()
        # First the net, then the file: a Ctrl-C may arrive before anything else owns the file.
        made: list[int] = []
        self._net = net(self, close_all, made)
        self._board, self._board_fd = Segment.create(board.BYTES)
        made.append(self._board_fd)

    def exchange(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        *,
        adoptable: bool = False,
        may_spin: bool = True,
        deadline: float | None = None,
        while_waiting: Callable[[], None] | None = None,
    ) -> Answer:
        """Send a request over a free lane; return the answer, whose arrays own their memory."""
        try:
            lane = self._free.pop()
        except IndexError:
            lane = self._another(deadline)
        try:
            under_way.add(lane)
            may_spin = may_spin and len(under_way) <= board.SPINNERS_AT_MOST
            lane.send(meta, arrays, adoptable=adoptable, may_spin=may_spin)
            lane.wait(may_spin=may_spin, deadline=deadline, while_waiting=while_waiting)
            answer = lane.take()
        except LaneRefused:
            self.give_up(lane)
            raise self.refusal_of(lane) from None
        except BaseException as error:
            self.abandon(lane)
            if self.is_closed and isinstance(error, OSError | ValueError):
                # A signal handler has closed the session during this exchange.
                raise lane.peer_gone() from None
            raise
        finally:
            under_way.discard(lane)
        self._free.append(lane)
        return answer

    # -- for callers that wait elsewhere ---------------------------------------------------------

    def acquire(self, *, is_last_welcome: bool = False) -> CallerLane | None:
        """Return a lane to send over, without waiting; None if all possible lanes are in use."""
        try:
            return self._free.pop()
        except IndexError:
            return self._found_or_wired(is_last_welcome)

    def give_back(self, lane: CallerLane) -> None:
        """Return the lane to the free list, once its answer was taken."""
        self._keep(lane, self._free)

    def abandon(self, lane: CallerLane) -> None:
        """Set the lane aside: nobody waits for its answer any more."""
        self._keep(lane, self._abandoned)

    def _keep(self, lane: CallerLane, lanes: list[CallerLane]) -> None:
        if self._board is not None:  # else all lanes are closed, and this one is freed with them
            lanes.append(lane)

    def give_up(self, lane: CallerLane) -> None:
        """Close a lane whose end the worker could not open. Only its number is used up."""
        with self._lock:
            if lane in self._all:  # else all lanes are closed
                self._all.remove(lane)
            lane.close()

    def refusal_of(self, lane: CallerLane) -> SojournError:
        """Return the error to raise if the worker could not open its end of the lane."""
        why = "its worker may not open more files or start more threads"
        if lane.index == 0:
            return PlatformError(f"session {self.name!r} cannot be used: {why}")
        return SessionBusy(f"session {self.name!r} cannot take another concurrent call: {why}")

    def settle(self, deadline: float | None) -> None:
        """Wait until every request that was sent has been answered, even if nobody waits for it any
        more. Raises NoAnswer at the deadline and PeerGone when the worker has ended."""
        while self._is_one_under_way():
            if self.has_peer_ended():
                raise PeerGone(begun=True)
            if left_until(deadline) <= 0:
                raise NoAnswer
            time.sleep(_SETTLE_SECONDS)

    def _is_one_under_way(self) -> bool:
        with self._lock:
            for lane in self._all:  # empty once they are closed
                # The words themselves: a Ctrl-C may have kept the lane from recording a request.
                mine, theirs = self._rows(lane.index)
                if mine[SEQUENCE] != theirs[SEQUENCE] and not lane.is_refused:
                    if theirs[BEGUN] != mine[SEQUENCE]:
                        ring(self._their_bells[lane.index])  # which may not have rung either
                    return True
        return False

    def open_reverse(self) -> ServerLane:
        """Return a lane over which the worker asks and this process answers."""
        with self._lock:
            return self._wire(True, lambda _, rows, ours, bells: ServerLane(rows, ours, bells))

    def close(self) -> None:
        """Close every descriptor and free the board's memory."""
        with held_or_stopped(self._lock):
            self._close()

    def after_fork_in_child(self) -> None:
        """Close them in a fork of the client, where the owner of the lock may not exist."""
        self._lock = threading.Lock()
        self._close()

    def _close(self) -> None:
        for lane in self._all:
            lane.close()
        for lanes in (self._all, self._free, self._abandoned):
            lanes.clear()
        self._board = None  # so that references to the session do not keep this memory
        self._forget_board_fd()

    def _another(self, deadline: float | None) -> CallerLane:
        while True:
            lane = self._found_or_wired(deadline is not None)
            if lane is not None:
                return lane
            if self.has_peer_ended():
                raise PeerGone
            time.sleep(0.001)
            try:
                return self._free.pop()
            except IndexError:
                if deadline is not None and time.monotonic() > deadline:
                    raise NoAnswer(sent=False) from None

    def _found_or_wired(self, is_last_welcome: bool) -> CallerLane | None:
        with self._lock:
            if self._board is None:
                raise PeerGone  # closed meanwhile
            for lane in self._abandoned:
                if lane.has_answer:  # late, and nobody needs it
                    self._abandoned.remove(lane)
                    return lane
            # The last lane is for callers with a deadline, such as a close that cancels.
            if self._count >= board.LANES - (not is_last_welcome):
                return None
            lane = self._wire(False, self._caller_lane)
            self._all.append(lane)
            return lane

    def _caller_lane(
        self, index: int, rows: _Rows, ours: socket.socket, bells: _Bells
    ) -> CallerLane:
        self._their_bells[index] = bells[0]
        return CallerLane(
            index, rows, ours, bells, self.pidfd, self._most_bytes, hands_over=self._is_trusted
        )

    @property
    def is_closed(self) -> bool:
        """Whether the lanes were closed, which then explains every error that a lane raises."""
        return self._board is None

    def has_peer_ended(self) -> bool:
        """Whether the worker has ended."""
        if self._board is None:
            return True  # closed: the descriptor's number may belong to another file by now
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def _wire(self, reverse: bool, make: Callable[[int, _Rows, socket.socket, _Bells], T]) -> T:
        """Connect one more lane: `make` builds our end from its number, words, socket and bells."""
        index = self._count
        if index >= board.LANES:
            raise SessionBusy(f"session {self.name!r} has {index} calls under way, the most it can")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        bells: list[int] = []
        try:
            bells.append(new_bell())
            bells.append(new_bell())
            lane = make(index, self._rows(index), ours, (bells[0], bells[1]))
            fds = [theirs.fileno(), *bells]
            if self._board_fd >= 0:
                fds.append(self._board_fd)
            # Counted before it is sent: a Ctrl-C in between must not reuse the number.
            self._count += 1
            frames.send(self._control, OpenLane(index, reverse), fds)
            self._forget_board_fd()
            return lane
        except BaseException as error:
            ours.close()
            for fd in bells:
                os.close(fd)
            is_closed = self._board is None and isinstance(error, OSError)
            if is_closed or isinstance(error, ConnectionError):
                raise PeerGone from None
            if isinstance(error, Exception):
                self._count = index
            raise
        finally:
            theirs.close()

    def _rows(self, index: int) -> tuple[memoryview, memoryview]:
        if self._board is None:
            raise PeerGone  # closed meanwhile
        return board.rows(self._board, index)

    def _forget_board_fd(self) -> None:
        fd, self._board_fd = self._board_fd, -1
        if self._net.detach() is not None:
            os.close(fd)
