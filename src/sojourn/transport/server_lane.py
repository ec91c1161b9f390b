"""The answering end of a lane, served by one thread.

It looks for the next request for a while before it sleeps, and keeps off the core of its caller.
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

# About 100 us of looking at a word from Python, for the next request.
SPINS = 2500
_NEARLY_SECONDS = 250e-6
# How often a server that has given up spinning tries again, in calls.
_TRY_AGAIN = 32


class ServerLane:
    """The answering end, served by one thread."""

    def __init__(
        self,
        rows: tuple[memoryview, memoryview],
        channel: socket.socket,
        bells: tuple[int, int],
        attached: Attached | None = None,
    ) -> None:
        """`attached` takes what callers have placed; without it they may not."""
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
        self._is_apart = True  # from the core of its caller
        self._moves = 0  # in a row
        self._moved = 0.0
        self._poll = select.poll()
        self._poll.register(self._my_bell, select.POLLIN)

    def wait(self) -> tuple[bytes, list[np.ndarray]]:
        """The next request; its arrays are views that live until the answer has been given.

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
        """A caller rings before it copies much, so that the copy is not waited for asleep."""
        theirs = self._theirs
        spins = SPINS if CAN_SPIN and theirs[WELCOME] & MAY_SPIN else 0
        return any(theirs[SEQUENCE] == sequence for _ in range(spins))

    def _learn_from_blocking(self, seconds: float) -> None:
        """A caller that was only a little late is worth waiting for; for one that is slow or has
        gone quiet look less long, but never not at all, and now and then as long as at first: one
        that came late a few times must not be thought slow for ever."""
        self._calls_until_try -= 1
        if seconds < _NEARLY_SECONDS or self._calls_until_try <= 0:
            self._spins = SPINS
            self._calls_until_try = _TRY_AGAIN
        else:
            self._spins = max(SPINS // 16, self._spins // 2)

    def answer(self, status: int, meta: bytes, arrays: Sequence[np.ndarray]) -> None:
        """Give the answer to the request that was waited for."""
        mine = self._mine
        results = None
        if self._theirs[WELCOME] & MAY_HAND_OVER:
            results = self._results
            results.sequence = self._sequence
        self.outbox.put(meta, arrays, attacher=results)
        if not self._is_apart and self._theirs[WELCOME] & MAY_SPIN:
            self._move_apart()  # before it rings: who is woken goes to the core that is left
        mine[STATUS] = status
        mine[TOOK] = time.perf_counter_ns() - self._began
        mine[SEQUENCE] = self._sequence
        ring(self._their_bell)
        if results is not None and results.has_files:
            results.tidy()

    def _move_apart(self) -> None:
        """Leave the core to the caller, unless the kernel has its reasons to keep them together."""
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
        """Wake the thread that waits here, for good."""
        self._stopped = True
        if self._my_bell >= 0:  # else it has left already, and closed
            ring(self._my_bell)

    def close(self) -> None:
        """Give back the descriptors."""
        self._channel.close()
        self.inbox.close()
        bells, self._my_bell, self._their_bell = (self._my_bell, self._their_bell), -1, -1
        for bell in bells:
            if bell >= 0:
                os.close(bell)
