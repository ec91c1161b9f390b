"""Overload a server while its workers and zygote are killed and clients disappear.

    python benchmarks/serving_loss.py --seconds 600

Every request whose client waits must get exactly one answer, and its own: each request carries
numbers that no other has. Refusals (429, 503) are answers. Afterwards nothing may be left, and the
server's memory must be what it was after the first fifth of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import logging
import os
import random
import signal
import struct
import sys
import time
from typing import Any

import psutil

import sojourn
from sojourn.process.zygote import zygote
from sojourn.service.catalogue import Catalogue
from sojourn.service.inference import ModelRef
from sojourn.service.rules import ModelRules

HEAD = json.dumps(
    {
        "inputs": [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [1, 4],
                "parameters": {"binary_data_size": 16},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
).encode()
REFUSALS = (429, 503)
PATIENCE_SECONDS = 60.0  # a request without an answer for this long is lost
GROWTH_BYTES = 32 * 2**20


def double_and_one() -> Any:
    """y = 2 x + 1, row by row."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    return {"x": x}, {"y": x * 2.0 + 1.0}


class Told:
    """Counts of what happened."""

    def __init__(self) -> None:
        self.by_status: collections.Counter[int] = collections.Counter()
        self.wrong = 0
        self.lost: list[str] = []
        self.vanished = 0
        self.kills: collections.Counter[str] = collections.Counter()


async def one_client(address: str, number: int, until: float, told: Told, seed: int) -> None:
    """Ask again and again on one connection; sometimes disconnect without reading the answer."""
    draw = random.Random(seed)
    host, _, port = address.rpartition(":")
    writer = None
    count = 0
    try:
        while time.monotonic() < until:
            if writer is None:
                reader, writer = await asyncio.open_connection(host, int(port))
            count += 1
            values = struct.pack("<4f", number, count % 4096, number, count % 4096)
            body = HEAD + values
            writer.write(
                b"POST /v2/models/double/infer HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n"
                b"inference-header-content-length: %d\r\n\r\n%b" % (len(body), len(HEAD), body)
            )
            if draw.random() < 0.01:
                await asyncio.sleep(draw.random() * 0.01)
                writer.transport.abort()
                writer = None
                told.vanished += 1
                continue
            try:
                answered = read_answer(reader)
                status, answer = await asyncio.wait_for(answered, PATIENCE_SECONDS)
            except (asyncio.TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                told.lost.append(f"client {number}, request {count}: {error!r}")
                writer.transport.abort()
                writer = None
                continue
            told.by_status[status] += 1
            if status == 200:
                got = struct.unpack("<4f", answer[-16:])
                wanted = tuple(2 * value + 1 for value in struct.unpack("<4f", values))
                told.wrong += got != wanted
            elif status in REFUSALS:
                await asyncio.sleep(0.001)
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split(" ", 2)[1]), await reader.readexactly(length)


async def kill_now_and_then(
    server: sojourn.Server, every: float, until: float, told: Told, seed: int
) -> None:
    draw = random.Random(seed)

    async def worker() -> int:
        catalogue = server.handler.catalogue
        served = catalogue.resolve(ModelRef("double"))
        async with catalogue.session(served, time.monotonic() + 5) as session:
            return session.pid

    while time.monotonic() < until:
        await asyncio.sleep(every * draw.uniform(0.5, 1.5))
        if draw.random() < 0.2 and zygote.pid is not None:
            os.kill(zygote.pid, signal.SIGKILL)
            told.kills["zygote"] += 1
            continue
        try:
            pid = await asyncio.to_thread(server.call, worker)
        except sojourn.SojournError:
            continue  # the model is being reopened, or the pool waits before it reopens it
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            told.kills["worker"] += 1


async def ask_all(server: sojourn.Server, options: argparse.Namespace, told: Told) -> int:
    """Run all clients; return by how many bytes this process grew after the first fifth of it."""
    assert server.http_address is not None
    began = time.monotonic()
    until = began + options.seconds
    clients = [
        one_client(server.http_address, number, until, told, options.seed + number)
        for number in range(options.clients)
    ]
    killer = kill_now_and_then(server, options.every, until, told, options.seed)
    asking = asyncio.gather(*clients, killer)
    await asyncio.sleep(options.seconds / 5)
    early = psutil.Process().memory_info().rss
    await asking
    return psutil.Process().memory_info().rss - early


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=128, help="twice as many as may wait")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between kills")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # the reason for an answer of 500 is logged
    told = Told()
    with sojourn.Pool() as pool:
        pool.register("double", double_and_one)
        rules = ModelRules(max_queue=options.clients // 2, max_batch=32)
        catalogue = Catalogue(pool, {"double": rules})
        with sojourn.Server(catalogue, http="127.0.0.1:0") as server:
            pool.preload("double")
            grown = asyncio.run(ask_all(server, options, told))
            (statistics,) = server.handler.statistics("double")
    zygote.end()
    left = [child.name() for child in psutil.Process().children(recursive=True)]
    found = {
        "answers": dict(sorted(told.by_status.items())),
        "wrong": told.wrong,
        "lost": told.lost[:20],
        "vanished": told.vanished,
        "kills": dict(told.kills),
        "run_again": statistics.repeated,
        "steps": statistics.steps,
        "grown_bytes": grown,
        "left": left,
    }
    print(json.dumps(found) if options.json else json.dumps(found, indent=2))
    others = told.by_status.keys() - {200, *REFUSALS}
    if told.wrong or told.lost or others or left or grown > GROWTH_BYTES:
        sys.exit(1)


if __name__ == "__main__":
    main()
