"""One connection: what is read, what is answered, and what is cut off. No models are needed."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import random
import socket
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sojourn
from sojourn.service import server as server_module
from sojourn.service.failures import Refused, Status
from sojourn.service.http.connection import Connection
from sojourn.service.http.heads import KnownHeads
from sojourn.service.http.limits import Common, Limits
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.phases import Phase
from sojourn.service.http.router import Role
from sojourn.service.operating import Operation
from sojourn.service.tokens import Tokens
from web import ask, ask_on, client, connected, is_closed, read_response, serving

TIGHT = Limits(
    body_bytes=10_000,
    header_bytes=2_000,
    headers=20,
    connections=4,
    pipelined=4,
    idle_seconds=60,
    header_seconds=0.5,
    stall_seconds=0.5,
    slowest_bytes=100,
)


async def echo(request: Request) -> Response:
    return json_response({"method": request.method, "body": request.body.decode("latin-1")})


@contextlib.contextmanager
def echoing(limits: Limits | None = None, **options: Any) -> Iterator[sojourn.Server]:
    with serving(limits=limits, **options) as server:
        server.router.add("POST", "/echo", echo)
        server.router.add("GET", "/echo", echo)
        yield server


def post(body: bytes, *lines: str, path: str = "/echo") -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: test", f"content-length: {len(body)}", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


# -- what is answered --------------------------------------------------------------------------


def test_a_connection_is_kept_and_answers_come_in_order() -> None:
    with echoing() as server, client(server) as connection:
        for number in range(5):
            got = ask_on(connection, "/echo", str(number).encode())
            assert (got.status, got.json["body"]) == (200, str(number))


def test_pipelined_requests_are_answered_in_order_however_many_there_are() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(b"".join(post(str(n).encode()) for n in range(100)))
        bodies = [read_response(sock).json["body"] for _ in range(100)]
    assert bodies == [str(n) for n in range(100)]


def test_what_a_loop_was_still_asked_for_ends_with_its_server() -> None:
    with serving() as server:
        asked = server.begin(lambda: asyncio.sleep(3600))
    with pytest.raises(CancelledError):
        asked.result(timeout=5)


def test_a_request_may_come_byte_by_byte() -> None:
    with echoing() as server, connected(server) as sock:
        for byte in post(b"slow"):
            sock.sendall(bytes([byte]))
        assert read_response(sock).json["body"] == "slow"


def test_a_chunked_body_is_put_together() -> None:
    with echoing() as server, connected(server) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
        sock.sendall(b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
        assert read_response(sock).json["body"] == "abcdefg"


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"chunked, chunked", b"identity, chunked"])
def test_a_body_in_a_coding_that_is_not_understood_is_refused(coding: bytes) -> None:
    with echoing() as server, connected(server) as sock:
        sock.sendall(
            b"POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: " + coding + b"\r\n\r\n"
        )
        assert read_response(sock).status == 400
        assert is_closed(sock)


def test_a_client_that_expects_to_be_told_to_go_on_is() -> None:
    with echoing() as server, connected(server) as sock:
        sock.sendall(
            b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
        )
        assert read_response(sock, has_body=False).status == 100
        sock.sendall(b"ok")
        assert read_response(sock).json["body"] == "ok"


UPGRADE = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABk")


def test_a_client_that_offers_another_protocol_is_answered_in_this_one() -> None:
    """As Java's HttpClient does with the first request of each connection."""
    with echoing() as server, connected(server) as sock:
        wishes = [post(b"whole", *UPGRADE), post(b"", *UPGRADE), post(b"plain")]
        sock.sendall(b"".join(wishes))
        assert [read_response(sock).json["body"] for _ in wishes] == ["whole", "", "plain"]
        for byte in post(b"slow", *UPGRADE):
            sock.sendall(bytes([byte]))
        assert read_response(sock).json["body"] == "slow"
        chunked = [line for line in post(b"", *UPGRADE).split(b"\r\n") if b"length" not in line]
        chunked[1:1] = [b"transfer-encoding: chunked", b"expect: 100-continue"]
        sock.sendall(b"\r\n".join(chunked))
        assert read_response(sock, has_body=False).status == 100
        sock.sendall(b"3\r\nabc\r\n0\r\n\r\n")
        assert read_response(sock).json["body"] == "abc"
        sock.sendall(post(b"last", "connection: upgrade, close", "upgrade: websocket"))
        assert read_response(sock).json["body"] == "last"
        assert is_closed(sock)


