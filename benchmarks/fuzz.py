"""Send damaged requests of all five protocols, and damaged HTTP/2 frames, to a server, and check
that it is not harmed.

`make fuzz` sends 100,000 with a seed of its own; a failure prints its seed and number, and
`--seed S --number N` sends that request again. No answer may be an internal error or be missing,
nothing may be logged as an error, the workers must be the same as in the beginning, memory must
not grow, and nothing may be left afterwards. `--only kserve-grpc grpc-frames` sends only those two.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import logging
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import grpc
import hpack
import psutil
from fuzz_requests import (
    PROTOCOLS,
    FramesRequest,
    GrpcRequest,
    HttpRequest,
    Request,
    X,
    kserve,
    request_number,
)

from sojourn.service.http2 import frames

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

THREADS = 4
TIMEOUT = 60.0  # seconds until an answer counts as missing; a busy machine may take long
SILENCE = 0.2  # seconds to wait for an answer to damaged frames, which may never arrive
GROWTH_BYTES = 48 * 2**20
# Server errors: clients may see none of these, only UNAVAILABLE, which is 503.
WRONG_CODES = {"INTERNAL", "UNKNOWN", "DATA_LOSS", "missing"}
NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
LATE = "504"  # DEADLINE_EXCEEDED, which is right: a request may set itself a microsecond


class Wire:
    """One client, with a connection of each kind."""

    def __init__(self, http: str, grpc_: str) -> None:
        host, _, port = http.rpartition(":")
        self._http = (host, int(port))
        self._socket: socket.socket | None = None
        host, _, port = grpc_.rpartition(":")
        self._grpc = (host, int(port))
        self._channel = grpc.insecure_channel(grpc_)

    def close(self) -> None:
        self._channel.close()
        self._hang_up()

    def ask(self, request: Request) -> str:
        """Return the status of the answer, or `closed` if the server closed the connection."""
        if isinstance(request, FramesRequest):
            return self._ask_frames(request)
        if isinstance(request, GrpcRequest):
            stub = self._channel.unary_unary(request.path)
            began = time.monotonic()
            try:
                stub(request.body, timeout=TIMEOUT)
            except grpc.RpcError as error:
                took = time.monotonic() - began
                return "missing" if took >= TIMEOUT else str(error.code().name)
            return "OK"
        if request.raw is None:
            return self._ask_http(request.encoded(), request.method)
        self._hang_up()  # the damaged bytes may be no request at all, or two
        try:
            return self._ask_http(request.raw, "", is_last=True)
        finally:
            self._hang_up()

    def _ask_frames(self, request: FramesRequest) -> str:
        """Return the worst status of the calls in the frames; if there is no status, `closed` or
        `silent`."""
        statuses, data, decoder = [], bytearray(), hpack.Decoder()
        left = request.calls
        with (
            contextlib.suppress(OSError),  # includes the timeout
            socket.create_connection(self._grpc, timeout=SILENCE) as client,
        ):
            client.sendall(request.content)
            while left > 0 and (piece := client.recv(2**16)):
                data += piece
                for kind, flags, content in _whole_frames(data):
                    if kind == frames.GOAWAY:
                        left = 0
                    elif kind == frames.RST_STREAM:
                        left -= 1
                    elif kind == frames.HEADERS:
                        told = dict(decoder.decode(content))
                        left -= flags & frames.END_STREAM
                        if "grpc-status" in told:
                            statuses.append(NAMES[int(told["grpc-status"])])
        ended = "silent" if left > 0 else "closed"
        return next(filter(is_wrong, statuses), statuses[0] if statuses else ended)

    def _ask_http(self, content: bytes, method: str, *, is_last: bool = False) -> str:
        for attempt in (1, 2):
            is_new = self._socket is None
            if self._socket is None:
                self._socket = socket.create_connection(self._http, timeout=TIMEOUT)
            try:
                self._socket.sendall(content)
                if is_last:
                    self._socket.shutdown(socket.SHUT_WR)
                return self._read(method)
            except TimeoutError:
                self._hang_up()
                return "missing"
            except OSError:
                self._hang_up()
                if is_new or attempt == 2:
                    return "closed"  # the request before this one may have been malformed
        raise AssertionError

    def _read(self, method: str) -> str:
        assert self._socket is not None
        head, body = b"", b""
        while not head or head.split()[1] == b"100":
            while b"\r\n\r\n" not in body:
                piece = self._socket.recv(2**16)
                if not piece:
                    raise ConnectionError
                body += piece
            head, _, body = body.partition(b"\r\n\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = 0 if method == "HEAD" else int(headers.get(b"content-length", 0))
        while len(body) < length:
            piece = self._socket.recv(2**16)
            if not piece:
                raise ConnectionError
            body += piece
        if headers.get(b"connection") == b"close":
            self._hang_up()
        return head.split()[1].decode()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _whole_frames(data: bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Remove complete frames from the start of the data; yield type, flags and content."""
    while len(data) >= frames.HEAD_BYTES:
        length, kind, flags, _ = frames.head_at(data, 0)
        end = frames.HEAD_BYTES + length
        if len(data) < end:
            return
        content = bytes(data[frames.HEAD_BYTES : end])
        del data[:end]
        yield kind, flags, content


