"""A caller's connections to one agent: lines for threads, one connection for each event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import numpy as np

from sojourn.cluster.terms import AgentFacts
from sojourn.cluster.wire import words
from sojourn.cluster.wire.awaited import CallerEnd
from sojourn.cluster.wire.blocking import Line
from sojourn.cluster.wire.frames import BrokenFrame
from sojourn.errors import SojournError
from sojourn.process import crossing

CONNECT_SECONDS = 5.0
_MOST_IDLE = 64


class NodeLost(SojournError, ConnectionError):
    """A node does not answer any more. The outcome of requests under way is unknown."""


class Link:
    """All connections of this process to one agent."""

    def __init__(self, facts: AgentFacts) -> None:
        self.facts = facts
        self.leases = 0  # that this process has at the agent
        self.calls = 0  # of functions, under way
        self.is_cut = False
        self.is_suspect = False  # the agent did not answer the last request
        self._lock = threading.Lock()
        self._idle: list[Line] = []
        self._busy: set[Line] = set()
        self._awaited = 0
        self._ends: dict[asyncio.AbstractEventLoop, asyncio.Task[CallerEnd]] = {}

    @property
    def node(self) -> str:
        return self.facts.node

    @property
    def is_usable(self) -> bool:
        return not (self.is_cut or self.is_suspect)

    @property
    def is_waited_for(self) -> bool:
        """Whether an answer is pending, so that the agent's liveness must be checked."""
        with self._lock:
            return bool(self._busy) or self._awaited > 0

    def ask(
        self,
        body: Any,
        arrays: Sequence[np.ndarray] = (),
        deadline: float | None = None,
    ) -> tuple[Any, list[np.ndarray]]:
        """Send a request and return the answer. Raises the agent's error, NodeLost, or TimeoutError
        at the deadline."""
        return _checked(self.ask_raw(body, arrays, deadline))

    def ask_raw(
        self,
        body: Any,
        arrays: Sequence[np.ndarray] = (),
        deadline: float | None = None,
    ) -> tuple[Any, list[np.ndarray]]:
        """Do the same as `ask`, but return an error of the agent like any answer."""
        line = self._take(deadline)
        is_whole = False
        try:
            answer = line.ask(body, arrays, deadline)
            is_whole, self.is_suspect = True, False
        except (TimeoutError, UnicodeEncodeError):
            raise  # text that cannot be encoded is the caller's error
        except (OSError, ValueError, BrokenFrame) as error:
            raise self._lost(f"does not answer any more: {error}") from None
        finally:
            self._put_back(line, is_whole)
        return answer

    def cut_off(self, call: int) -> None:
        """End the worker of a function whose caller no longer waits."""
        try:
            self.ask(words.CutOff(call), (), time.monotonic() + CONNECT_SECONDS)
        except (SojournError, OSError):
            pass  # the node is lost, and the worker with it

    async def aask(self, body: Any, arrays: Sequence[np.ndarray] = ()) -> tuple[Any, Any]:
        """Send a request and await the answer, without a deadline."""
        with self._lock:
            self._awaited += 1
        try:
            end = await self._end_of_loop()
            answer = await end.ask(body, arrays)
            self.is_suspect = False
        except (OSError, BrokenFrame, asyncio.TimeoutError) as error:
            raise self._lost(f"does not answer any more: {error}") from None
        finally:
            with self._lock:
                self._awaited -= 1
        return _checked(answer)

    def cut(self) -> None:
        """Close the link: all callers that wait for an answer get an error."""
        with self._lock:
            self.is_cut = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for line in idle:
            line.close()
        for line in busy:
            line.cut()
        for loop, task in list(self._ends.items()):
            try:
                loop.call_soon_threadsafe(_abort, task)
            except RuntimeError:
                pass  # that loop is closed

    def _take(self, deadline: float | None) -> Line:
        with self._lock:
            if self.is_cut:
                raise NodeLost(f"node {self.node} is lost")
            if self._idle:
                line = self._idle.pop()
                self._busy.add(line)
                return line
        timeout = CONNECT_SECONDS
        if deadline is not None:
            timeout = min(timeout, max(0.001, deadline - time.monotonic()))
        try:
            line = Line(self.facts.address, self.facts.token, timeout, self.facts.local_name)
        except (OSError, BrokenFrame) as error:
            raise self._lost(f"cannot be reached: {error}") from None
        with self._lock:
            self._busy.add(line)
            is_cut = self.is_cut
        if is_cut:  # cut during the connect: nothing else would close this line
            self._put_back(line, False)
            raise NodeLost(f"node {self.node} is lost")
        return line

    def _lost(self, why: str) -> NodeLost:
        self.is_suspect = True
        return NodeLost(f"node {self.node} {why}")

    def _put_back(self, line: Line, is_whole: bool) -> None:
        with self._lock:
            self._busy.discard(line)
            if is_whole and not self.is_cut and len(self._idle) < _MOST_IDLE:
                self._idle.append(line)
                return
        line.close()

    async def _end_of_loop(self) -> CallerEnd:
        loop = asyncio.get_running_loop()
        task = self._ends.get(loop)
        if task is None or (task.done() and not task.result().is_open):
            for other in [other for other in self._ends if other.is_closed()]:
                self._ends.pop(other, None)  # it was closed without the cleanup below
            task = self._ends[loop] = loop.create_task(self._connect(loop))
        return await asyncio.shield(task)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> CallerEnd:
        try:
            return await self._connected(loop)
        except BaseException:
            self._forget(loop, asyncio.current_task())  # its error would keep frames alive
            raise

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> CallerEnd:
        _, end = await asyncio.wait_for(self._made(loop), CONNECT_SECONDS)
        try:
            await asyncio.wait_for(end.ready, CONNECT_SECONDS)
            if self.is_cut:
                raise ConnectionResetError("it is lost")
            end.kept_by = self._kept_while_the_loop_lives(end, loop)
            await anext(end.kept_by)
        except BaseException:
            end.abort()
            raise
        return end

    def _forget(self, loop: asyncio.AbstractEventLoop, connected: Any) -> None:
        if self._ends.get(loop) is connected:
            del self._ends[loop]

    async def _made(self, loop: asyncio.AbstractEventLoop) -> tuple[Any, CallerEnd]:
        facts = self.facts
        if facts.local_name:
            local = socket.socket(socket.AF_UNIX)  # uvloop does not support abstract names
            try:
                local.setblocking(False)
                await loop.sock_connect(local, f"\0{facts.local_name}")
                return await loop.create_unix_connection(lambda: CallerEnd(facts.token), sock=local)
            except OSError:
                local.close()  # the agent is in another network namespace
            except BaseException:
                local.close()
                raise
        return await loop.create_connection(lambda: CallerEnd(facts.token), *facts.address)

    async def _kept_while_the_loop_lives(
        self, end: CallerEnd, loop: asyncio.AbstractEventLoop
    ) -> AsyncGenerator[None, None]:
        """Close the connection with its event loop: a loop at its end closes its asynchronous
        generators."""
        connected = asyncio.current_task()
        try:
            yield
        finally:
            end.abort()
            self._forget(loop, connected)


def _abort(task: asyncio.Task[CallerEnd]) -> None:
    if task.done() and not task.cancelled() and task.exception() is None:
        task.result().abort()


def _checked(answer: tuple[Any, Any]) -> tuple[Any, Any]:
    if type(answer[0]) is words.Failed:
        raise crossing.revive(answer[0].error)
    return answer
