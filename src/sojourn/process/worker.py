"""The client's handle on one worker: call it, measure it, end it, and report how it ended."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from sojourn import events
from sojourn.engines import shortage
from sojourn.engines.hooks import DEFAULT
from sojourn.errors import OutOfMemory
from sojourn.probes import processes
from sojourn.process import callbacks, crossing, lifeline, limits, marks
from sojourn.process.calls import OK, NoAnswer, PreparedStep, WorkerDied, call_meta, forget_frames
from sojourn.process.forked import ForkedProcess
from sojourn.process.lanes import Lanes, under_way
from sojourn.process.nets import net
from sojourn.process.output import Output
from sojourn.process.protocol import Close, Fork, HandOver
from sojourn.process.surroundings import Surroundings
from sojourn.process.worker_ends import OF_A_WORKER, Ending
from sojourn.process.zygote import twice, zygote_for
from sojourn.transport import frames
from sojourn.transport.lane import Answer, PeerGone
from sojourn.transport.messages import ProtocolError
from sojourn.values import format_bytes
from sojourn.values.rows import Rows

if TYPE_CHECKING:
    from sojourn.process.awaiting import AwaitedLanes

T = TypeVar("T")
# What ends an exchange before its answer: the worker's end, a protocol error, the deadline.
_INTERRUPTED = (PeerGone, ProtocolError, TimeoutError)
_KILL_GRACE_SECONDS = 1.0


class Worker(ForkedProcess):
    """One child process with its lanes. Thread-safe; the session decides who may call when."""

    def __init__(
        self,
        name: str,
        *,
        framework: str = DEFAULT,
        memory_bytes: int | None = None,
        environment: dict[str, str] | None = None,
        readable_paths: list[str] | None = None,
        best_effort_sandbox: bool = False,
        is_spare: bool = False,
        deadline: float | None = None,
    ) -> None:
        """Fork the worker. Raises NoAnswer if it has not started by the deadline. A spare worker
        gets its session later, by `hand_over`."""
        super().__init__(name, zygote_for(framework), is_spare)
        self._memory_bytes = memory_bytes
        # The client of a trusted worker accepts whatever it answers and shows whatever it prints.
        self._is_trusted = readable_paths is None
        self._most_bytes: int | None = None
        if memory_bytes is not None and not self._is_trusted:
            self._most_bytes = limits.answer_bytes(memory_bytes)
        self._answering: callbacks.Answering | None = None
        self._awaited_by: MutableMapping[Any, AwaitedLanes] = weakref.WeakKeyDictionary()
        self._awaited_latest: Callable[[], AwaitedLanes | None] = lambda: None
        self._environment = environment
        surroundings = self._surroundings(environment)
        if is_spare:  # it logs to its session once it has one
            surroundings = msgspec.structs.replace(surroundings, logging=None)
        self._settings = surroundings.settings()
        order = Fork(
            ticket=0,
            name=name,
            client_pid=os.getpid(),
            mark=self._mark,
            surroundings=surroundings,
            memory_bytes=memory_bytes,
            readable_paths=readable_paths,
            best_effort_sandbox=best_effort_sandbox,
            is_spare=is_spare,
        )
        twice(lambda: self._start(order, deadline))
        _live.add(self)
        events.emit(self._kinds.started, name, worker_pid=self.pid)

    def _surroundings(self, environment: dict[str, str] | None) -> Surroundings:
        return Surroundings.here(
            {**(environment or {}), marks.NAME: self._mark}, secretive=not self._is_trusted
        )

    def _start(self, order: Fork, deadline: float | None) -> None:
        # If anything here is refused or interrupted, everything made before it is closed; a process
        # that was already forked ends with its lifeline. The net is for a Ctrl-C right afterwards.
        held: list[Any] = []
        self._net = net(self, _close_all, held)
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            undo.callback(held.clear)
            self.output = Output(trusted=self._is_trusted)
            undo.callback(self.output.close)
            self._control, their_control = map(undo.enter_context, frames.pair())
            theirs.callback(their_control.close)
            self._lifeline, their_lifeline = map(undo.enter_context, lifeline.pair())
            theirs.callback(their_lifeline.close)
            given = [their_control.fileno(), their_lifeline.fileno(), self.output.out.fd]
            self.pid, self.pidfd = self._zygote.fork(order, [*given, self.output.err.fd], deadline)
            undo.callback(self._discard)
            self._lanes = Lanes(
                self.name,
                self._control,
                self.pidfd,
                trusted=self._is_trusted,
                most_bytes=self._most_bytes,
            )
            held += (self._lanes, self._control, self._lifeline, self.output, self.pidfd)
            undo.pop_all()

    def _discard(self) -> None:
        """End and reap a worker that was forked but will never be used."""
        self.kill()
        self._reap()
        os.close(self.pidfd)

    # -- spare ---------------------------------------------------------------------------------

    def warm(self, deadline: float | None = None) -> None:
        """Have the framework do the set-up that the first model would otherwise wait for."""
        self.call("warm", {}, deadline=deadline)

    def fits(self, framework: str, environment: dict[str, str] | None) -> bool:
        """Whether this spare worker could serve a session with these options."""
        return self._zygote is zygote_for(framework) and self._is_like_new(environment)

    def is_stale(self) -> bool:
        """Whether this spare worker has died, or differs from one that would be made now."""
        return not self._is_like_new(self._environment)

    def _is_like_new(self, environment: dict[str, str] | None) -> bool:
        answers = self.is_alive and not processes.is_stopped(self.pid)
        return answers and self._settings == self._surroundings(environment).settings()

    def hand_over(
        self, name: str, environment: dict[str, str] | None, deadline: float | None
    ) -> None:
        """Give a spare worker to a session, as if it had just been forked for it."""
        surroundings = self._surroundings(environment)
        self.call("hand_over", HandOver(name, surroundings), deadline=deadline)
        self.name = self._lanes.name = name
        self._kinds = OF_A_WORKER
        events.emit(self._kinds.started, name, worker_pid=self.pid, was_spare=True)

    # -- calling -------------------------------------------------------------------------------

    def step(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> list[np.ndarray]:
        """Run a prepared step. The results own their memory."""
        show = self.output.show if step.prints else None
        try:
            status, answer, results = self._lanes.exchange(
                step.meta,
                arrays,
                adoptable=step.adoptable,
                deadline=deadline,
                while_waiting=show,
            )
        except _INTERRUPTED as error:
            raise self._what_it_means(error) from None
        if show is not None:
            show()
        if status != OK:
            raise self._revived(answer, None)
        return results

    async def astep(
        self, step: PreparedStep, arrays: Sequence[np.ndarray | Rows], deadline: float | None
    ) -> list[np.ndarray]:
        """Run a prepared step, awaited."""
        try:
            status, answer, results = await self._awaited().exchange(
                step.meta,
                arrays,
                adoptable=step.adoptable,
                may_wait=step.may_wait,
                prints=step.prints,
                deadline=deadline,
            )
        except _INTERRUPTED as error:
            raise self._what_it_means(error) from None
        if step.prints:
            self.output.show()
        if status != OK:
            raise self._revived(answer, None)
        return results

    def call(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: type[T] | Any = Any,
        deadline: float | None = None,
        graph: Any = None,
    ) -> tuple[Any, list[np.ndarray]]:
        """Have the engine carry out a named operation. The results own their memory."""
        try:
            answer = self._lanes.exchange(
                call_meta(name, arguments),
                arrays,
                may_spin=False,
                deadline=deadline,
                while_waiting=self.output.show,
            )
        except _INTERRUPTED as error:
            raise self._what_it_means(error) from None
        return self._decoded(answer, result, graph)

    async def acall(
        self,
        name: str,
        arguments: Any,
        arrays: Sequence[np.ndarray] = (),
        *,
        result: type[T] | Any = Any,
        deadline: float | None = None,
        may_wait: bool = True,
    ) -> tuple[Any, list[np.ndarray]]:
        """Have the engine carry out a named operation, awaited."""
        try:
            answer = await self._awaited().exchange(
                call_meta(name, arguments), arrays, may_wait=may_wait, deadline=deadline
            )
        except _INTERRUPTED as error:
            raise self._what_it_means(error) from None
        return self._decoded(answer, result, None)

    def _decoded(self, answer: Answer, result: Any, graph: Any) -> tuple[Any, list[np.ndarray]]:
        status, meta, results = answer
        self.output.show()
        if status != OK:
            raise self._revived(meta, graph)
        try:
            return msgspec.msgpack.decode(meta, type=result), results
        except crossing.NONSENSE as error:
            raise self._death(error) from None

    def _awaited(self) -> AwaitedLanes:
        """Return the lanes as the running event loop uses them."""
        import asyncio  # only its users get here: they have imported it already

        from sojourn.process.awaiting import AwaitedLanes

        loop = asyncio.get_running_loop()
        latest = self._awaited_latest()
        if latest is not None and latest.is_of(loop):
            return latest
        awaited = self._awaited_by.get(loop)
        if awaited is None:
            awaited = self._awaited_by[loop] = AwaitedLanes(self._lanes, loop, self.output.show)
        self._awaited_latest = weakref.ref(awaited)  # the loop may be freed, and these lanes too
        return awaited

    def settle(self, deadline: float | None) -> None:
        """Wait until the worker carries out no request, not even one that no caller waits for."""
        try:
            self._lanes.settle(deadline)
        except _INTERRUPTED as error:
            raise self._what_it_means(error) from None

    def drain_awaited(self, deadline: float | None) -> None:
        """Wait for the requests of this thread's event loop, which is blocked meanwhile."""
        if not self._awaited_by or self.is_foreign:
            return
        import asyncio

        loop = asyncio._get_running_loop()
        awaited = None if loop is None else self._awaited_by.get(loop)
        if awaited is not None:
            awaited.drain(deadline)

    def _what_it_means(self, error: Exception) -> Exception:
        if isinstance(error, TimeoutError):
            forget_frames(error)
            return NoAnswer(sent=not isinstance(error, NoAnswer) or error.sent)
        return self._death(error)

    def _revived(self, answer: bytes, graph: Any) -> BaseException:
        try:
            return crossing.revive(answer, graph, trusted=self._is_trusted)
        except crossing.NONSENSE as error:
            return self._death(error)

    def answer_with(self, answer: callbacks.Answer) -> None:
        """Let the worker ask questions from now on; `answer` answers them, on client threads."""
        self._answering = callbacks.Answering(
            self._lanes.open_reverse, answer, self.kill, self.name
        )

    def is_calling_us(self) -> bool:
        """Whether this thread is answering a question of the worker, which waits for the answer."""
        return self._answering is not None and self._answering.is_answering_here()

    def _death(self, error: Exception) -> WorkerDied:
        forget_frames(error)
        if not isinstance(error, PeerGone):
            # The process that answers is no longer a worker to trust.
            self.kill()
            return WorkerDied(f"broke the protocol ({error}) and was ended", "")
        if not self._wait_for_end(_KILL_GRACE_SECONDS):
            self.kill()  # it is alive, but has closed its end
        ending = self._reap()
        self.output.show()
        last_words = self.output.last_words()
        if self._memory_bytes is None:
            return WorkerDied(str(ending), last_words, error.begun)
        if ending.is_out_of_memory or shortage.mentions_shortage(last_words):
            reached = shortage.was_reached(self._memory_bytes)
            how = f"ended because {reached} (it {shortage.HELD_THE_LIMIT})"
            return WorkerDied(how, last_words, error.begun, OutOfMemory)
        limit = format_bytes(self._memory_bytes)
        return WorkerDied(f"{ending} (its memory is limited to {limit})", last_words, error.begun)

    def death(self) -> WorkerDied | None:
        """Return how the worker died; None while it is alive."""
        return None if self.is_alive else self._death(PeerGone())

    # -- ending --------------------------------------------------------------------------------

    def end(self, grace_seconds: float = _KILL_GRACE_SECONDS) -> Ending:
        """Ask the worker to end, kill it if it does not within the grace, and reap it."""
        if self.is_foreign:
            return Ending(None)
        if self._ending is None:
            self._note_that_we_asked()
            try:
                frames.send(self._control, Close())
            except OSError:
                pass  # it has ended, or no longer reads
            if not self._wait_for_end(grace_seconds):
                self.kill()
        return self._reap()

    def release(self) -> None:
        """Close the descriptors. The worker must have ended."""
        if self._answering is not None:
            self._answering.stop()
        self._awaited_by.clear()
        self._lanes.close()
        with self._lock:
            self._close_descriptors()
        _live.discard(self)

    def _close_descriptors(self) -> None:
        self._net.detach()
        self._control.close()
        self._lifeline.close()
        self.output.close()
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)

    def _after_fork_in_child(self) -> None:
        # The child must neither keep the parent's worker alive nor talk to it.
        self.is_foreign = True
        self._awaited_by.clear()
        self._lock = threading.Lock()
        if self._answering is not None:
            self._answering.forget()
        self._lanes.after_fork_in_child()
        self.output.become_foreign()
        self._close_descriptors()


_live: weakref.WeakSet[Worker] = weakref.WeakSet()


def _forget_all_in_child() -> None:
    under_way.clear()
    for worker in list(_live):
        worker._after_fork_in_child()
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)


def _close_all(held: list[Any]) -> None:
    if held:
        *others, pidfd = held
        for each in others:
            each.close()
        os.close(pidfd)
