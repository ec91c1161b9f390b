"""An HTTP/2 client that sends exactly the frames it is given, over a real connection."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import hpack

from sojourn.service.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEAD_BYTES,
    HEADERS,
    PREFACE,
    RST_STREAM,
    frame,
    head_at,
    settings,
)

INFER = "/inference.GRPCInferenceService/ModelInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def fields(path: str = LIVE, **more: str) -> list[tuple[str, str]]:
    """Return the header fields of a call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *((name.replace("_", "-"), value) for name, value in more.items()),
    ]


def packed(message: Any = b"") -> bytes:
    """Return a message with gRPC's length prefix."""
    content = message if isinstance(message, bytes) else message.SerializeToString()
    return struct.pack(">BI", 0, len(content)) + content


class RawClient:
    """Writes bytes, reads frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self._data = bytearray()

    def greet(self, **options: Any) -> None:
        self.send(PREFACE + settings(options.get("settings", {})))

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the server has said before why it closed
            self.sock.sendall(data)

    def head(
        self, stream: int, given: list[tuple[str, str]] | None = None, flags: int = END_HEADERS
    ) -> bytes:
        return frame(HEADERS, flags, stream, self.encoder.encode(given or fields()))

    def call(self, stream: int, path: str = LIVE, message: Any = b"", **more: str) -> bytes:
        """Return the frames of a whole call."""
        return self.head(stream, fields(path, **more)) + frame(
            DATA, END_STREAM, stream, packed(message)
        )

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield type, flags, stream and content of each frame, until the server closes."""
        while True:
            while len(self._data) < HEAD_BYTES:
                if not self._read():
                    return
            length, kind, flags, stream = head_at(self._data, 0)
            while len(self._data) < HEAD_BYTES + length:
                if not self._read():
                    return
            content = bytes(self._data[HEAD_BYTES : HEAD_BYTES + length])
            del self._data[: HEAD_BYTES + length]
            yield kind, flags, stream, content

    def _read(self) -> bool:
        try:
            data = self.sock.recv(2**16)
        except ConnectionError:
            return False
        self._data += data
        return bool(data)

    def next(self, *kinds: int) -> tuple[int, int, int, bytes]:
        """Return the next frame of one of these types."""
        for found in self.frames():
            if found[0] in kinds:
                return found
        raise EOFError("the server has closed")

    def answer(self, stream: int) -> tuple[dict[str, str], bytes]:
        """Return the header fields and the body of the answer on a stream."""
        told: dict[str, str] = {}
        body = b""
        for kind, flags, number, content in self.frames():
            if kind == HEADERS:
                read = dict(self.decoder.decode(content))
                told |= read if number == stream else {}
            elif kind == DATA and number == stream:
                body += content
            if number == stream and flags & END_STREAM and kind in (HEADERS, DATA):
                return told, body
            if number == stream and kind == RST_STREAM:
                raise ConnectionResetError(int.from_bytes(content, "big"))
            if kind == GOAWAY and int.from_bytes(content[4:8], "big"):
                raise ConnectionAbortedError(content[8:].decode())
        raise EOFError("the server has closed")


@contextlib.contextmanager
def raw(address: str) -> Iterator[RawClient]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        yield RawClient(sock)
