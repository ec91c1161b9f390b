"""Damaged requests at one connection: it always answers or closes, and keeps nothing."""

from __future__ import annotations

import asyncio
import collections
import random
import re
import time
from typing import Any

import pytest

import sojourn
import web
from sojourn.service.http.heads import KnownHeads
from sojourn.service.http.limits import Limits
from sojourn.service.http.messages import Request, Response, json_response

TIGHT = Limits(body_bytes=1000, header_bytes=500, headers=10, pipelined=4)
CONNECTIONS = 1500
WHOLE = (
    b"GET /v2 HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /v2 HTTP/1.0\r\n\r\n",
    b"HEAD /v2 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
    b"POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nab",
    b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n\r\n",
)
INSERTED = (
    b"\r\n",
    b"\0",
    b"content-length: 99999999999999999999\r\n",
    b"transfer-encoding: chunked\r\n",
    b"x" * 600,
    b"a: b\r\n" * 12,
)


class Transport:
    """A network that takes everything and sends nothing by itself."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written.append(data)

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def close(self) -> None:
        self.is_closed = True

    abort = write_eof = close


def damaged(draw: random.Random) -> bytes:
    data = bytearray(b"".join(draw.choice(WHOLE) for _ in range(draw.randrange(1, 7))))
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(data) + 1)
        how = draw.random()
        if how < 0.5:
            data[at : at + 1] = draw.randbytes(1)
        elif how < 0.7:
            del data[at : at + draw.randrange(1, 20)]
        else:
            data[at:at] = draw.choice(INSERTED)
    return bytes(data)


async def talk(door: Any, draw: random.Random) -> list[bytes]:
    """One connection, from coming to going; returns what was answered."""
    connection, transport = door._connection(), Transport()
    connection.connection_made(transport)
    data, at = damaged(draw), 0
    while at < len(data) and not transport.is_closed:
        size = draw.choice([1, 5, 20, len(data)])
        connection.data_received(data[at : at + size])
        at += size
        if draw.random() < 0.3:
            await asyncio.sleep(0)
    for _ in range(50):
        if connection._serving is None:
            break
        await asyncio.sleep(0)
    if draw.random() < 0.3:
        connection.look(time.monotonic() + 1000)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return transport.written


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_is_answered_or_closed_and_nothing_is_kept(seed: int) -> None:
    draw = random.Random(seed)
    failed: list[Any] = []
    statuses: collections.Counter[bytes] = collections.Counter()

    async def echo(request: Request) -> Response:
        return json_response(len(request.body))

    async def work(server: sojourn.Server) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: failed.append(facts))
        door: Any = server._doors["http"]
        for _ in range(CONNECTIONS // 3):
            written = await talk(door, draw)
            statuses.update(each[9:12] for each in written if each.startswith(b"HTTP/1.1 "))
        assert door.connections == 0
        assert door._common.held_bytes == 0

    with web.serving(limits=TIGHT) as server:
        server.router.add("POST", "/echo", echo)
        server.call(lambda: work(server))
    assert failed == []
    assert statuses[b"200"] > 0
    assert statuses[b"400"] > 0
    assert not any(status.startswith(b"5") for status in statuses)


class Forgetful(KnownHeads):
    """Heads of which none is remembered."""

    def note(self, *what: Any) -> None:
        pass


@pytest.mark.parametrize("seed", range(3))
def test_a_head_that_is_known_is_read_as_one_that_is_new(seed: int) -> None:
    async def tell(request: Request) -> Response:
        headers = dict(request.headers)
        return json_response([request.query, headers, request.body.decode("latin-1"), request.size])

    async def answers(server: sojourn.Server, heads: KnownHeads) -> list[bytes]:
        draw = random.Random(seed)
        door: Any = server._doors["http"]
        door._heads = heads
        written = [b"".join(await talk(door, draw)) for _ in range(CONNECTIONS // 3)]
        assert door._common.held_bytes == 0
        return [re.sub(rb"x-request-id: \S+", b"", each) for each in written]

    known = KnownHeads()
    with web.serving(limits=TIGHT) as server:
        server.router.add("POST", "/echo", tell)
        read_anew = server.call(lambda: answers(server, Forgetful()))
        assert server.call(lambda: answers(server, known)) == read_anew
    assert known.whole(WHOLE[3]) is not None
    assert known.whole(WHOLE[3] + b"G") is None
    assert len(known._known) <= 256


@pytest.mark.parametrize(
    "before",
    [
        b"POST /echo HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(WHOLE[3]),
        b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % len(WHOLE[3]),
        b"POST /echo HTTP/1.1\r\nx: ",
        b"P",
    ],
)
def test_what_looks_like_a_known_request_in_the_midst_of_another_is_part_of_that(
    before: bytes,
) -> None:
    asked: list[Any] = []

    async def echo(request: Request) -> Response:
        asked.append((request.headers.get("x"), request.body))
        return json_response(1)

    async def work(server: sojourn.Server) -> None:
        door: Any = server._doors["http"]
        connection = door._connection()
        connection.connection_made(Transport())
        for data in (WHOLE[3], before, WHOLE[3]):
            connection.data_received(data)
            await asyncio.sleep(0.01)
        connection.connection_lost(None)

    with web.serving(limits=TIGHT) as server:
        server.router.add("POST", "/echo", echo)
        server.call(lambda: work(server))
    first = WHOLE[3].partition(b"\r\n")[0].decode()
    assert asked[0] == (None, b"hello")
    assert asked[1:] in ([], [(None, WHOLE[3])], [(first, b"hello")])


def test_bodies_behind_known_heads_are_counted() -> None:
    async def work(server: sojourn.Server) -> tuple[bytes, int, int]:
        door: Any = server._doors["http"]
        connection, transport = door._connection(), Transport()
        connection.connection_made(transport)
        connection.data_received(WHOLE[3])
        await asyncio.sleep(0.01)
        door._common.held_bytes += 1000  # somebody else's
        connection.data_received(WHOLE[3])
        held = door._common.held_bytes
        connection.connection_lost(None)
        return transport.written[-1], held, door._common.held_bytes

    with web.serving(limits=Limits(body_bytes=1000, bodies_bytes=1000)) as server:
        server.router.add("POST", "/echo", lambda request: asyncio.sleep(0, json_response(1)))
        answer, held, left = server.call(lambda: work(server))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert (held, left) == (1000, 1000)  # what is refused is given back