def is_wrong(status: str) -> bool:
    """Whether a client should never see this status."""
    if status.isdigit():
        return int(status) >= 500 and status not in ("503", LATE)
    return status in WRONG_CODES or status.startswith("unasked")


class Run:
    """Some requests, sent by several clients."""

    def __init__(
        self, seed: int, addresses: dict[str, str], only: Collection[str] = PROTOCOLS
    ) -> None:
        self.seed = seed
        self._only = only
        self.statuses: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self._addresses = addresses

    def send(self, numbers: range) -> None:
        threads = [
            threading.Thread(target=self._send, args=(numbers[first::THREADS],))
            for first in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, numbers: range) -> None:
        with contextlib.closing(self.wire()) as wire:
            for number in numbers:
                if len(self.wrong) > 20:
                    return
                if PROTOCOLS[number % len(PROTOCOLS)] not in self._only:
                    continue
                protocol, request = request_number(self.seed, number)
                try:
                    status = wire.ask(request)
                except Exception:  # an error of our own client: an unsent request must be reported
                    status = f"unasked {traceback.format_exc()}"
                self.statuses[f"{protocol} {status.split()[0]}"] += 1
                if is_wrong(status):
                    self.wrong.append(f"--seed {self.seed} --number {number}: {protocol} {status}")

    def wire(self) -> Wire:
        return Wire(self._addresses["http"], self._addresses["grpc"])

    def answers_rightly(self) -> bool:
        """Whether a valid request is still answered correctly."""
        body = json.dumps({"instances": X.tolist()}).encode()
        path, message = kserve(random.Random(0))
        with contextlib.closing(self.wire()) as wire:
            return (
                wire.ask(HttpRequest("POST", "/v1/models/numbers:predict", body)) == "200"
                and wire.ask(GrpcRequest(path, message.SerializeToString())) == "OK"
            )


@contextlib.contextmanager
def running_server(folder: str) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """A server in a process of its own, so that its memory can be measured apart from ours."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--serve", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield psutil.Process(child.pid), json.loads(child.stdout.readline())
    finally:
        child.stdin.close()
        if child.wait(60):
            raise SystemExit(f"the server ended with {child.returncode}")
        child.stdout.close()


def serve(folder: str) -> None:
    """Serve until standard input ends. Fails if anything was logged as an error."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    import sojourn
    from sojourn.service.catalogue import Catalogue
    from sojourn.service.rules import ModelRules

    entries = {
        "numbers": ModelRules(path=f"{folder}/numbers", versions="all", labels={"stable": 1}),
        "examples": ModelRules(path=f"{folder}/examples"),
    }
    with (
        sojourn.Pool() as pool,
        sojourn.Server(Catalogue(pool, entries), http="127.0.0.1:0", grpc="127.0.0.1:0") as server,
    ):
        print(json.dumps(server.addresses), flush=True)
        sys.stdin.read()
    if errors.count:
        sys.exit(1)


class Errors(logging.Handler):
    """Prints and counts logged errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if self.count <= 20:
            print(self.format(record), file=sys.stderr)


def bytes_of(server: psutil.Process) -> int:
    """Return the private memory of the server and its workers."""
    held = 0
    for process in (server, *server.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            held += process.memory_full_info().uss
    return held


def workers_of(server: psutil.Process) -> set[int]:
    return {child.pid for child in server.children(recursive=True)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--number", type=int, help="send only this one, and print it")
    parser.add_argument("--only", choices=PROTOCOLS, nargs="+", default=PROTOCOLS)
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    seed = random.randrange(2**31) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory() as folder:
        import example_models
        import sojourn

        sojourn.isolated(example_models.save)(folder)
        with running_server(folder) as (server, addresses):
            run = Run(seed, addresses, options.only)
            if options.number is not None:
                run.send(range(options.number, options.number + 1))
                print(request_number(seed, options.number), run.statuses)
                return bool(run.wrong)
            told = fuzz(run, server, options.requests)
    print(json.dumps(told, indent=2))
    for line in run.wrong:
        print(line, file=sys.stderr)
    return 0 if not run.wrong and not told["faults"] else 1


def fuzz(run: Run, server: psutil.Process, requests: int) -> dict[str, Any]:
    """Send the requests; the memory after the first fifth of them limits what the rest may use."""
    faults = []
    first = max(1, requests // 5)
    run.send(range(first))
    before, workers = bytes_of(server), workers_of(server)
    began = time.monotonic()
    run.send(range(first, requests))
    seconds = time.monotonic() - began
    if not run.answers_rightly():
        faults.append("a valid request gets no answer afterwards")
    if workers_of(server) != workers:
        faults.append(f"workers have died or come: {workers} before, {workers_of(server)} after")
    growth = bytes_of(server) - before
    if growth > GROWTH_BYTES:
        faults.append(f"memory has grown by {growth / 2**20:.0f} MiB")
    by_protocol = {
        protocol: {
            key.split()[1]: count
            for key, count in sorted(run.statuses.items())
            if key.startswith(f"{protocol} ")
        }
        for protocol in PROTOCOLS
    }
    return {
        "seed": run.seed,
        "requests": sum(run.statuses.values()),
        "per_second": round((requests - first) / max(seconds, 1e-9)),
        "growth_mib": round(growth / 2**20, 1),
        "answers": by_protocol,
        "wrong": len(run.wrong),
        "faults": faults,
    }


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.exit(main())