def test_a_head_has_no_body_and_the_length_of_what_a_get_gives() -> None:
    with echoing() as server:
        got, head = ask(server, "/v2"), ask(server, "/v2", method="HEAD")
    assert head.status == 200
    assert head.body == b""
    assert head.headers["content-length"] == str(len(got.body))


@pytest.mark.parametrize(
    ("version", "line", "keeps"),
    [
        ("1.0", "", False),
        ("1.0", "connection: keep-alive\r\n", True),
        ("1.1", "connection: close\r\n", False),
    ],
)
def test_a_connection_ends_when_the_client_wants_it(version: str, line: str, keeps: bool) -> None:
    with echoing() as server, connected(server, 2) as sock:
        sock.sendall(f"GET /echo HTTP/{version}\r\nhost: t\r\n{line}\r\n".encode())
        got = read_response(sock)
        assert (got.status, got.headers["connection"]) == (200, "keep-alive" if keeps else "close")
        if keeps:
            sock.sendall(b"GET /echo HTTP/1.0\r\n\r\n")
            assert read_response(sock).status == 200
        assert is_closed(sock)


def test_an_answer_can_come_in_pieces() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            await asyncio.sleep(0)
            yield f"{number}\n".encode()

    async def stream(request: Request) -> Response:
        return Response(200, pieces(), "text/plain")

    with echoing() as server, client(server) as connection:
        server.router.add("GET", "/stream", stream)
        assert ask_on(connection, "/stream").body == b"0\n1\n2\n"
        assert ask_on(connection, "/echo").status == 200  # on the same connection


def test_a_client_of_http_1_0_gets_an_answer_in_pieces_without_their_lengths() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first,"
        yield b""
        yield b"last"

    async def stream(request: Request) -> Response:
        return Response(200, pieces(), "text/plain")

    with echoing() as server, connected(server) as sock:
        server.router.add("GET", "/stream", stream)
        sock.sendall(b"GET /stream HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        got = read_response(sock)
        assert "transfer-encoding" not in got.headers
        assert got.headers["connection"] == "close"  # for its end is that of the answer
        assert b"".join(iter(lambda: sock.recv(100), b"")) == b"first,last"


def test_a_whole_url_is_answered_as_its_path_is() -> None:
    with echoing() as server, connected(server) as sock:
        sock.sendall(b"GET http://any:80/echo HTTP/1.1\r\nhost: t\r\n\r\n")
        assert read_response(sock).status == 200
        sock.sendall(b"PUT http://any:80/echo HTTP/1.1\r\nhost: t\r\n\r\n")
        got = read_response(sock)
        assert (got.status, got.headers["allow"]) == (405, "GET, HEAD, POST")


def test_unknown_paths_and_methods_are_told() -> None:
    with echoing() as server:
        assert ask(server, "/nowhere").status == 404
        assert ask(server, "http://elsewhere/echo").status == 200  # as a proxy is asked
        got = ask(server, "/v1/nowhere")
        assert (got.status, got.json["error"]) == (400, "Malformed request: GET /v1/nowhere")
        got = ask(server, "/echo", method="DELETE")
        assert (got.status, got.headers["allow"]) == (405, "GET, HEAD, POST")


def test_what_goes_wrong_inside_is_told_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: Request) -> Response:
        raise KeyError("secret")

    with echoing() as server:
        server.router.add("GET", "/broken", broken)
        got = ask(server, "/broken")
    assert got.status == 500
    assert b"secret" not in got.body
    assert "secret" in caplog.text


