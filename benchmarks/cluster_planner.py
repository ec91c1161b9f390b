"""The planner with 1,000 nodes and 100,000 models, while nodes are lost.

    python benchmarks/cluster_planner.py [--nodes N] [--models N] [--requests N]

Requests follow Zipf's law, model sizes a log-normal distribution; orders are carried out at once.
Each run prints two numbers: the time of a decision, and the share of the requested bytes that were
already open. That share is compared with the best that one cache of the same size could reach if it
knew the future (it evicts the model whose next use is last). Times are CPU times, so that a busy
machine does not count.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections import defaultdict

import numpy as np

from sojourn.cluster.planner import Close, Model, Node, Open, Order, Planner

GiB, MiB = 2**30, 2**20
REQUESTS_PER_SECOND = 50.0
WARM_UP = 0.5  # share of the requests that nobody counts


class Cluster:
    """Carries out every order at once and times every decision."""

    def __init__(self) -> None:
        self.planner = Planner()
        self.seconds: list[float] = []
        self.opened = 0

    def event(self, decide: object, *arguments: object) -> None:
        queue = [(decide, arguments)]
        while queue:
            decide, arguments = queue.pop()
            begun = time.thread_time()
            orders: tuple[Order, ...] = decide(*arguments) or ()  # type: ignore[operator]
            self.seconds.append(time.thread_time() - begun)
            now = arguments[-1]
            for order in orders:
                if isinstance(order, Open):
                    self.opened += 1
                    size = self.planner.books.entries[order.copy.model].bytes
                    queue.append((self.planner.on_opened, (order.copy, size, now)))
                elif isinstance(order, Close):
                    queue.append((self.planner.on_closed, (order.copy, now)))

    def is_open(self, name: str) -> bool:
        return any(copy.is_open for copy in self.planner.books.entries[name].copies.values())


def simulate(
    sizes: np.ndarray, wanted: np.ndarray, nodes: int, budget: int, losses: int
) -> tuple[Cluster, float]:
    cluster = Cluster()
    for index in range(nodes):
        cluster.event(cluster.planner.on_node, Node(f"n{index}", budget), 0.0)
    for index, size in enumerate(sizes):
        model = Model(str(index), int(size), pinned=index % 2000 == 1999)
        cluster.event(cluster.planner.on_model, model, 0.0)
    cluster.seconds.clear()
    warm = int(len(wanted) * WARM_UP)
    lost_at = {warm + (k + 1) * (len(wanted) - warm) // (losses + 1): k for k in range(losses)}
    hit = asked = 0
    for at, index in enumerate(wanted):
        now = 10.0 + at / REQUESTS_PER_SECOND
        if at in lost_at:
            name = f"n{lost_at[at]}"
            cluster.event(cluster.planner.on_node_lost, name, now)
            cluster.event(cluster.planner.on_node, Node(f"{name}'", budget), now)
            while cluster.planner.has_due:
                cluster.event(cluster.planner.plan, now)
        if at >= warm:
            size = int(sizes[index])
            asked += size
            hit += size if cluster.is_open(str(index)) else 0
        cluster.event(cluster.planner.on_demand, str(index), now)
    return cluster, hit / asked


def clairvoyant(sizes: np.ndarray, wanted: np.ndarray, room: int) -> float:
    """Return the hit rate of one cache that knows the future: it evicts the model whose next use is
    last, and does not admit a model whose next use is later still."""
    coming: dict[int, list[int]] = defaultdict(list)
    for at in range(len(wanted) - 1, -1, -1):
        coming[int(wanted[at])].append(at)
    inside: dict[int, int] = {}  # model: its next use
    latest: list[tuple[int, int]] = []
    used = hit = asked = 0
    for at, index in enumerate(map(int, wanted)):
        coming[index].pop()
        size, again = int(sizes[index]), (coming[index] or [2**60])[-1]
        if at >= len(wanted) * WARM_UP:
            asked += size
            hit += size if index in inside else 0
        if index not in inside:
            used += size
        inside[index] = again
        heapq.heappush(latest, (-again, index))
        while used > room:
            late, victim = heapq.heappop(latest)
            if inside.get(victim) == -late:
                used -= int(sizes[victim])
                del inside[victim]
    return hit / asked


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--losses", type=int, default=20)
    parser.add_argument("--skew", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=0.25, help="room, of all models' bytes")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    draw = np.random.default_rng(17)
    sizes = np.clip(draw.lognormal(np.log(300 * MiB), 1.0, given.models), 50 * MiB, 8 * GiB)
    sizes = sizes.astype(np.int64)
    chance = 1.0 / np.arange(1, given.models + 1) ** given.skew
    wanted = draw.choice(draw.permutation(given.models), given.requests, p=chance / chance.sum())
    budget = max(int(sizes.sum() * given.share / given.nodes), 8 * GiB)

    cluster, online = simulate(sizes, wanted, given.nodes, budget, given.losses)
    room = budget * given.nodes
    best = clairvoyant(sizes, wanted, room)
    times = np.array(cluster.seconds) * 1e3
    found = {
        "nodes": given.nodes,
        "models": given.models,
        "requests": given.requests,
        "lost nodes": given.losses,
        "room of all models' bytes": round(room / int(sizes.sum()), 3),
        "decisions": len(times),
        "ms per decision": round(float(times.mean()), 4),
        "ms p50": round(float(np.median(times)), 4),
        "ms p99": round(float(np.percentile(times, 99)), 4),
        "ms max": round(float(times.max()), 3),
        "bytes hit": round(online, 4),
        "bytes hit, offline: knows the future": round(best, 4),
        "of the bound": round(online / best, 4),
    }
    if given.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            print(f"{key:40} {value}")


if __name__ == "__main__":
    main()
