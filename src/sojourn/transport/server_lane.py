"""The server's end of a lane, served by one thread.

It spins for the next request for a while before it blocks, and stays off its caller's core.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Sequence

import numpy as np

from sojourn.transport.attachments import Attached, ResultFiles
from sojourn.transport.board import CAN_SPIN
from sojourn.transport.cores import MOVES_IN_A_ROW, STAY_SECONDS, current_core, leave_core
from sojourn.transport.lane import (
    BEGUN,
    CORE,
    MAY_HAND_OVER,
    MAY_SPIN,
    TOOK,
    WELCOME,
    PeerGone,
    ring,
    silence,
)
from sojourn.transport.messages import SEQUENCE, STATUS, Inbox, Outbox

# About 100 us of spinning in Python, for the next request.
SPINS = 2500
_NEARLY_SECONDS = 250e-6  # a request that arrives this soon after spinning ended was nearly seen
# Blocked waits after which a server that spins less tries the full spin again.
_TRY_AGAIN = 32


class ServerLane:
    """The server's end of a lane. Used by one thread."""

    def __init__(
        self,
        rows: tuple[memoryview, memoryview],
        channel: socket.socket,
        bells: tuple[int, int],
        attached: Attached | None = None,
    ) -> None:
        """`attached` maps arrays that callers have placed; without it they may not place any."""
        self._theirs, self._mine = rows
        self._my_bell, self._their_bell = bells
        self._channel = channel
        self.outbox = Outbox(self._mine, channel)
        self.inbox = Inbox(self._theirs, channel, attached=attached)
        self._results = ResultFiles(self._theirs)
        self._sequence = 0
        self._spins = SPINS if CAN_SPIN else 0
        self._calls_until_try = _TRY_AGAIN
        self._stopped = False
        self._began = 0
        self._is_apart = True  # on another core than its caller
        self._moves = 0  # to other cores, in a row
        self._moved = 0.0
        self._poll = select.poll()
        self._poll.register(self._my_bell, select.POLLIN)

    def wait(self) -> tuple[bytes, list[np.ndarray]]:
        """Return the next request; its arrays are views that are valid until the answer is given.

        Raises PeerGone once the lane was stopped.
        """
        theirs = self._theirs
        sequence = self._sequence + 1
        spins = self._spins if theirs[WELCOME] & MAY_SPIN and self._is_apart else 0
        for _ in range(spins):
            if theirs[SEQUENCE] == sequence:
                self._spins = SPINS
                break
        else:
            gave_up = time.monotonic()
            while True:
                if self._stopped:
                    raise PeerGone
                self._poll.poll()
                silence(self._my_bell)
                if theirs[SEQUENCE] == sequence or self._is_coming(sequence):
                    break
            if spins:
                self._learn_from_blocking(time.monotonic() - gave_up)
        mine = self._mine
        self._sequence = mine[BEGUN] = sequence
        mine[CORE] = core = current_core()
        if theirs[CORE] == core:
            self._is_apart = False
        elif not self._is_apart or self._moves:
            self._is_apart, self._moves = True, 0
        self._began = time.perf_counter_ns()
        return self.inbox.take()

    def _is_coming(self, sequence: int) -> bool:
        """Spin for a request that is being copied: a caller that copies much rings first, so that
        the server is awake when the copy is done."""
        theirs = self._theirs
        spins = SPINS if CAN_SPIN and theirs[WELCOME] & MAY_SPIN else 0
        return any(theirs[SEQUENCE] == sequence for _ in range(spins))

    def _learn_from_blocking(self, seconds: float) -> None:
        """Adjust how long to spin, from how late the request was. A slightly late caller is worth
        spinning for. For a slow or quiet caller the server spins less, but never zero times, and
        sometimes for the full time: a few late requests must not mark a caller as slow forever."""
        self._calls_until_try -= 1
        if seconds < _NEARLY_SECONDS or self._calls_until_try <= 0:
            self._spins = SPINS
            self._calls_until_try = _TRY_AGAIN
        else:
            self._spins = max(SPINS // 16, self._spins // 2)

    def answer(self, status: int, meta: bytes, arrays: Sequence[np.ndarray]) -> None:
        """Send the answer to the current request."""
        mine = self._mine
        results = None
        if self._theirs[WELCOME] & MAY_HAND_OVER:
            results = self._results
            results.sequence = self._sequence
        self.outbox.put(meta, arrays, attacher=results)
        if not self._is_apart and self._theirs[WELCOME] & MAY_SPIN:
            self._move_apart()  # before it rings: the woken caller runs on the core that was left
        mine[STATUS] = status
        mine[TOOK] = time.perf_counter_ns() - self._began
        mine[SEQUENCE] = self._sequence
        ring(self._their_bell)
        if results is not None and results.has_files:
            results.tidy()

    def _move_apart(self) -> None:
        """Leave the core to the caller, unless the kernel keeps moving the thread back."""
        now = time.monotonic()
        if self._moves >= MOVES_IN_A_ROW:
            if now - self._moved < STAY_SECONDS:
                return
            self._moves = 0
        self._moves += 1
        self._moved = now
        self._is_apart = leave_core(self._mine[CORE])
        self._mine[CORE] = current_core()

    def stop(self) -> None:
        """Make `wait` raise PeerGone, now and from now on."""
        self._stopped = True
        if self._my_bell >= 0:  # else the thread has already left and closed the lane
            ring(self._my_bell)

    def close(self) -> None:
        """Close the descriptors."""
        self._channel.close()
        self.inbox.close()
        bells, self._my_bell, self._their_bell = (self._my_bell, self._their_bell), -1, -1
        for bell in bells:
            if bell >= 0:
                os.close(bell)