def test_a_client_is_not_left_waiting_for_an_answer_that_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def unwritable(request: Request) -> Response:
        return Response(headers={"x": "\u20ac"})

    async def cut(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            raise KeyError("two")

        return Response(200, pieces())

    async def odd(request: Request) -> Response:
        raise Refused(Status.NOT_FOUND, "no \ud800 here")

    with echoing() as server:
        for name, answer in (("unwritable", unwritable), ("cut", cut), ("odd", odd)):
            server.router.add("GET", f"/{name}", answer)
        for path in ("/unwritable", "/cut"):
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                ask(server, path)
        got = ask(server, "/odd")
        assert (got.status, got.json["error"]) == (404, "no ? here")
        assert server._doors["http"]._common.held_bytes == 0  # type: ignore[attr-defined]


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # the start of TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(garbage: bytes) -> None:
    with echoing() as server, connected(server) as sock:
        sock.sendall(garbage)
        assert read_response(sock).status in (400, 404)
        assert is_closed(sock)


def test_what_is_not_http_is_told_why() -> None:
    with echoing() as server, connected(server) as sock:
        sock.sendall("GET /v2/models/é HTTP/1.1\r\n\r\n".encode())
        assert read_response(sock).json["error"].endswith("Invalid char in url path")


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 10001\r\n\r\n")
        got = read_response(sock)
        assert (got.status, got.json["error"]) == (413, "a body has at most 10000 bytes")
        assert is_closed(sock)


def test_a_client_that_sends_on_can_read_why_it_was_refused() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(post(b"x" * 300_000))
        assert read_response(sock).status == 413


def test_an_answer_is_read_to_its_end_although_the_next_request_was_refused() -> None:
    size, refused = 8 * 2**20, asyncio.Event()

    async def large(request: Request) -> Response:
        await refused.wait()
        return Response(200, bytes(size))

    with echoing(TIGHT) as server, connected(server) as sock:
        server.router.add("GET", "/large", large)
        sock.sendall(b"GET /large HTTP/1.1\r\nhost: t\r\n\r\n" + post(bytes(20_000)))

        async def until_refused() -> None:
            connections = server._doors["http"]._listener.connections  # type: ignore[attr-defined]
            while not any(c.phase is Phase.OVER for c in connections):
                await asyncio.sleep(0)
            refused.set()

        server.call(until_refused)
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                sock.sendall(bytes(1000))
                got = sock.recv(1000, socket.MSG_PEEK)
                assert got.startswith(b"HTTP/1.1 200")
        got_all = read_response(sock)
        assert (got_all.status, len(got_all.body)) == (200, size)


def test_a_chunked_body_that_grows_too_large_is_refused() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
        sock.sendall(b"2710\r\n" + b"x" * 10_000 + b"\r\n1\r\nx\r\n")
        assert read_response(sock).status == 413


@pytest.mark.parametrize(
    "head",
    [
        b"x: " + b"y" * 3_000 + b"\r\n\r\n",
        b"".join(b"h%d: y\r\n" % n for n in range(30)) + b"\r\n",
        b"x" * 3_000,  # for ever in the name of one header
        b"x: " + b"y" * 3_000,
    ],
)
def test_a_head_that_is_too_large_is_refused(head: bytes) -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(b"GET /echo HTTP/1.1\r\nhost: t\r\n" + head)
        assert read_response(sock).status == 431
        assert is_closed(sock)


def test_a_trailer_is_no_header() -> None:
    async def told(request: Request) -> Response:
        return json_response(dict(request.headers))

    with echoing() as server, connected(server) as sock:
        server.router.add("POST", "/told", told)
        sock.sendall(b"POST /told HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
        sock.sendall(b"0\r\nhost: other\r\nauthorization: Bearer smuggled\r\n\r\n")
        assert read_response(sock).json == {"host": "t", "transfer-encoding": "chunked"}


def test_a_trailer_that_is_too_large_is_refused() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n")
        sock.sendall(b"5\r\nhello\r\n0\r\nx: ")
        assert ask(server, "/v2").status == 200  # what came before has been read by now
        sock.sendall(b"y" * 3_000)
        assert read_response(sock).status == 431
        assert is_closed(sock)


def test_a_compressed_body_is_unfolded() -> None:
    with echoing() as server:
        for coding, body in (
            ("gzip", gzip.compress(b"folded")),
            ("gzip", gzip.compress(b"fol") + gzip.compress(b"ded")),
            ("deflate", zlib.compress(b"folded")),
            ("identity", b"folded"),
        ):
            assert ask(server, "/echo", body, content_encoding=coding).json["body"] == "folded"
        large = random.Random(3).randbytes(50_000)  # unfolded on a thread
        got = ask(server, "/echo", gzip.compress(large), content_encoding="gzip")
        assert got.json["body"] == large.decode("latin-1")


@pytest.mark.parametrize(
    ("coding", "body", "why"),
    [
        ("gzip", gzip.compress(b"0" * 20_000), "unfolds to more than 10000 bytes"),
        ("gzip", gzip.compress(b"0" * 6_000) * 2, "unfolds to more than 10000 bytes"),
        ("gzip", b"no gzip", "the body is not gzip"),
        ("gzip", gzip.compress(b"folded")[:-9], "cut short"),
        ("br", b"x", "'br' is not supported"),
    ],
    ids=["a bomb", "two that are one", "no gzip", "cut short", "brotli"],
)
def test_a_compressed_body_that_harms_is_refused(coding: str, body: bytes, why: str) -> None:
    with echoing(TIGHT) as server:
        got = ask(server, "/echo", body, content_encoding=coding)
    assert got.status == 400
    assert why in got.json["error"]


def test_a_body_of_very_many_small_parts_costs_no_time() -> None:
    limits = Limits(body_bytes=4 * 2**20)
    parts = gzip.compress(b"") * 100_000
    few = gzip.compress(b"ab") * 5_000
    with echoing(limits) as server:
        began = time.monotonic()
        got = ask(server, "/echo", parts, content_encoding="gzip")
        assert (got.status, "parts" in got.json["error"]) == (400, True)
        assert time.monotonic() - began < 5
        got = ask(server, "/echo", few, content_encoding="gzip")
        assert got.json["body"] == "ab" * 5_000


def test_bodies_are_refused_when_all_together_are_too_large() -> None:
    limits = Limits(body_bytes=10_000, bodies_bytes=15_000)
    with echoing(limits) as server, connected(server) as first, connected(server) as second:
        head = b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 10000\r\n\r\n"
        first.sendall(head + b"x" * 9_999)
        assert ask(server, "/v2").status == 200  # what came before has been read by now
        second.sendall(head + b"x" * 9_999)
        got = read_response(second)
        assert (got.status, got.headers["retry-after"]) == (503, "1")
        first.sendall(b"x")
        assert read_response(first).status == 200
        assert ask(server, "/echo", b"x" * 10_000).status == 200  # there is room again


@pytest.mark.parametrize("folded_bytes", [0, 20_000], ids=["on the loop", "on a thread"])
def test_a_compressed_body_counts_as_what_it_unfolds_to(folded_bytes: int) -> None:
    held = threading.Event()
    goes_on = asyncio.Event()

    async def hold(request: Request) -> Response:
        held.set()
        await goes_on.wait()
        return json_response(len(request.body))

    chance = random.Random(3).randbytes(folded_bytes)
    folded = gzip.compress(chance.ljust(60_000))
    limits = Limits(body_bytes=100_000, bodies_bytes=100_000)
    with serving(limits=limits) as server, connected(server) as first:
        server.router.add("POST", "/hold", hold)
        first.sendall(post(folded, "content-encoding: gzip", path="/hold"))
        assert held.wait(20)
        got = ask(server, "/hold", folded, content_encoding="gzip")
        assert (got.status, got.headers["retry-after"]) == (503, "1")
        assert server._loop is not None
        server._loop.call_soon_threadsafe(goes_on.set)
        assert read_response(first).json == 60_000
        assert ask(server, "/hold", folded, content_encoding="gzip").json == 60_000
        assert ask(server, "/hold", folded, content_encoding="gzip").json == 60_000


def test_a_body_of_tiny_chunks_is_held_as_what_it_is() -> None:
    common = Common(Limits())
    connection = Connection(None, None, None, common, KnownHeads(), None, None)  # type: ignore[arg-type]
    sent = [b"x" * 2_000, *[b"ab"] * 10_000, b"y" * 2_000, *[b"cd"] * 10_000]
    for piece in sent:
        connection.on_body(piece)
    assert sum(map(sys.getsizeof, connection._incoming._pieces)) < 1.2 * common.held_bytes
    assert b"".join(connection._incoming._pieces) == b"".join(sent)


def test_who_may_send_a_large_body_is_asked_before_it_is_read() -> None:
    token = "of-somebody-who-may"
    size = 2**20
    many = bytes(size // 2)
    with echoing(operation=Operation(tokens=Tokens([(Role.INFER, token)]))) as server:
        for path in ("/echo", "/healthz", "/nowhere"):
            for line in ("x: y", "authorization: Bearer of-somebody-else"):
                with connected(server) as sock:
                    sock.sendall(post(bytes(size), line, path=path)[:-size] + many)
                    got = read_response(sock)  # before the rest was sent
                    assert (got.status, got.headers["www-authenticate"]) == (401, "Bearer")
        with connected(server) as sock:
            sock.sendall(post(many, "expect: 100-continue")[: -len(many)])
            assert read_response(sock).status == 401  # it need not send anything
        with connected(server) as sock:
            sock.sendall(post(b"small") + post(b"small"))
            assert [read_response(sock).status for _ in range(2)] == [401, 401]
        with connected(server) as sock:
            sock.sendall(post(many, f"authorization: Bearer {token}"))
            assert read_response(sock).status == 200


def test_more_connections_than_allowed_are_refused_and_the_others_stay() -> None:
    with echoing(TIGHT) as server, contextlib.ExitStack() as stack:
        first = [stack.enter_context(connected(server)) for _ in range(4)]
        for sock in first:
            sock.sendall(post(b"1"))
            assert read_response(sock).status == 200
        one_more = stack.enter_context(connected(server))
        got = read_response(one_more)
        assert (got.status, got.headers["retry-after"]) == (503, "1")
        first[0].sendall(post(b"2"))
        assert read_response(first[0]).json["body"] == "2"


# -- who takes too long ------------------------------------------------------------------------


def test_a_client_that_never_ends_its_head_is_cut_off() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(b"GET /echo HTTP/1.1\r\nhost")
        assert read_response(sock).status == 408
        assert is_closed(sock)


def test_a_client_that_never_ends_its_body_is_cut_off() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\nx")
        assert read_response(sock).status == 408
        assert is_closed(sock)


def test_a_client_whose_requests_are_not_read_is_not_taken_to_be_slow() -> None:
    go_on = asyncio.Event()

    async def slow(request: Request) -> Response:
        await go_on.wait()
        return Response(200)

    with echoing(TIGHT) as server, connected(server) as sock:
        server.router.add("GET", "/slow", slow)
        one = b"GET /slow HTTP/1.1\r\nhost: t\r\n\r\n"
        sock.sendall(one * (1 + TIGHT.pipelined) + one[:9])

        async def much_later() -> None:
            connections = server._doors["http"]._listener.connections  # type: ignore[attr-defined]
            while not any(c.phase is Phase.HEAD for c in connections):
                await asyncio.sleep(0)
            for connection in connections:
                connection.look(time.monotonic() + 3600)
            go_on.set()

        server.call(much_later)
        sock.sendall(one[9:])
        for _ in range(2 + TIGHT.pipelined):
            assert read_response(sock).status == 200


def test_a_client_that_sends_much_of_its_body_and_then_stops_is_cut_off() -> None:
    with echoing(TIGHT) as server, connected(server) as sock:
        sock.sendall(post(b"x" * 9_000)[:-1_000])
        assert read_response(sock).status == 408
        assert is_closed(sock)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    async def large(request: Request) -> Response:
        return Response(200, bytes(32 * 2**20), "application/octet-stream")

    with echoing(TIGHT) as server, connected(server) as sock:
        server.router.add("GET", "/large", large)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(b"GET /large HTTP/1.1\r\nhost: t\r\n\r\n")
        door = server._doors["http"]
        gone = threading.Event()

        async def left() -> bool:
            return door.connections == 0  # type: ignore[attr-defined]

        for _ in range(400):
            if server.call(left):
                gone.set()
                break
            gone.wait(0.05)
        assert gone.is_set()


def test_answers_that_are_not_read_count_as_held() -> None:
    async def large(request: Request) -> Response:
        return Response(200, bytes(32 * 2**20), "application/octet-stream")

    limits = Limits(body_bytes=1000, bodies_bytes=2**20)
    with echoing(limits) as server:
        server.router.add("GET", "/large", large)
        deadline = time.monotonic() + 20
        with connected(server) as lazy:
            lazy.sendall(b"GET /large HTTP/1.1\r\nhost: t\r\n\r\n")
            while (got := ask(server, "/echo", b"x")).status == 200:
                assert time.monotonic() < deadline
            assert (got.status, got.headers["retry-after"]) == (503, "1")
        while ask(server, "/echo", b"x").status != 200:
            assert time.monotonic() < deadline


def test_an_idle_connection_is_closed_in_the_end() -> None:
    limits = Limits(idle_seconds=0.3)
    with echoing(limits) as server, connected(server) as sock:
        sock.sendall(post(b"x"))
        assert read_response(sock).status == 200
        assert is_closed(sock)


# -- the end -----------------------------------------------------------------------------------


def test_a_server_that_is_closed_finishes_what_is_under_way() -> None:
    asked, go = threading.Event(), threading.Event()

    async def slow(request: Request) -> Response:
        asked.set()
        await asyncio.get_running_loop().run_in_executor(None, go.wait)
        return json_response("done")

    with echoing() as server:
        server.router.add("GET", "/slow", slow)
        with connected(server) as sock, connected(server) as idle:
            sock.sendall(b"GET /slow HTTP/1.1\r\nhost: t\r\n\r\n")
            assert asked.wait(10)
            closing = threading.Thread(target=server.close)
            closing.start()
            assert is_closed(idle)
            with pytest.raises(OSError):
                connected(server).close()
            go.set()
            got = read_response(sock)
            assert (got.json, got.headers["connection"]) == ("done", "close")
            closing.join()


def in_time(work: Callable[[], None]) -> None:
    """Do it on another thread, which does not stay there for ever."""
    done: Future[None] = Future()

    def do() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    done.result(10)


def test_threads_that_close_a_server_together_all_return() -> None:
    for _ in range(5):
        with echoing() as server, ThreadPoolExecutor(3) as threads:
            for closed in [threads.submit(in_time, server.close) for _ in range(3)]:
                closed.result()


def test_threads_that_close_a_server_together_cut_nothing_off(tmp_path: Path) -> None:
    asked, go = threading.Event(), threading.Event()

    async def slow(request: Request) -> Response:
        asked.set()
        await asyncio.get_running_loop().run_in_executor(None, go.wait)
        return json_response("done")

    with echoing(operation=Operation(history=str(tmp_path / "history"))) as server:
        server.router.add("GET", "/slow", slow)
        with connected(server) as sock, connected(server) as idle, ThreadPoolExecutor(2) as threads:
            sock.sendall(b"GET /slow HTTP/1.1\r\nhost: t\r\n\r\n")
            assert asked.wait(10)
            closing = [threads.submit(in_time, server.close) for _ in range(2)]
            try:
                assert is_closed(idle)
            finally:
                go.set()
            assert read_response(sock).json == "done"
            for closed in closing:
                closed.result()


def test_a_server_that_is_closed_when_it_is_almost_closed_leaves_nothing_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end_others = server_module._end_others

    async def end_and_begin_again() -> None:
        await end_others()
        server._begin_to_shut(asyncio.get_running_loop(), 0)

    monkeypatch.setattr(server_module, "_end_others", end_and_begin_again)
    with echoing() as server:
        in_time(server.close)
        assert asyncio.all_tasks(server._loop) == set()


def test_a_server_whose_closing_was_interrupted_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with echoing() as server:
        thread = server._thread
        assert thread is not None

        def interrupted() -> None:
            threading.Thread.join(thread)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(thread, "join", interrupted)
            server.close()
        in_time(server.close)


@contextlib.contextmanager
def busy_for_ever() -> Iterator[tuple[sojourn.Server, socket.socket]]:
    """A server with a request that never ends, and the connection that it came by."""
    asked = threading.Event()

    async def endless(request: Request) -> Response:
        asked.set()
        await asyncio.Event().wait()
        return json_response("never")

    with echoing() as server:
        server.router.add("GET", "/endless", endless)
        with connected(server) as sock:
            sock.sendall(b"GET /endless HTTP/1.1\r\nhost: t\r\n\r\n")
            assert asked.wait(10)
            yield server, sock


def test_closing_a_server_again_with_less_time_hurries_it() -> None:
    with busy_for_ever() as (server, _), ThreadPoolExecutor(1) as threads:
        patient = threads.submit(server.close, 60)
        while not server.handler.is_stopping:
            time.sleep(0.01)
        in_time(lambda: server.close(0))
        patient.result(10)


def test_a_server_that_is_closed_answers_a_request_that_has_begun_to_come() -> None:
    whole = post(b"body")
    with echoing() as server, connected(server) as sock:
        sock.sendall(whole[:-2])
        ask(server, "/echo")  # so that it has been read
        closing = threading.Thread(target=server.close)
        closing.start()
        while True:
            with contextlib.suppress(OSError), connected(server):
                continue
            break
        sock.sendall(whole[-2:])
        got = read_response(sock)
        assert (got.json["body"], got.headers["connection"]) == ("body", "close")
        closing.join()


def test_clients_that_ask_all_the_time_lose_nothing_when_the_server_is_closed() -> None:
    lost: list[object] = []
    began = threading.Barrier(5)

    def keep_asking(server: sojourn.Server) -> None:
        with connected(server) as sock:
            for number in range(100_000):
                sock.sendall(post(str(number).encode()))
                got = read_response(sock)
                if got.json["body"] != str(number):
                    lost.append(got)
                if got.headers.get("connection") == "close":
                    return
                if number == 10:
                    began.wait(10)

    with echoing() as server:
        asking = [threading.Thread(target=keep_asking, args=[server]) for _ in range(4)]
        for thread in asking:
            thread.start()
        began.wait(10)
        server.close()
        for thread in asking:
            thread.join()
    assert not lost


def test_a_server_that_is_closed_does_not_wait_for_ever() -> None:
    with busy_for_ever() as (server, sock):
        server.close(grace_seconds=0.1)
        assert is_closed(sock)
    server.close()  # may be called twice


def test_a_client_that_leaves_has_its_request_cancelled() -> None:
    asked, cancelled = threading.Event(), threading.Event()

    async def endless(request: Request) -> Response:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return json_response("never")

    with echoing() as server:
        server.router.add("GET", "/endless", endless)
        with connected(server) as sock:
            sock.sendall(b"GET /endless HTTP/1.1\r\nhost: t\r\n\r\n")
            assert asked.wait(10)
        assert cancelled.wait(10)
        assert ask(server, "/echo").status == 200


def test_a_thread_that_computes_holds_up_no_request() -> None:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(100))

    before = sys.getswitchinterval()
    with echoing() as server, client(server) as connection:
        threads = [threading.Thread(target=compute) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            assert sys.getswitchinterval() < 0.001
            assert ask_on(connection, "/echo", b"x").status == 200
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert sys.getswitchinterval() == before


def test_the_pace_of_threads_comes_back_with_the_end_of_the_last_server() -> None:
    before = sys.getswitchinterval()
    with contextlib.ExitStack() as second:
        with serving():
            second.enter_context(serving())
        assert sys.getswitchinterval() < 0.001
    assert sys.getswitchinterval() == before


def test_a_server_on_a_closed_pool_does_not_start() -> None:
    with sojourn.Pool() as pool:
        server = sojourn.Server(pool, http="127.0.0.1:0")
    with pytest.raises(sojourn.SessionClosed, match=r"the pool was closed at .*test_service_http"):
        server.start()
    server.close()


def test_a_server_whose_pool_is_closed_meanwhile_is_alive_and_not_ready() -> None:
    pool = sojourn.Pool()
    with serving(pool) as server:
        assert ask(server, "/readyz").status == 200
        pool.close()
        assert (ask(server, "/healthz").status, ask(server, "/readyz").status) == (200, 503)
        assert ask(server, "/v2/health/ready").json["ready"] is False


def test_an_address_in_use_is_told_and_nothing_is_left() -> None:
    with echoing() as server, sojourn.Pool() as pool:
        second = sojourn.Server(pool, http=server.http_address)
        with pytest.raises(OSError, match="in use"):
            second.start()


@pytest.mark.parametrize(
    "address", ["8501", "localhost", "127.0.0.1:", "unix:/x", "a:b", "a:99999"]
)
def test_an_address_that_makes_no_sense_is_refused(address: str) -> None:
    with sojourn.Pool() as pool, pytest.raises(ValueError, match="must be an address such as"):
        sojourn.Server(pool, http=address).start()


def test_a_host_that_is_not_known_is_named() -> None:
    with sojourn.Pool() as pool, pytest.raises(OSError, match="cannot listen at nowhere"):
        sojourn.Server(pool, http="nowhere.invalid:0").start()


def test_a_port_without_a_host_is_on_every_interface() -> None:
    with sojourn.Pool() as pool, sojourn.Server(pool, http=":0") as server:
        assert server.http_address is not None
        assert server.http_address.startswith("0.0.0.0:")


# -- what is told of it ------------------------------------------------------------------------


def test_answers_are_observed() -> None:
    seen = []
    with echoing() as server:
        server._doors["http"].observers.append(  # type: ignore[attr-defined]
            lambda request, response, seconds: seen.append((request.path, response.status))
        )
        ask(server, "/echo", b"x")
        ask(server, "/nowhere")
    assert seen == [("/echo", 200), ("/nowhere", 404)]


def test_json_errors_are_json() -> None:
    with echoing() as server, connected(server) as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        got = read_response(sock)
        assert got.headers["content-type"] == "application/json"
        assert json.loads(got.body)["error"].startswith("Malformed request")
