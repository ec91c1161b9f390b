"""One call, from its head to its last byte: it is read, answered and, in any case, reported."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sojourn.service.failures import Refused, Status, invalid, refusal
from sojourn.service.grpc import framing
from sojourn.service.grpc.calls import Call, Method
from sojourn.service.grpc.calls import Stream as Streaming
from sojourn.service.grpc.messages import DecodeError
from sojourn.service.http.limits import Pace
from sojourn.service.http2.stream import Stream

if TYPE_CHECKING:
    from sojourn.service.grpc.dispatch import Dispatch

_OK = 0
_NO_CALL = Call()
_MOST_WAITING = 16  # messages of a stream that wait for those before them
_MOST_WAITING_BYTES = 2**20  # of such messages
_MESSAGE_BYTES = 100  # overhead of one such message, besides its own bytes
_log = logging.getLogger("sojourn.service")


@dataclass(frozen=True, slots=True)
class Route:
    """The method behind a path."""

    path: str
    method: Method | Streaming
    asked: Any  # the class of its messages
    takes_many: bool
    model_of: Callable[[Any], str]


class Seen:
    """The facts of a call that are reported when it is over."""

    __slots__ = (
        "began", "metadata", "model", "path", "peer", "received", "request_id", "sent", "status",
    )  # fmt: skip

    def __init__(self, path: str, peer: str, metadata: Mapping[str, str], request_id: str) -> None:
        self.began = time.perf_counter()
        self.path = path
        self.peer = peer
        self.metadata = metadata
        self.request_id = request_id
        self.model = ""
        self.received = 0
        self.sent = 0
        self.status = _OK


class Exchange:
    """An authorized call. It is the reader of its stream."""

    def __init__(self, dispatch: Dispatch, stream: Stream, route: Route, seen: Seen) -> None:
        self._dispatch = dispatch
        self._stream = stream
        self._route = route
        self._seen = seen
        self._held = 0  # bytes that count as held ...
        self._waiting = 0  # ... and those of them in received messages that wait to be read
        self._task: asyncio.Task[None] | None = None
        self._cut: Refused | None = None  # why it ends early
        self._is_left = False  # the client has cancelled it or disconnected
        self._is_entered = False  # its task has started to run
        self._has_begun = False  # the head of the answer has been sent
        self._is_over = False
        fields = stream.head.fields
        self._coding = framing.coding_of(fields.get("grpc-encoding"))
        self._pace: Pace | None = None  # of a message that is being received
        self._messages = framing.Messages(dispatch.common.limits.body_bytes)
        deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        timeout = fields.get("grpc-timeout")
        if timeout is not None:
            seconds = framing.seconds_of(timeout)
            deadline = time.monotonic() + seconds
            self._timer = asyncio.get_running_loop().call_later(seconds, self._end_late)
        self._call = Call(deadline, seen.request_id, self.hold, seen.peer)
        # Set when more messages of a stream arrive, and at the end of the stream or the server.
        self._more: asyncio.Event | None = None
        if route.takes_many:
            self._more = asyncio.Event()
            self._start(self._answer_all)

    # -- receiving -------------------------------------------------------------------------------

    def data(self, piece: bytes) -> bool:
        try:
            if not self._route.takes_many:
                self._count(len(piece))
                self._messages.feed(piece)
                self._check_single()
                return True
            return self._add(piece)
        except Refused as refused:
            self.cut(refused)
            return True

    def _check_single(self) -> None:
        waiting = self._messages.whole
        if waiting and (len(waiting) > 1 or not self._messages.is_between):
            raise invalid("the call has more than one message")

    def _add(self, piece: bytes) -> bool:
        """Take some bytes of a stream of messages; returns whether there is room for more."""
        waiting = self._messages.whole
        before = len(waiting)
        try:
            self._messages.feed(piece)
        finally:
            count = len(piece) + (len(waiting) - before) * _MESSAGE_BYTES
            self._waiting += count
            self._count(count)
        if waiting:
            self._wake()
        return self._has_room()

    def _has_room(self) -> bool:
        count = len(self._messages.whole)
        return count < 2 or (count < _MOST_WAITING and self._waiting < _MOST_WAITING_BYTES)

    def end(self) -> None:
        if self._is_over:
            return
        if not self._messages.is_between:
            self.cut(invalid("the message is cut short"))
        elif self._route.takes_many:
            self._wake()
        elif not self._messages.whole:
            self.cut(invalid("the call has no message"))
        else:
            self._start(self._answer_one)

    def lost(self) -> None:
        if self._is_over:
            return
        self._is_left = True
        self._seen.status = Status.CANCELLED.grpc
        if not self._call_off():
            self._finish()

    def is_busy(self) -> bool:
        return not self._is_over and self._task is not None

    @property
    def is_late(self) -> bool:
        """Whether its message has been missing for longer than a client may stall."""
        stall = self._dispatch.common.limits.stall_seconds
        return self._task is None and time.perf_counter() - self._seen.began > stall

    def is_stuck(self, now: float) -> bool:
        """Whether an incomplete message takes memory and arrives too slowly. Called at each
        periodic check."""
        messages = self._messages
        if messages.is_between or messages.whole or self._stream.is_held_up:
            self._pace = None  # the client may be waiting for us
        elif self._pace is None:
            self._pace = Pace(now, self._stream.came)
        else:
            return self._pace.is_too_slow(now, self._stream.came, self._dispatch.common.limits)
        return False

    def stop(self) -> None:
        """Wake a stream that waits for a message: it must not delay the stop of the server."""
        self._wake()

    def _wake(self) -> None:
        if self._more is not None:
            self._more.set()

    def _end_late(self) -> None:
        self.cut(Refused(Status.DEADLINE_EXCEEDED, "the call took longer than its client gave it"))

    def cut(self, why: Refused) -> None:
        """End the call early, for this reason."""
        if self._is_over or self._is_left or self._cut is not None:
            return
        self._cut = why
        if not self._call_off():
            self._fail(why)

    # -- held bytes ------------------------------------------------------------------------------

    def hold(self, count: int) -> None:
        """Count `count` more bytes as held for the call, until it ends."""
        most = self._dispatch.common.limits.body_bytes
        if count > most:
            raise Refused(Status.RESOURCE_EXHAUSTED, f"a request has at most {most} bytes")
        self._count(count)

    def _count(self, count: int) -> None:
        self._held += count
        self._dispatch.common.hold(count)

    def _give_back(self, count: int) -> None:
        self._held -= count
        self._dispatch.common.give_back(count)

    # -- answering -------------------------------------------------------------------------------

    def _start(self, answer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(answer))

    def _call_off(self) -> bool:
        """Cancel the call's task; returns whether the task will end the call. A task that has not
        started yet is cancelled without running any code."""
        if self._task is not None:
            self._task.cancel()
        return self._is_entered

    async def _run(self, answer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._is_entered = True
        try:
            await answer()
        except Exception as error:
            self._fail(refusal(error))
        except asyncio.CancelledError:
            # What the call awaited may have been cancelled instead: the client gets an error too.
            if not self._is_left:
                self._fail(self._cut or Refused(Status.CANCELLED, "the call was called off"))
        finally:
            self._finish()

    async def _answer_one(self) -> None:
        seen, route = self._seen, self._route
        request = await self._next()
        if not isinstance(route.method, Method):
            await self._answer_many(request)
            return
        seen.model = route.model_of(request)
        response = await route.method.answer(request, self._call)
        sent = bytes(response.SerializeToString())
        seen.sent = len(sent)
        self._finish()
        self._stream.answer(framing.HEAD, framing.prefixed(sent), framing.OK)

    async def _answer_all(self) -> None:
        await self._answer_many(self._requests())

    async def _answer_many(self, given: Any) -> None:
        """Stream the answers to `given`: one message, or an iterator of all messages."""
        stream = self._stream
        assert isinstance(self._route.method, Streaming)
        answers = self._route.method.answer(given, self._call)
        async with contextlib.aclosing(answers):  # type: ignore[type-var]
            async for response in answers:
                sent = bytes(response.SerializeToString())
                self._seen.sent += len(sent)
                self._begin()
                stream.send(framing.prefixed(sent))
                await stream.sent()
        self._begin()
        self._finish()
        stream.finish(framing.OK)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._stream.begin(framing.HEAD)

    async def _requests(self) -> AsyncIterator[Any]:
        """The messages of a stream, until the client ends it or the server stops."""
        waiting, more = self._messages.whole, self._more
        assert more is not None
        while True:
            if waiting:
                self._waiting -= _MESSAGE_BYTES + framing.PREFIX_BYTES + len(waiting[0][1])
                request = await self._next()
                if self._has_room():
                    self._stream.taken()
                yield request
                self._give_back(self._held - self._waiting)
            elif self._stream.has_ended or self._dispatch.is_stopping:
                return
            else:
                more.clear()
                await more.wait()

    async def _next(self) -> Any:
        """Take and parse the oldest waiting message."""
        is_compressed, body = self._messages.whole.popleft()
        self._seen.received += len(body)
        if is_compressed:
            if self._coding == "identity":
                raise invalid("the message is compressed, and its call does not say how")
            body = await self._dispatch.unfolding.whole(body, self._coding, self._count)
        asked = self._route.asked
        try:
            return asked.FromString(body)
        except DecodeError:
            raise invalid(f"the message is not a {asked.DESCRIPTOR.full_name}") from None

    # -- ends ------------------------------------------------------------------------------------

    def _fail(self, told: Refused) -> None:
        """End the call with this error."""
        if self._is_over:
            return
        seen = self._seen
        if told.status is Status.INTERNAL and told.__cause__ is not None:
            _log.error("request %s: %s", seen.request_id, seen.path, exc_info=told.__cause__)
        seen.status = told.status.grpc
        self._finish()
        refuse(self._stream, told, seen.request_id, has_begun=self._has_begun)

    def _finish(self) -> None:
        """Release what the call holds and report it, before the client receives the end."""
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._give_back(self._held)
        self._task = self._stream.reader = None
        self._call = _NO_CALL  # breaks a reference cycle, so that no garbage collection is needed
        self._dispatch.over(self, self._seen)
        self._stream.left()


def refuse(stream: Stream, told: Refused, request_id: str, *, has_begun: bool = False) -> None:
    """End a call with this error."""
    more = [("x-request-id", request_id)]
    if told.retry_after is not None:
        more.append(("grpc-retry-pushback-ms", str(round(told.retry_after * 1000))))
    trailers = framing.failed(told.status, str(told), *more)
    if has_begun:
        stream.finish(trailers)
    else:
        stream.answer(framing.HEAD + trailers, (), b"")
