"""One client's connection: bytes to requests and responses to bytes, both within limits.

Requests of a connection are answered one after the other, in order. Everything here runs on the
server's loop. The listener checks the timeouts of all connections together, periodically.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import httptools

from sojourn.service.failures import Refused
from sojourn.service.http.heads import (
    BODILESS,
    UNASKED_BYTES,
    KnownHeads,
    head_of,
    plain_head,
)
from sojourn.service.http.incoming import Incoming, Refusal
from sojourn.service.http.limits import Common, Pace
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.phases import Phase

Answering = Callable[[Request], Awaitable[Response]]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINGER_SECONDS = 2.0  # between refusal and abort, so that a client still sending reads the reason
_BUSY_SECONDS = 1.0  # a client whose last request is no older is expected to send another ...
_LAST_SECONDS = 0.2  # ... within this time, when the server stops
_SHOWN_BYTES = 200  # of a refused request's path
_LARGE_BYTES = 2**14  # a body from this size on is not copied behind its head
_ALSO_TOLD = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}


class Connection(asyncio.Protocol):
    """The protocol of one client, from connect to disconnect."""

    def __init__(
        self,
        answer: Answering,
        gone: Callable[[Connection], None],
        is_welcome: Callable[[Connection], bool],
        common: Common,
        heads: KnownHeads,
        refused: Callable[[Request, Response], None],
        admit: Callable[[Request], None],
    ) -> None:
        self._answer = answer
        self._limits = common.limits
        self._gone = gone
        self._is_welcome = is_welcome
        self._common = common
        self._heads = heads
        self._refused = refused  # called for requests that could not be read
        self._admit = admit  # raises Refused if the sender may not send a large body
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._loop: asyncio.AbstractEventLoop = cast(asyncio.AbstractEventLoop, None)
        self._parser = httptools.HttpRequestParser(self)
        self.phase = Phase.IDLE
        self._since = 0.0  # when the phase began
        self._peer = ""
        self._incoming = Incoming(common.limits)  # the request that is being read
        self._held_bytes = 0  # of all requests that have no answer yet
        # Requests that have been read, and whether the connection stays open after each.
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._is_draining = False
        self._can_write: asyncio.Event | None = None  # set while the write buffer is full
        self._unread: Pace | None = None  # likewise

    # -- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._since = self._common.now
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else "unix"
        if not self._is_welcome(self):
            self._refuse(503, "the server has as many connections as it takes")

    def connection_lost(self, error: Exception | None) -> None:
        self.phase = Phase.OVER
        self._waiting.clear()
        self._give_back(self._held_bytes)
        if self._can_write is not None:
            self._can_write.set()
        if self._serving is not None:
            self._serving.cancel()  # nobody is there to read the answer
        self._gone(self)

    def data_received(self, data: bytes) -> None:
        before = self.phase
        if before is Phase.OVER:
            return
        is_between = before is Phase.IDLE or before is Phase.ANSWER
        try:
            if is_between and (known := self._heads.whole(data)) is not None:
                self._incoming.url, request = known
                request.peer = self._peer
                self._hold(request.size)
                self._begin(request, keeps=True)
                return
            self._feed(data)
            if is_between and self.phase is Phase.ANSWER and self._parser.should_keep_alive():
                incoming = self._incoming
                self._heads.note(data, incoming.url, self._request(), incoming.body_bytes)
            if self.phase is not Phase.ANSWER:
                self._incoming.count_unread(len(data), is_body=self.phase is Phase.BODY)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "Malformed request: this is no proxy to CONNECT through")
        except Refusal as refusal:
            self._refuse(*refusal.args)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, Refusal):
                raise
            self._refuse(*cause.args)
        except httptools.HttpParserError as error:
            self._refuse(400, f"Malformed request: it is not HTTP/1.1: {error}")

    def _feed(self, data: bytes | memoryview) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # Parse the head again without the upgrade: else the parser ignores the body.
                data = memoryview(data)[upgrade.args[0] :]
                head = plain_head(self._parser, self._incoming.url, self._incoming.headers)
                self._parser = httptools.HttpRequestParser(self)
                self._parser.feed_data(head)

    def eof_received(self) -> bool:
        return False  # a client that closes its sending side counts as disconnected

    def pause_writing(self) -> None:
        self._can_write = asyncio.Event()
        self._unread = Pace(self._common.now, -self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._can_write is not None:
            self._can_write.set()
            self._can_write = self._unread = None

    # -- the parser's calls ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._incoming = Incoming(self._limits)
        self._enter(Phase.HEAD)

    def on_url(self, url: bytes) -> None:
        self._incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._incoming.add_header(name, value, is_trailer=self.phase is Phase.BODY)

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # `_feed` parses the head again, without the upgrade
        self._incoming.check_head()
        if "expect" in self._incoming.headers:
            self._check_sender()
            if self._serving is None:
                self._transport.write(_CONTINUE)
        self._enter(Phase.BODY)

    def on_body(self, piece: bytes) -> None:
        count, incoming = len(piece), self._incoming
        incoming.count(count)
        if incoming.body_bytes > UNASKED_BYTES >= incoming.body_bytes - count:
            self._check_sender()
        self._hold(count)
        incoming.add(piece)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        request = self._request()
        request.body, request.size = self._incoming.take_body(), self._incoming.body_bytes
        self._begin(request, self._parser.should_keep_alive())

    def _begin(self, request: Request, keeps: bool) -> None:
        """Answer a complete request as soon as those before it are answered."""
        self._enter(Phase.ANSWER)
        if self._serving is None:
            self._serving = self._loop.create_task(self._serve(request, keeps))
            return
        self._waiting.append((request, keeps))
        if len(self._waiting) >= self._limits.pipelined:
            self._transport.pause_reading()

    def _request(self) -> Request:
        path, _, query = self._incoming.url.decode("latin-1").partition("?")
        method = self._parser.get_method().decode("latin-1")
        request = Request(method, path, query, self._incoming.headers, peer=self._peer)
        request.takes_chunks = self._parser.get_http_version() != "1.0"
        return request

    def _check_sender(self) -> None:
        """Authorize the sender before the body takes memory that others might need."""
        try:
            self._admit(self._request())
        except Refused as refused:
            raise Refusal(refused.status.http, str(refused)) from None

    # -- answering -------------------------------------------------------------------------------

    async def _serve(self, request: Request, keeps: bool) -> None:
        try:
            while True:
                response = await self._answer(request)
                keeps = keeps and not self._is_draining
                if not isinstance(response.body, bytes):
                    # Without chunks only the end of the connection marks the end of the body.
                    keeps = keeps and request.takes_chunks
                    await self._stream(request, response, response.body, keeps)
                elif not self._transport.is_closing():
                    self._write(request, response, response.body, keeps)
                if self._transport.is_closing():
                    return  # the client has left; `connection_lost` comes right after
                self._give_back(request.size)
                if not keeps:
                    self._finish()
                    return
                if self._can_write is not None:
                    await self._can_write.wait()
                if not self._waiting:
                    break
                request, keeps = self._waiting.popleft()
                if len(self._waiting) == self._limits.pipelined - 1:
                    self._transport.resume_reading()
        except Exception:
            self.abort()  # rather than let the client wait for an answer that never arrives
            raise
        finally:
            self._serving = None
        if self.phase is Phase.ANSWER:
            self._enter(Phase.IDLE)
        if self._is_draining:
            self._leave_if_idle()

    def _hold(self, count: int) -> None:
        """Count `count` more bytes of bodies as held."""
        self._held_bytes += count
        try:
            self._common.hold(count)
        except Refused as refused:
            raise Refusal(refused.status.http, str(refused)) from None

    def _give_back(self, count: int) -> None:
        """Count `count` bytes of bodies as no longer held."""
        self._held_bytes -= count
        self._common.give_back(count)

    def _write(self, request: Request, response: Response, body: bytes, keeps: bool) -> None:
        head = head_of(request, response, keeps, len(body))
        if request.method == "HEAD" or response.status in BODILESS:
            self._transport.write(head)
        elif len(body) < _LARGE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines([head, body])

    async def _stream(
        self, request: Request, response: Response, pieces: AsyncIterator[bytes], keeps: bool
    ) -> None:
        head = head_of(request, response, keeps, None)
        try:
            if not self._transport.is_closing():
                self._transport.write(head)
            if request.method != "HEAD":
                async for piece in pieces:
                    if self._transport.is_closing():
                        return
                    if piece and request.takes_chunks:
                        piece = b"%x\r\n%b\r\n" % (len(piece), piece)
                    self._transport.write(piece)
                    if self._can_write is not None:
                        await self._can_write.wait()
                if request.takes_chunks:
                    self._transport.write(b"0\r\n\r\n")
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()

    # -- ends ------------------------------------------------------------------------------------

    def _refuse(self, status: int, why: str) -> None:
        """Answer a request that cannot be read with this status, and stop reading."""
        if self._serving is not None:  # answers before this one are still under way
            self._is_draining = True
            self.phase = Phase.OVER
            return
        response = json_response({"error": why}, status, **_ALSO_TOLD.get(status, {}))
        assert isinstance(response.body, bytes)
        path = self._incoming.url.partition(b"?")[0][:_SHOWN_BYTES].decode("latin-1")
        request = Request("", path, peer=self._peer)
        self._refused(request, response)
        self._write(request, response, response.body, keeps=False)
        self._finish()

    def _finish(self) -> None:
        """Close after the last answer. If the client may still be sending, its bytes are discarded
        for a moment: else the kernel resets the connection, and the unread answer is lost."""
        is_reading = self.phase not in (Phase.IDLE, Phase.ANSWER) or bool(self._waiting)
        self._enter(Phase.OVER)
        self._waiting.clear()
        self._incoming = Incoming(self._limits)
        self._give_back(self._held_bytes)
        if is_reading and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def drain(self) -> None:
        """Answer the request that is being received, or one that arrives within a moment: a busy
        client may have sent it already. The answer says that the connection closes."""
        self._is_draining = True
        was_busy = self._common.now - self._since < _BUSY_SECONDS
        self._loop.call_later(_LAST_SECONDS if was_busy else 0, self._leave_if_idle)

    def _leave_if_idle(self) -> None:
        if self._serving is None and self.phase is Phase.IDLE:
            self._enter(Phase.OVER)
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    # -- time ------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._since = self._common.now

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self._transport.get_write_buffer_size()

    def look(self, now: float) -> None:
        """Disconnect the client if a time limit has passed."""
        limits = self._limits
        seconds = now - self._since
        if self._unread is not None:
            if self._unread.is_too_slow(now, -self._transport.get_write_buffer_size(), limits):
                self.abort()
        elif len(self._waiting) >= limits.pipelined:
            self._since = now  # reading is paused: the client is not the slow one
        elif self.phase is Phase.HEAD and seconds > limits.header_seconds:
            self._refuse(408, f"a head takes at most {limits.header_seconds:g} s")
        elif self.phase is Phase.BODY:
            if self._incoming.is_quick(seconds):
                self._since = now
            elif seconds > limits.stall_seconds:
                self._refuse(
                    408, f"a body comes with at least {limits.slowest_bytes} bytes a second"
                )
        elif self.phase is Phase.IDLE and seconds > limits.idle_seconds:
            self._enter(Phase.OVER)
            self._transport.close()
        elif self.phase is Phase.OVER and self._serving is None and seconds > _LINGER_SECONDS:
            self.abort()
