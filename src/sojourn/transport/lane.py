"""A lane carries one request at a time from a caller to a server, which answers in order. This is
the caller's end; the server's end is in `server_lane`.

A caller sends, waits and takes the answer. Either a thread waits (`wait`), or an event loop that
watches `bell` and checks `has_answer`.

Waking up: the writer changes its sequence word and always also writes an eventfd. The reader spins
on the word for a short while and then reads the eventfd, so that no wake-up is lost and an idle
session uses no CPU. A stale count in the eventfd costs one extra check of the word.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Sequence

import numpy as np

from sojourn.transport.attachments import HandedOverFiles, PlacedFiles
from sojourn.transport.board import CAN_SPIN
from sojourn.transport.cores import current_core
from sojourn.transport.messages import LAYOUT, SEQUENCE, STATUS, Inbox, Outbox, ProtocolError
from sojourn.transport.patience import Learned, Patience
from sojourn.values.rows import Rows

_ENDING_SECONDS = 1.0
_LONGEST_POLL = 86_400_000  # milliseconds; the kernel accepts at most 24 days
_SPOILED = -1  # a sequence number that no word can have
# In the caller's row: with each request the caller says whether the server may spin for the next
# one, and whether results may be handed over as memory.
WELCOME = 5
# In the server's row: the number of the request that it has begun to carry out.
BEGUN = 5
TOOK = 6  # nanoseconds from beginning a request to its answer
CORE = 7  # in both rows: the core that the writer runs on
MAY_SPIN, MAY_HAND_OVER = 1, 2
Answer = tuple[int, bytes, list[np.ndarray]]


class PeerGone(Exception):
    """The process at the other end of the lane has ended.

    `begun`: it may have carried out part of the request. If not, it has never seen the request.
    """

    def __init__(self, begun: bool = False) -> None:
        super().__init__()
        self.begun = begun


class LaneRefused(Exception):
    """The peer is alive, but could not open its end of the lane."""


def new_bell() -> int:
    """Return a new eventfd. The peer holds it too, so nothing here may ever block on it."""
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def ring(bell: int) -> None:
    """Wake the process that waits on this bell."""
    try:
        os.eventfd_write(bell, 1)
    except BlockingIOError:
        pass  # the counter is full: the waiting process is already awake


def silence(bell: int) -> None:
    """Clear the bell, so that it wakes nobody until it is rung again."""
    try:
        os.read(bell, 8)
    except BlockingIOError:
        pass  # already clear: the peer may clear it too


class CallerLane:
    """The caller's end of a lane. Used by one caller at a time."""

    def __init__(
        self,
        index: int,
        rows: tuple[memoryview, memoryview],
        channel: socket.socket,
        bells: tuple[int, int],
        peer_pidfd: int,
        most_bytes: int | None = None,
        *,
        hands_over: bool = False,
    ) -> None:
        """`hands_over`: placed arrays and large results cross without a copy. Only for a peer that
        is trusted not to change a result after handing it over."""
        self.index = index
        self._mine, self._theirs = rows
        self._channel = channel
        self._their_bell, self.bell = bells
        self.outbox = Outbox(self._mine, channel)
        self._results = HandedOverFiles(self._mine) if hands_over else None
        self.inbox = Inbox(self._theirs, channel, most_bytes, self._results)
        self._placed = PlacedFiles() if hands_over else None
        self._welcome = MAY_HAND_OVER if hands_over else 0
        self._in_use: Sequence[object] | None = None  # arrays that the server reads in place
        self._peer_pidfd = peer_pidfd
        self._sequence = 0
        self._taken = 0  # the last request whose answer was read
        self._learned = Learned()
        self._patience = Patience()  # for the request that was sent last
        self._poll = select.poll()
        self._poll.register(self.bell, select.POLLIN)
        self._poll.register(peer_pidfd, select.POLLIN)
        self._poll.register(channel, 0)  # reports only that the other end is closed

    def exchange(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        *,
        may_spin: bool = True,
        deadline: float | None = None,
    ) -> Answer:
        """Send a request, wait for its answer and take it."""
        self.send(meta, arrays, may_spin=may_spin)
        self.wait(may_spin=may_spin, deadline=deadline)
        return self.take()

    def send(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        *,
        adoptable: bool = False,
        may_spin: bool = True,
    ) -> None:
        """Send a request. After any exception here or later the lane counts as in use until the
        late answer has arrived (`has_answer`)."""
        mine = self._mine
        if self._taken != self._sequence:
            self.take()  # a late answer: later messages refer to the layouts and memory it brought
        # Counted before it is written: a Ctrl-C in between leaves a lane that never counts as free
        # again, because it is unknown how much of the message was written.
        self._sequence = sequence = self._sequence + 1
        mine[WELCOME] = self._welcome + may_spin
        if may_spin:
            before = self.outbox.last.get(meta)
            if before is not None and before.is_slow:
                ring(self._their_bell)  # the server wakes up while the data is copied
        try:
            if self.outbox.put(
                meta, arrays, adoptable=adoptable, attacher=self._placed if adoptable else None
            ):
                self._in_use = arrays
        except ConnectionError:
            raise self._gone() from None
        except Exception:
            self._sequence = sequence - 1  # refused before anything was written
            raise
        if may_spin:
            self._patience = self._learned.of(meta, mine[LAYOUT])
            mine[CORE] = current_core()
        mine[SEQUENCE] = sequence
        ring(self._their_bell)

    def wait(
        self,
        *,
        may_spin: bool = True,
        deadline: float | None = None,
        while_waiting: Callable[[], None] | None = None,
    ) -> None:
        """Block this thread until the answer arrives.

        Raises TimeoutError at the deadline and PeerGone when the peer has ended.
        """
        theirs, sequence = self._theirs, self._sequence
        if not (may_spin and CAN_SPIN and self.is_apart):
            self._block(sequence, deadline, while_waiting)
            return
        patience = self._patience
        looks = patience.looks()
        began = time.perf_counter() if patience.is_trying else 0.0
        for _ in range(looks):
            if theirs[SEQUENCE] == sequence:
                was_seen = True
                break
        else:
            was_seen = False
            self._block(sequence, deadline, while_waiting)
        if patience.is_trying:
            patience.learn(began, time.perf_counter(), was_seen=was_seen)

    def take(self) -> Answer:
        """Return status, meta and arrays of the answer; the arrays own their memory."""
        try:
            meta, arrays = self.inbox.take_owned()
        except BaseException:
            self._sequence = _SPOILED  # the answer is lost or cannot be trusted
            raise
        self._taken = sequence = self._sequence
        self._in_use = None
        if self._results is not None and sequence >= self._results.tidy_at:
            self._results.tidy(sequence)
        return self._theirs[STATUS], meta, arrays

    @property
    def has_answer(self) -> bool:
        """Whether the answer to the last request has arrived."""
        return self._theirs[SEQUENCE] == self._sequence

    @property
    def is_apart(self) -> bool:
        """Whether the server last ran on another core: on the same core it cannot run while the
        caller spins."""
        return self._theirs[CORE] != self._mine[CORE]

    @property
    def layout(self) -> int:
        """The number of the last request's layout: the dtypes and shapes of its arrays."""
        return self._mine[LAYOUT]

    @property
    def seconds(self) -> float:
        """How long the last request took in the server, as the server reports it."""
        return float(self._theirs[TOOK]) / 1e9

    def answers_within(self, glances: int) -> bool:
        """Spin that many times at most; return whether the answer has arrived."""
        theirs, sequence = self._theirs, self._sequence
        for _ in range(glances):  # noqa: SIM110 - hot, and a generator takes longer
            if theirs[SEQUENCE] == sequence:
                return True
        return False

    @property
    def is_refused(self) -> bool:
        """Whether the other end was closed before it ever answered."""
        return not self._taken and any(fd == self._channel.fileno() for fd, _ in self._poll.poll(0))

    @property
    def serial(self) -> int:
        """The number of the request that was sent last."""
        return self._sequence

    def _block(
        self, sequence: int, deadline: float | None, while_waiting: Callable[[], None] | None
    ) -> None:
        theirs = self._theirs
        while True:
            timeout = 50 if while_waiting else None
            if deadline is not None:
                left = (deadline - time.monotonic()) * 1000
                if left <= 0:
                    raise TimeoutError
                timeout = min(left, timeout or _LONGEST_POLL)  # type: ignore[assignment]
            ready = {fd for fd, _ in self._poll.poll(timeout)}
            if self.bell in ready:
                silence(self.bell)
            # Checked after the system call, which acts as a memory fence on every processor.
            if theirs[SEQUENCE] == sequence:
                return
            # A peer writes its answer before it ends, so no answer can follow. A bell may still
            # ring: a process that the peer has left behind may hold it.
            if ready - {self.bell}:
                raise self._gone()
            if while_waiting and not ready:
                while_waiting()

    def _gone(self) -> Exception:
        """Return the error that says why the other end is closed."""
        # A process closes its files a moment before its pidfd reports that it has ended.
        until = time.monotonic() + _ENDING_SECONDS
        while not self._taken and time.monotonic() < until:
            if any(fd == self._peer_pidfd for fd, _ in self._poll.poll(0)):
                return self.peer_gone()
            time.sleep(0.001)
        return self.peer_gone() if self._taken else LaneRefused()

    def peer_gone(self) -> PeerGone:
        """Return the error to raise when the peer has ended."""
        return PeerGone(self._theirs[BEGUN] == self._sequence)

    def close(self) -> None:
        """Close the descriptors. Arrays that are still referenced stay valid."""
        self._channel.close()
        self.inbox.close()
        self._in_use = None
        bells, self.bell, self._their_bell = (self.bell, self._their_bell), -1, -1
        for bell in bells:
            if bell >= 0:
                os.close(bell)


__all__ = ["CallerLane", "LaneRefused", "PeerGone", "ProtocolError"]
