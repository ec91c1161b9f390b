"""The HTTP/2 below gRPC: what a client must not do ends its stream or its connection and harms
nobody else; what it may do works, however it is cut into pieces. By frames that are made here, and
by the client of another library."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import struct
import time
import tracemalloc
import urllib.parse
from typing import Any
from unittest.mock import Mock

import grpc
import h2.config
import h2.connection
import h2.events
import hpack
import numpy as np
import pytest

from grpc_clients import Doubler, connected, infer_request, opened
from http2_client import INFER, LIVE, STREAM, RawClient, fields, packed, raw
from sojourn.service.failures import Status
from sojourn.service.grpc import dispatch as dispatch_module
from sojourn.service.grpc import exchange as exchange_module
from sojourn.service.grpc.dispatch import Dispatch
from sojourn.service.grpc.door import GrpcDoor
from sojourn.service.grpc.framing import Messages, failed
from sojourn.service.grpc.messages import KSERVE
from sojourn.service.http.gate import Gate
from sojourn.service.http.limits import Common, Limits
from sojourn.service.http2 import connection as connection_module
from sojourn.service.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LAST_STREAM,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Code,
    Http2Error,
    Setting,
    frame,
    settings,
    window_update,
)
from sojourn.service.http2.heads import Head, HeadReader, block
from sojourn.service.http2.stream import Stream
from sojourn.service.listener import Listener
from sojourn.service.tokens import Tokens

X = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture
def handler():
    return Doubler()


@pytest.fixture
def door():
    return GrpcDoor("127.0.0.1:0")


@pytest.fixture
def calls(handler):
    """Of a door that is not open."""
    common = Common(Limits())
    listener = Listener("", common, None, Mock())
    return Dispatch(listener, common, handler, Gate(Tokens()), asyncio.Event())


@pytest.fixture
def address(door, handler):
    with opened(door, handler) as address:
        yield address


@pytest.fixture
def client(address):
    with raw(address) as client:
        client.greet()
        yield client


def setting(name: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", name, value))


def assert_nothing_is_held(door: GrpcDoor) -> None:
    deadline = time.monotonic() + 20
    while door.calls._exchanges or door.common.held_bytes:
        assert time.monotonic() < deadline, (door.calls._exchanges, door.common.held_bytes)
        time.sleep(0.01)


# -- what ends the connection --------------------------------------------------------------------

BROKEN = {
    "a frame of settings with content that says it acknowledges": (
        frame(SETTINGS, ACK, 0, b"x" * 6), Code.FRAME_SIZE_ERROR),
    "settings on a stream": (frame(SETTINGS, 0, 1), Code.PROTOCOL_ERROR),
    "settings of five bytes": (frame(SETTINGS, 0, 0, b"x" * 5), Code.FRAME_SIZE_ERROR),
    "push neither on nor off": (setting(Setting.ENABLE_PUSH, 2), Code.PROTOCOL_ERROR),
    "a window beyond all windows": (
        setting(Setting.INITIAL_WINDOW_SIZE, 2**31), Code.FLOW_CONTROL_ERROR),
    "frames smaller than the smallest": (
        setting(Setting.MAX_FRAME_SIZE, 2**14 - 1), Code.PROTOCOL_ERROR),
    "frames larger than the largest": (setting(Setting.MAX_FRAME_SIZE, 2**24), Code.PROTOCOL_ERROR),
    "a frame that is larger than was said": (
        frame(DATA, 0, 1, bytes(2**18 + 1)), Code.FRAME_SIZE_ERROR),
    "bytes for no stream": (frame(DATA, 0, 0, b"x"), Code.PROTOCOL_ERROR),
    "bytes for a stream that has not begun": (frame(DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
    "a reset of a stream that has not begun": (
        frame(RST_STREAM, 0, 1, bytes(4)), Code.PROTOCOL_ERROR),
    "a reset of nothing": (frame(RST_STREAM, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
    "a reset of three bytes": (frame(RST_STREAM, 0, 1, bytes(3)), Code.FRAME_SIZE_ERROR),
    "a window for a stream that has not begun": (window_update(1, 1), Code.PROTOCOL_ERROR),
    "a window that does not grow": (window_update(0, 0), Code.PROTOCOL_ERROR),
    "a window that grows too far": (window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
    "a window of three bytes": (frame(WINDOW_UPDATE, 0, 0, bytes(3)), Code.FRAME_SIZE_ERROR),
    "a ping on a stream": (frame(PING, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "a ping of six bytes": (frame(PING, 0, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
    "going away on a stream": (frame(GOAWAY, 0, 1, bytes(8)), Code.PROTOCOL_ERROR),
    "priority of the connection": (frame(PRIORITY, 0, 0, bytes(5)), Code.PROTOCOL_ERROR),
    "priority of three bytes for a stream that has not begun": (
        frame(PRIORITY, 0, 1, bytes(3)), Code.FRAME_SIZE_ERROR),
    "a promise": (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(5)), Code.PROTOCOL_ERROR),
    "a head on no stream": (frame(HEADERS, END_HEADERS, 0, b""), Code.PROTOCOL_ERROR),
    "a head on an even stream": (frame(HEADERS, END_HEADERS, 2, b"\x82"), Code.PROTOCOL_ERROR),
    "a head that cannot be read": (
        frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"), Code.COMPRESSION_ERROR),
    "a field of a table that is empty": (
        frame(HEADERS, END_HEADERS, 1, b"\xbe"), Code.COMPRESSION_ERROR),
    "a table larger than was said": (
        frame(HEADERS, END_HEADERS, 1, b"\x3f\xe2\x7f\x82"), Code.COMPRESSION_ERROR),
    "a table whose size changes and changes": (
        frame(HEADERS, END_HEADERS, 1, b"\x20\x3f\x80\x00\x20" + b"\x82"), Code.COMPRESSION_ERROR),
    "more padding than frame": (
        frame(HEADERS, END_HEADERS | PADDED, 1, b"\x09ab"), Code.PROTOCOL_ERROR),
    "priority in a head that is too small": (
        frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, b"ab"), Code.FRAME_SIZE_ERROR),
    "a head that is continued on another stream": (
        frame(HEADERS, 0, 1, b"\x82") + frame(CONTINUATION, END_HEADERS, 3, b""),
        Code.PROTOCOL_ERROR),
    "bytes in the middle of a head": (
        frame(HEADERS, 0, 1, b"\x82") + frame(DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
    "what continues no head": (frame(CONTINUATION, END_HEADERS, 1, b""), Code.PROTOCOL_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_the_protocol_ends_the_connection_and_says_why(address, client, what):
    sent, code = BROKEN[what]
    client.send(sent)
    content = client.next(GOAWAY)[3]
    assert int.from_bytes(content[4:8], "big") == code
    assert len(content) > 8  # why
    assert list(client.frames()) == []
    with connected(address) as other:
        assert other("inference.GRPCInferenceService/ServerLive").live


def test_streams_that_have_ended_or_gone_back_in_number_end_the_connection(address):
    for late in (frame(DATA, 0, 3, b"x"), None):
        with raw(address) as client:
            client.greet()
            client.send(client.call(3))
            assert client.answer(3)[0]["grpc-status"] == "0"
            client.send(client.head(3) if late is None else late)
            content = client.next(GOAWAY)[3]
            assert int.from_bytes(content[4:8], "big") == Code.STREAM_CLOSED


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\x16\x03\x01\x02\x00", b"\0"),  # TLS where there is none
        (PREFACE + frame(PING, 0, 0, bytes(8)), b"\0"),
    ],
)
def test_who_speaks_something_else_is_told_and_let_go(address, sent, got):
    with raw(address) as client:
        client.send(sent)
        client.sock.shutdown(socket.SHUT_WR)
        answer = b""
        while data := client.sock.recv(2**16):
            answer += data
    assert answer.startswith(got)


# -- what ends a stream --------------------------------------------------------------------------

MALFORMED = {
    "no path": [field for field in fields() if field[0] != ":path"],
    "an empty path": fields(""),
    "two methods": [(":method", "POST"), *fields()],
    "an unknown pseudo-field": [(":other", "a"), *fields()],
    "a pseudo-field behind others": [*fields(), (":method", "POST")],
    "a name in capitals": [*fields(), ("X-Name", "a")],
    "a name with spaces": [*fields(), ("x name", "a")],
    "a value of two lines": [*fields(), ("x-name", "a\r\nb: c")],
    "a field of HTTP/1": [*fields(), ("connection", "close")],
    "other te than trailers": [*fields(), ("te", "gzip")],
    "a length that is none": [*fields(), ("content-length", "-1")],
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_head_ends_its_stream_and_no_other(client, what):
    client.send(client.head(1, MALFORMED[what], END_HEADERS | END_STREAM) + client.call(3))
    _, _, stream, content = client.next(RST_STREAM)
    assert (stream, int.from_bytes(content, "big")) == (1, Code.PROTOCOL_ERROR)
    assert client.answer(3)[0]["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(DATA, END_STREAM, 1, packed()) + frame(DATA, 0, 1, b"x"), Code.STREAM_CLOSED),
        (window_update(1, 0), Code.PROTOCOL_ERROR),
        (window_update(1, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
        (frame(PRIORITY, 0, 1, bytes(4)), Code.FRAME_SIZE_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\x00\x01a\x01b"), Code.PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82"), Code.PROTOCOL_ERROR),
        (frame(DATA, END_STREAM, 1, packed(b"a")), Code.PROTOCOL_ERROR),
    ],
)
def test_what_a_stream_may_not_do_ends_it_and_no_other(client, handler, sent, code):
    handler.waits = asyncio.Event()
    client.send(client.head(1, fields(INFER, content_length="5")) + sent + client.call(3))
    _, _, stream, content = client.next(RST_STREAM)
    assert (stream, int.from_bytes(content, "big")) == (1, code)
    assert client.answer(3)[0]["grpc-status"] == "0"


def test_more_than_the_window_takes_ends_the_stream(door, client, handler):
    handler.waits = asyncio.Event()
    client.send(client.head(1, fields(STREAM)))
    waiting = packed(infer_request(X)) * 40  # no more is welcome before these have been answered
    client.send(frame(DATA, 0, 1, waiting))
    piece = packed(bytes(2**17))
    for _ in range(connection_module._STREAM_WINDOW // len(piece) + 1):
        client.send(frame(DATA, 0, 1, piece))
    client.send(client.call(3))
    _, _, stream, content = client.next(RST_STREAM)
    assert (stream, int.from_bytes(content, "big")) == (1, Code.FLOW_CONTROL_ERROR)
    assert client.answer(3)[0]["grpc-status"] == "0"
    assert_nothing_is_held(door)


# -- what is allowed -----------------------------------------------------------------------------


def whole_call(client: RawClient, stream: int) -> bytes:
    """A call in every form that there is: padded, continued, with priority, frames that nobody
    knows, in between."""
    head = client.encoder.encode(fields(INFER, x_a="1", cookie="a=b"))
    message = packed(infer_request(X))
    padded = b"\x03" + message[:7] + bytes(3)
    return b"".join(
        (
            frame(
                HEADERS, WITH_PRIORITY | PADDED, stream, b"\x02" + bytes(5) + head[:9] + bytes(2)
            ),
            frame(CONTINUATION, 0, stream, head[9:20]),
            frame(CONTINUATION, 0, stream, b""),
            frame(CONTINUATION, END_HEADERS, stream, head[20:]),
            frame(0xF0, 0xFF, stream, b"unknown"),
            frame(PRIORITY, 0, stream, bytes(5)),
            frame(DATA, PADDED, stream, padded),
            frame(DATA, 0, stream, b""),
            window_update(stream, 10),
            frame(PING, 0, 0, b"12345678"),
            frame(DATA, 0, stream, message[7:]),
            frame(DATA, PADDED | END_STREAM, stream, b"\x00"),
        )
    )


@pytest.mark.parametrize("size", [1, 2, 9, 23, 10**6])
def test_a_call_is_the_same_in_every_form_and_however_it_is_cut(address, size):
    with raw(address) as client:
        client.greet()
        sent = b"".join(whole_call(client, stream) for stream in (1, 3, 5))
        for at in range(0, len(sent), size):
            client.send(sent[at : at + size])
        for stream in (1, 3, 5):
            told, body = client.answer(stream)
            assert (told[":status"], told["content-type"]) == ("200", "application/grpc")
            assert told["grpc-status"] == "0"
            response = KSERVE.ModelInferResponse.FromString(body[5:])
            assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [2, 4]


def test_trailers_end_a_request(client):
    client.send(client.head(1))
    client.send(frame(DATA, 0, 1, packed()))
    client.send(client.head(1, [("x-checksum", "1")], END_HEADERS | END_STREAM))
    assert client.answer(1)[0]["grpc-status"] == "0"


@pytest.mark.parametrize("words", ["a b", "  a ", " ", "\ta\n", "% é"])
def test_the_words_of_a_failure_are_a_field_of_http2(words):
    told = dict(hpack.Decoder().decode(failed(Status.NOT_FOUND, words)))["grpc-message"]
    assert told == told.strip()
    assert urllib.parse.unquote(told) == words


def test_what_heads_mean_changes_with_the_table(client):
    """The same bytes mean another field when another was added before."""
    for number, value in enumerate(("one", "two", "one", "three"), 1):
        client.send(client.call(2 * number - 1, x_request_id=value, path="/none"))
        told, _ = client.answer(2 * number - 1)
        assert (told["x-request-id"], told["grpc-status"]) == (value, "12")
    client.encoder.header_table_size = 0  # told in the next head
    for number in (9, 11):
        client.send(client.call(number, x_request_id="four", path="/none"))
        assert client.answer(number)[0]["x-request-id"] == "four"


def test_a_head_that_changes_the_tables_size_does_so_every_time():
    reader, known = HeadReader(2**15), block(*fields())
    for change in (b"\x20", b"\x3f\xe1\x1f", b"\x20"):  # to 0, to 4,096, to 0
        assert reader.read(change + known).path == LIVE
    assert reader.read(known + b"\x40\x01a\x01b").fields["a"] == "b"
    with pytest.raises(Http2Error, match="cannot be read"):
        reader.read(known + b"\xbe")  # it was not added


def test_heads_that_are_remembered_take_little():
    reader, known = HeadReader(2**15), block(*fields())
    reader.read(known + b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000)
    tracemalloc.start()
    try:
        for number in range(64):
            head = reader.read(known + b"\xbe" * 20 + block(("x-number", str(number))))
            assert len(head.fields["a"]) > 80_000
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2**20


def test_what_is_no_call_is_an_error_of_http(client):
    plain = [field for field in fields() if field[0] != "content-type"]
    client.send(client.head(1, plain, END_HEADERS | END_STREAM))
    assert client.answer(1)[0][":status"] == "415"


def test_a_ping_is_answered_with_what_it_brought(client):
    client.send(frame(PING, 0, 0, b"abcdefgh"))
    assert client.next(PING) == (PING, ACK, 0, b"abcdefgh")


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("/none", {}, "12"),
        (LIVE, {"grpc_timeout": "soon"}, "3"),
        (LIVE, {"grpc_encoding": "br"}, "12"),
        (LIVE, {"grpc_timeout": "0n"}, "4"),
        (LIVE, {"x_long": "a" * 40_000}, "8"),
    ],
)
def test_a_call_that_cannot_be_made_has_a_status(client, path, more, status):
    client.send(client.head(1, fields(path, **more)))
    told, body = client.answer(1)
    assert (told["grpc-status"], body) == (status, b"")
    client.send(frame(DATA, END_STREAM, 1, packed()))  # it had not heard of it
    client.send(client.call(3))
    assert client.answer(3)[0]["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", "3"),
        (packed() + packed(), "3"),
        (packed()[:4], "3"),
        (struct.pack(">BI", 0, 5) + b"abc", "3"),
        (struct.pack(">BI", 2, 0), "3"),
        (struct.pack(">BI", 1, 1) + b"a", "3"),
        (struct.pack(">BI", 0, 2**32 - 1), "8"),
    ],
)
def test_a_message_that_is_no_message_is_refused(door, client, content, status):
    client.send(client.head(1) + frame(DATA, END_STREAM, 1, content))
    assert client.answer(1)[0]["grpc-status"] == status
    assert_nothing_is_held(door)


def test_a_second_message_of_a_call_that_takes_one_is_refused_before_the_end(door, client):
    client.send(client.head(1) + frame(DATA, 0, 1, packed() * 2))
    assert client.answer(1)[0]["grpc-status"] == "3"
    client.send(client.head(3) + frame(DATA, 0, 3, packed()) + frame(DATA, 0, 3, b"\0"))
    assert client.answer(3)[0]["grpc-status"] == "3"
    assert_nothing_is_held(door)


def test_a_message_in_tiny_pieces_is_held_as_what_it_is():
    content = bytes(range(256)) * 2**9
    sent = struct.pack(">BI", 0, len(content)) + content
    tracemalloc.start()
    try:
        messages = Messages(2**20)
        for at in range(0, len(sent), 2):
            messages.feed(sent[at : at + 2])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert list(messages.whole) == [(False, content)]
    assert peak < 3 * len(content)


def test_messages_of_a_stream_count_as_held_though_others_are_being_answered(door, handler):
    handler.waits = asyncio.Event()
    held = []

    class Noting(Doubler):
        async def infer(self, inference):
            held.append((door.common.held_bytes, asyncio.get_running_loop()))
            return await handler.infer(inference)

    message = packed(infer_request(X))
    size = len(message) + exchange_module._MESSAGE_BYTES
    with opened(door, Noting()) as address, raw(address) as client:
        client.greet()
        client.send(client.head(1, fields(STREAM)) + frame(DATA, 0, 1, message))
        while not handler.asked:
            time.sleep(0.01)
        client.send(frame(DATA, 0, 1, message) + frame(PING, 0, 0, bytes(8)))
        client.next(PING)
        assert door.common.held_bytes == 2 * size
        held[0][1].call_soon_threadsafe(handler.waits.set)
        client.send(frame(DATA, END_STREAM, 1))
        assert client.answer(1)[0]["grpc-status"] == "0"
    assert [each for each, _ in held] == [size, size]
    assert door.common.held_bytes == 0


def test_a_stream_is_given_room_when_few_of_its_messages_wait(door):
    class Stepping(Doubler):
        def __init__(self):
            super().__init__()
            self.steps = asyncio.Semaphore(0)

        async def infer(self, inference):
            self.loop = asyncio.get_running_loop()
            await self.steps.acquire()
            return await super().infer(inference)

    handler = Stepping()
    message = packed(infer_request(np.zeros((3700, 2), np.float32)))
    pieces = [message[at : at + 2**14] for at in range(0, len(message), 2**14)]
    with opened(door, handler) as address, raw(address) as client:
        client.greet(settings={Setting.INITIAL_WINDOW_SIZE: 2**30})
        client.send(window_update(0, 2**30) + client.head(1, fields(STREAM)))
        client.send(b"".join(frame(DATA, 0, 1, piece) for piece in pieces) * 34)
        for told in ("before the first was answered", "behind it"):
            client.send(frame(PING, 0, 0, bytes(8)))
            for kind, _, stream, _ in client.frames():
                assert (kind, stream) != (WINDOW_UPDATE, 1), told
                if kind == PING:
                    break
            handler.loop.call_soon_threadsafe(handler.steps.release)
            while not handler.asked:
                time.sleep(0.01)
        for _ in range(34):
            handler.loop.call_soon_threadsafe(handler.steps.release)
        assert client.next(WINDOW_UPDATE)[2] == 1
        client.send(frame(DATA, END_STREAM, 1))
        assert client.answer(1)[0]["grpc-status"] == "0"
    assert len(handler.asked) == 34


def test_padding_is_given_back(client):
    client.send(client.head(1, fields(STREAM)))
    padded = frame(DATA, PADDED, 1, b"\xff" + bytes(255))
    for _ in range(2 * connection_module._STREAM_WINDOW // 256):
        client.send(padded)
    client.send(frame(DATA, END_STREAM, 1, packed(infer_request(X))))
    assert client.answer(1)[0]["grpc-status"] == "0"


def test_a_client_may_send_more_of_calls_that_were_refused(client, door):
    streams = range(1, 2 * door.calls.most_streams, 2)
    client.send(b"".join(client.head(stream, fields("/none")) for stream in streams))
    client.send(b"".join(frame(DATA, END_STREAM, stream, packed()) for stream in streams))
    last = streams[-1] + 2
    client.send(client.call(last))
    assert client.answer(last)[0]["grpc-status"] == "0"


# -- windows, by another library -----------------------------------------------------------------


class LibraryClient:
    """The `h2` library as a client: it raises if the server breaks a rule."""

    def __init__(
        self,
        address: str,
        window: int | None = None,
        largest: int | None = None,
        table: int | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=20)
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(True, "utf-8"))
        given: dict[Any, int] = {}
        if window is not None:
            given[h2.settings.SettingCodes.INITIAL_WINDOW_SIZE] = window
        if table is not None:
            given[h2.settings.SettingCodes.HEADER_TABLE_SIZE] = table
        if largest is not None:
            given[h2.settings.SettingCodes.MAX_FRAME_SIZE] = largest
        self.http.initiate_connection()
        self.http.update_settings(given)
        self.bodies: dict[int, bytes] = {}
        self.sizes: list[int] = []
        self.trailers: dict[int, dict[str, str]] = {}
        self.acknowledged = 0
        self.flush()
        while self.acknowledged < 2:
            self.receive()

    def flush(self) -> None:
        self.sock.sendall(self.http.data_to_send())

    def ask(self, path: str, content: bytes) -> int:
        stream = self.http.get_next_available_stream_id()
        self.http.send_headers(stream, fields(path))
        while content:
            room = min(
                self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size
            )
            if room <= 0:
                self.flush()
                self.receive()
                continue
            self.http.send_data(stream, content[:room])
            content = content[room:]
        self.http.end_stream(stream)
        self.flush()
        return stream

    def receive(self, grants: bool = True) -> None:
        data = self.sock.recv(2**16)
        assert data, "the server has closed"
        for event in self.http.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                self.sizes.append(len(event.data))
                if grants and event.flow_controlled_length:
                    self.http.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
            elif isinstance(event, h2.events.SettingsAcknowledged):
                self.acknowledged += 1
            elif isinstance(event, h2.events.TrailersReceived):
                self.trailers[event.stream_id] = dict(event.headers)
            elif isinstance(event, h2.events.StreamReset):
                raise ConnectionResetError(event.error_code)
        self.flush()

    def finish(self, *streams: int) -> None:
        while not all(stream in self.trailers for stream in streams):
            self.receive()


@pytest.mark.parametrize("window", [1, 100, 2**16, 2**20])
@pytest.mark.parametrize("largest", [2**14, 2**20])
def test_answers_keep_to_the_clients_windows_and_frames(address, window, largest):
    rows = 40 if window == 1 else 40_000
    x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    client = LibraryClient(address, window, largest)
    with client.sock:
        streams = [client.ask(INFER, packed(infer_request(x * n))) for n in (1, 2, 3)]
        client.finish(*streams)
        for n, stream in enumerate(streams, 1):
            response = KSERVE.ModelInferResponse.FromString(client.bodies[stream][5:])
            answered = np.frombuffer(response.raw_output_contents[0], np.float32)
            assert np.array_equal(answered.reshape(rows, 2), x * 2 * n)
            assert client.trailers[stream]["grpc-status"] == "0"
        assert max(client.sizes) <= largest


def test_a_large_message_comes_through_windows_that_are_much_smaller(address, door):
    x = np.arange(2**20, dtype=np.float32).reshape(-1, 2)  # 4 MiB
    client = LibraryClient(address, 2**20)
    with client.sock:
        stream = client.ask(INFER, packed(infer_request(x)))
        client.finish(stream)
        response = KSERVE.ModelInferResponse.FromString(client.bodies[stream][5:])
        assert response.raw_output_contents[0] == (x * 2).tobytes()
    assert_nothing_is_held(door)


@pytest.mark.parametrize("size", [0, 100])
def test_a_client_may_keep_a_smaller_table_for_heads(address, size):
    client = LibraryClient(address, table=size)
    with client.sock:
        while client.acknowledged < 2:
            client.receive()
        for _ in range(2):
            stream = client.ask(LIVE, packed())
            client.finish(stream)
            assert client.trailers[stream]["grpc-status"] == "0"


def test_answers_of_one_connection_come_together(address):
    """A large one does not hold up the others for as long as it takes."""
    x = np.zeros((2**15, 2), np.float32)  # 256 KiB
    client = LibraryClient(address, 2**20)
    with client.sock:
        streams = [client.ask(INFER, packed(infer_request(x))) for _ in range(4)]
        while not any(stream in client.trailers for stream in streams):
            client.receive()
        assert min(len(client.bodies[stream]) for stream in streams) > 2**17


def test_a_window_that_shrinks_below_what_was_sent_holds_the_rest(address):
    client = LibraryClient(address, 1000)
    x = np.zeros((1000, 2), np.float32)
    with client.sock:
        stream = client.ask(INFER, packed(infer_request(x)))
        while len(client.bodies.get(stream, b"")) < 1000:
            client.receive(grants=False)
        client.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
        client.flush()
        client.http.increment_flow_control_window(2**16)
        client.http.increment_flow_control_window(2**16, stream)
        client.flush()
        client.finish(stream)
        assert len(client.bodies[stream]) > 8000


# -- what takes too much -------------------------------------------------------------------------

FLOODS = {
    "pings": frame(PING, 0, 0, bytes(8)),
    "settings": frame(SETTINGS, 0, 0),
    "empty bytes": frame(DATA, 0, 1, b""),
    "windows": window_update(1, 1),
    "priorities": frame(PRIORITY, 0, 1, bytes(5)),
    "unknown frames": frame(0xB0, 0, 0, b""),
}


@pytest.mark.parametrize("what", FLOODS)
def test_frames_that_say_nothing_are_bounded(address, client, door, what):
    client.send(client.head(1, fields(STREAM)))
    for _ in range(60):
        client.send(FLOODS[what] * 1000)
    content = client.next(GOAWAY)[3]
    assert int.from_bytes(content[4:8], "big") == Code.ENHANCE_YOUR_CALM
    assert list(client.frames()) == []
    assert_nothing_is_held(door)


def test_settings_that_say_the_same_again_and_again_cost_no_more_than_once(client, door):
    streams = range(1, 2 * door.calls.most_streams, 2)
    client.send(b"".join(client.head(stream, fields(STREAM)) for stream in streams))
    windows = b"".join(struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, n) for n in range(40_000))
    client.send(frame(SETTINGS, 0, 0, windows) + frame(PING, 0, 0, bytes(8)))
    began = time.process_time()
    client.next(PING)
    assert time.process_time() - began < 1


@pytest.fixture
def held_up(client, door):
    """As many answers as there may be wait for a client that takes none of their bytes."""
    client.send(setting(Setting.INITIAL_WINDOW_SIZE, 0))
    streams = range(1, 2 * door.calls.most_streams, 2)
    client.send(b"".join(client.call(stream) for stream in streams))
    heads = (client.next(HEADERS) for _ in streams)
    assert sorted(stream for _, _, stream, _ in heads) == list(streams)
    return client


def test_room_that_no_stream_can_use_costs_next_to_nothing(held_up):
    began = time.process_time()
    held_up.send(window_update(0, 1) * 9000 + frame(PING, 0, 0, bytes(8)))
    held_up.next(PING)
    assert time.process_time() - began < 1


def test_windows_that_open_a_little_for_all_streams_all_the_time_are_bounded(held_up):
    opens, shuts = (setting(Setting.INITIAL_WINDOW_SIZE, size) for size in (1, 0))
    held_up.send((opens + shuts) * 10)
    content = held_up.next(GOAWAY)[3]
    assert int.from_bytes(content[4:8], "big") == Code.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("how", ["resets", "breaks a rule"])
def test_streams_that_are_begun_and_reset_all_the_time_are_bounded(client, door, handler, how):
    """Each costs the server a call that is called off, whoever ends it."""
    handler.waits = asyncio.Event()
    cancel = struct.pack(">I", Code.CANCEL)
    stream = 1
    for _ in range(300):
        sent = b""
        for _ in range(100):
            sent += client.call(stream, INFER, infer_request(X))
            ends = how == "resets"
            sent += frame(RST_STREAM, 0, stream, cancel) if ends else client.head(stream)
            stream += 2
        client.send(sent)
    content = client.next(GOAWAY)[3]
    assert int.from_bytes(content[4:8], "big") == Code.ENHANCE_YOUR_CALM
    assert_nothing_is_held(door)
    handler.asked.clear()  # which remembers them all


def test_a_head_without_end_is_cut_off(client):
    client.send(frame(HEADERS, 0, 1, b"\x82"))
    for _ in range(60):
        client.send(frame(CONTINUATION, 0, 1, b"\x00\x01a\x7f\x81\x7e" + b"a" * 16_000))
    content = client.next(GOAWAY)[3]
    assert int.from_bytes(content[4:8], "big") == Code.ENHANCE_YOUR_CALM


def test_a_head_that_unfolds_to_very_much_is_cut_off(client):
    """One long field in the table, then a thousand times a reference to it."""
    long = b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000
    client.send(frame(HEADERS, END_HEADERS, 1, long + b"\xbe" * 10_000))
    content = client.next(GOAWAY)[3]
    assert int.from_bytes(content[4:8], "big") == Code.ENHANCE_YOUR_CALM


def test_streams_beyond_those_that_were_allowed_are_refused_and_may_be_tried_again(
    door, handler, monkeypatch
):
    monkeypatch.setattr(dispatch_module, "_MOST_CALLS_OF_CONNECTION", 2)
    handler.waits = asyncio.Event()
    with opened(door, handler) as address, raw(address) as client:
        client.greet()
        for stream in (1, 3, 5):
            client.send(client.call(stream, INFER, infer_request(X)))
        _, _, stream, content = client.next(RST_STREAM)
        assert (stream, int.from_bytes(content, "big")) == (5, Code.REFUSED_STREAM)


def test_a_client_that_takes_nothing_is_cut_off(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(stall_seconds=0.1))
    with opened(door, handler) as address, raw(address) as client:
        client.greet(settings={Setting.INITIAL_WINDOW_SIZE: 10})
        client.send(client.call(1, INFER, infer_request(np.zeros((100, 2), np.float32))))
        _, _, stream, content = client.next(RST_STREAM)
        assert (stream, int.from_bytes(content, "big")) == (1, Code.CANCEL)
        client.send(client.call(3))  # small enough
        assert client.answer(3)[0]["grpc-status"] == "0"


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_a_message_that_does_not_come_on_is_cut_off(handler, path):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(stall_seconds=0.1))
    with opened(door, handler) as address, raw(address) as client:
        client.greet()
        client.send(client.head(1, fields(path)) + frame(DATA, 0, 1, packed(bytes(1000))[:500]))
        client.send(client.head(3, fields(STREAM)))  # may be silent
        assert client.answer(1)[0]["grpc-status"] == str(Status.DEADLINE_EXCEEDED.grpc)
        client.send(frame(DATA, END_STREAM, 3, packed(infer_request(X))))
        assert client.answer(3)[0]["grpc-status"] == "0"


def test_a_call_whose_work_is_called_off_has_an_answer(client, handler):
    handler.error = asyncio.CancelledError
    for stream, path in ((1, INFER), (3, STREAM)):
        client.send(client.call(stream, path, infer_request(X)))
        assert client.answer(stream)[0]["grpc-status"] == str(Status.CANCELLED.grpc)


def test_a_stream_that_begins_when_the_server_stops_may_be_tried_elsewhere(door, handler):
    handler.waits = asyncio.Event()
    with raw_and_closing(door, handler) as (client, loop):
        assert client.next(GOAWAY)[3][:4] == LAST_STREAM.to_bytes(4, "big")
        client.send(client.call(3, STREAM, infer_request(X)))
        assert client.answer(3)[0]["grpc-status"] == str(Status.UNAVAILABLE.grpc)
        assert client.answer(1)[0]["grpc-status"] == "0"
    assert loop is not None


def test_a_client_that_does_not_read_is_cut_off(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(stall_seconds=0.1))
    x = np.zeros((2**20, 2), np.float32)
    with opened(door, handler) as address, raw(address) as client:
        client.greet(settings={Setting.INITIAL_WINDOW_SIZE: 2**30})
        client.send(window_update(0, 2**30))
        message = packed(infer_request(x))
        client.send(client.head(1, fields(INFER)))
        for at in range(0, len(message), 2**14):
            client.send(frame(DATA, 0, 1, message[at : at + 2**14]))
        client.send(frame(DATA, END_STREAM, 1))
        deadline = time.monotonic() + 20
        while door._listener.connections:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    handler.asked.clear()  # which remembers the message


def test_a_client_that_does_not_read_is_not_read_either(calls):
    wire = FakeWire()
    connection = connection_module.Connection(calls)
    connection.connection_made(wire)
    connection.pause_writing()
    assert not wire.is_read
    connection.resume_writing()
    assert wire.is_read


@pytest.mark.parametrize("what", ["answered", "streamed", "refused", "late", "left"])
def test_a_call_leaves_nothing_to_the_garbage_collector(door, handler, what):
    async def left_by_calls() -> int:
        await door.start(handler)
        connection, wire = connection_module.Connection(door.calls), FakeWire()
        connection.connection_made(wire)
        client = RawClient(wire)
        connection.data_received(PREFACE + settings({}))
        for number in range(1, 101, 2):
            if number == 11:
                gc.collect()
                gc.disable()
            path = {"streamed": STREAM, "refused": "/none"}.get(what, INFER)
            timeout = "0n" if what == "late" else "9S"
            reset = frame(RST_STREAM, 0, number, bytes(4)) if what == "left" else b""
            call = client.call(number, path, infer_request(X), grpc_timeout=timeout)
            connection.data_received(call + reset)
            while door.calls._exchanges or connection._streams:
                await asyncio.sleep(0)
        found = gc.collect()
        connection.connection_lost(None)
        await door.stop(0)
        return found

    try:
        assert asyncio.run(left_by_calls()) < 45
    finally:
        gc.enable()


def test_answers_that_are_not_read_count_as_held(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(body_bytes=2**20, bodies_bytes=2**20))
    request = infer_request(np.zeros((25_000, 2), np.float32))
    with opened(door, handler) as address, raw(address) as lazy, connected(address) as other:
        lazy.greet(settings={Setting.INITIAL_WINDOW_SIZE: 0})
        for stream in range(1, 13, 2):  # 200 kB each
            lazy.send(lazy.call(stream, INFER, request))
            lazy.next(HEADERS)
        deadline = time.monotonic() + 20
        with pytest.raises(grpc.RpcError) as raised:
            while time.monotonic() < deadline:
                other(INFER[1:], infer_request(X))
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        lazy.send(frame(RST_STREAM, 0, 1, bytes(4)))
        while door.common.unread_bytes > 2**20:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert other(INFER[1:], infer_request(X)).model_name == "double"
    handler.asked.clear()


def test_what_waits_is_not_slow_while_nothing_is_read(calls):
    connection, wire = connection_module.Connection(calls), FakeWire()
    connection.connection_made(wire)
    connection.data_received(PREFACE + settings({Setting.INITIAL_WINDOW_SIZE: 1}))
    stream = Stream(1, Head(), connection)
    connection._streams.add(stream)
    connection._streams.last = 1
    stream.answer(b"", [b"ab"], b"")
    connection.pause_writing()
    calls.common.now += 30
    connection.resume_writing()
    connection.look(calls.common.now)
    assert not stream.is_over
    for _ in range(3):
        calls.common.now += 30
        connection.look(calls.common.now)
    assert stream.is_over


def test_a_large_answer_goes_by_tls_in_pieces_so_that_it_shows_whether_they_are_read(calls):
    connection, wire = connection_module.Connection(calls), FakeWire(sslcontext=object())
    connection.connection_made(wire)
    client = RawClient(wire)
    told = settings({Setting.INITIAL_WINDOW_SIZE: 2**30}) + window_update(0, 2**30)
    connection.data_received(PREFACE + told + client.head(1, fields("/none")))
    head = len(wire.written)
    stream = Stream(3, Head(), connection)
    stream.answer(b"", [b"a" * 2**20, b"b"], b"")
    sent = wire.written[head:]
    assert sent.count(b"a") == 2**20
    assert b"b" in sent[-100:]
    assert wire.largest < 2**17


def test_a_request_may_take_longer_to_come_than_a_head(calls):
    """However its frames are cut when time is looked at."""
    connection, wire = connection_module.Connection(calls), FakeWire()
    connection.connection_made(wire)
    client = RawClient(wire)
    piece = frame(DATA, 0, 1, bytes(100))
    connection.data_received(PREFACE + settings({}) + client.head(1, fields(path="/a" * 9)))
    connection.data_received(piece[:5])
    for now in range(1, 30):
        calls.common.now += 1
        connection.data_received(piece[5:] + piece[:5])
        connection.look(calls.common.now)
        assert not connection.is_over, now
    for _ in range(11):
        calls.common.now += 1
        connection.look(calls.common.now)
    assert connection.is_over  # this time it was the same frame


class FakeWire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self, **facts: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), **facts})
        self.is_read = True
        self.largest = 0  # that was written at once
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data
        self.largest = max(self.largest, len(data))

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


@pytest.mark.parametrize("sent", [b"", PREFACE[:5], PREFACE, PREFACE + settings({}) + b"\0\0\x09"])
def test_who_does_not_finish_a_frame_is_cut_off(handler, sent):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(header_seconds=0.1))
    with opened(door, handler) as address, raw(address) as client:
        client.send(sent)
        assert [kind for kind, *_ in client.frames()][-1] == GOAWAY


def test_a_connection_that_is_idle_is_ended_whatever_it_pings(handler):
    door = GrpcDoor("127.0.0.1:0", limits=Limits(idle_seconds=0.3))
    with opened(door, handler) as address, raw(address) as client:
        client.greet()
        client.send(client.call(1))
        assert client.answer(1)[0]["grpc-status"] == "0"
        kind = PING
        while kind != GOAWAY:
            time.sleep(0.01)  # a client that pings all the time is told to calm down
            client.send(frame(PING, 0, 0, bytes(8)))
            kind, _, _, content = client.next(PING, GOAWAY)
        assert int.from_bytes(content[4:8], "big") == Code.NO_ERROR


# -- ends ----------------------------------------------------------------------------------------


def test_a_server_that_stops_answers_what_was_sent_and_says_that_it_goes(door, handler):
    handler.waits = asyncio.Event()
    with raw_and_closing(door, handler) as (client, loop):
        last = [content[:4] for kind, _, _, content in _until_trailers(client, 1) if kind == GOAWAY]
    assert [int.from_bytes(each, "big") for each in last] == [2**31 - 1, 1]
    assert loop is not None


class raw_and_closing:
    """A client with a call under way at a door that is about to close; the call goes on then."""

    def __init__(self, door: GrpcDoor, handler: Doubler) -> None:
        self._opened = opened(door, handler, grace=20)
        self._handler = handler

    def __enter__(self) -> tuple[RawClient, Any]:
        import threading

        address = self._opened.__enter__()
        self._raw = raw(address)
        client = self._raw.__enter__()
        client.greet()
        client.send(client.call(1, INFER, infer_request(X)))
        while not self._handler.asked:
            time.sleep(0.01)
        loop = self._handler.waits._loop  # type: ignore[union-attr]
        self._closing = threading.Thread(target=self._opened.__exit__, args=(None, None, None))
        self._closing.start()
        threading.Timer(0.5, loop.call_soon_threadsafe, [self._handler.waits.set]).start()
        return client, loop

    def __exit__(self, *raised: object) -> None:
        self._raw.__exit__(None, None, None)
        self._closing.join()


def _until_trailers(client: RawClient, stream: int):
    for found in client.frames():
        yield found
        if found[0] == HEADERS and found[2] == stream and found[1] & END_STREAM:
            return


@pytest.mark.parametrize("seed", range(4))
def test_spoilt_frames_never_harm_others_and_leave_nothing(address, door, handler, seed):
    draw = random.Random(seed)
    for _ in range(60):
        with raw(address) as client:
            client.greet()
            good = bytearray(whole_call(client, 1) + whole_call(client, 3) + client.call(5))
            for _ in range(draw.randint(1, 6)):
                at = draw.randrange(len(good))
                kind = draw.randrange(4)
                if kind == 0:
                    good[at] = draw.randrange(256)
                elif kind == 1:
                    del good[at : at + draw.randint(1, 20)]
                elif kind == 2:
                    good[at:at] = draw.randbytes(draw.randint(1, 20))
                else:
                    good[at:at] = frame(draw.randrange(12), draw.randrange(256), draw.randrange(6),
                                        draw.randbytes(draw.randrange(12)))  # fmt: skip
            client.send(bytes(good))
            if draw.random() < 0.5:
                client.sock.shutdown(socket.SHUT_WR)
                for _ in client.frames():
                    pass
    assert_nothing_is_held(door)
    with connected(address) as other:
        assert other("inference.GRPCInferenceService/ServerLive").live
