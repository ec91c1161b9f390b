"""How good the pool's eviction is: its hit rate against an ideal LRU on the same trace.

Simulated: the pool's decisions are the real ones, the workers are numbers. Clients lease models
from a trace, hold them for a moment and return them; opening, parking and closing take times
that vary. The ideal LRU sees the same requests in the same order, one after the other, and
needs no time for anything.

A miss is an open. A client that joins an open under way, or waits until one can begin, counts
as a hit although it waits: this rate says how often models are loaded, not how often a lease is
granted at once, which is much rarer when there are more clients than places.

    python benchmarks/pool_trace.py [--json]
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sojourn.pool.decisions.effects import Close, Effects, Grant, Open, Park, Refuse, SetTimer
from sojourn.pool.decisions.scheduler import Scheduler
from sojourn.pool.decisions.terms import Holder, Model, Policy, Request
from sojourn.values import Place

SIZE = 100 * 2**20
BAR = 0.95


@dataclass(frozen=True)
class Result:
    name: str
    requests: int
    hit_rate: float
    lru_hit_rate: float
    refused: int
    peak_bytes: int
    limit_bytes: int
    simulated_seconds: float

    @property
    def ratio(self) -> float:
        return self.hit_rate / self.lru_hit_rate if self.lru_hit_rate else float("inf")

    @property
    def is_good(self) -> bool:
        within = self.ratio >= BAR or self.hit_rate >= self.lru_hit_rate
        return within and not self.refused and self.peak_bytes <= self.limit_bytes


def zipf(models: int, exponent: float, rng: random.Random) -> Iterator[int]:
    weights = [1 / (rank + 1) ** exponent for rank in range(models)]
    while True:
        yield from rng.choices(range(models), weights, k=1000)


def shifting(models: int, exponent: float, rng: random.Random) -> Iterator[int]:
    """Yield models whose popularity changes every 500 requests."""
    source = zipf(models, exponent, rng)
    for count in itertools.count():
        yield (next(source) + 3 * (count // 500)) % models


def loop(models: int) -> Iterator[int]:
    return itertools.cycle(range(models))


def simulate(
    name: str,
    trace: Iterator[int],
    *,
    models: int = 20,
    room: int = 6,
    clients: int = 8,
    requests: int = 20_000,
    hold_seconds: float = 0.005,
    open_seconds: Callable[[int], float] = lambda model: 0.1,
    seed: int = 0,
) -> Result:
    rng = random.Random(seed)
    limit = room * SIZE
    scheduler = Scheduler(Policy(limit_bytes=limit, idle_seconds=None))
    for index in range(models):
        scheduler.register(Model(f"m{index}", memory_bytes=SIZE))
    agenda: list[tuple[float, int, Callable[[float], Effects]]] = []
    order = itertools.count()
    asked: list[int] = []
    who_asked: dict[int, int] = {}
    refused = peak = 0

    def later(at: float, event: Callable[[float], Effects]) -> None:
        heapq.heappush(agenda, (at, next(order), event))

    def noisy(seconds: float) -> float:
        return seconds * rng.uniform(0.7, 1.5)

    def ask(client: int) -> Callable[[float], Effects]:
        def event(now: float) -> Effects:
            if len(asked) >= requests:
                return ()
            model = next(trace)
            ticket = len(asked)
            asked.append(model)
            who_asked[ticket] = client
            holder = Holder(client, Place("client.py", client))
            return scheduler.on_request(Request(ticket, f"m{model}", holder, now))

        return event

    def perform(effects: Effects, now: float) -> None:
        nonlocal refused, peak
        peak = max(peak, scheduler.charged_bytes)
        for effect in effects:
            match effect:
                case Open(copy):
                    took = noisy(open_seconds(int(copy.model[1:])))
                    later(
                        now + took,
                        lambda at, c=copy, s=took: scheduler.on_opened(c, SIZE - 2**20, s, at),
                    )
                case Grant(ticket):
                    scheduler.on_accepted(ticket)
                    done = now + rng.expovariate(1 / hold_seconds)
                    later(done, lambda at, t=ticket: scheduler.on_returned(t, at, runs=1))
                    later(done + rng.expovariate(1 / hold_seconds), ask(who_asked[ticket]))
                case Park(copy):
                    later(
                        now + noisy(0.05),
                        lambda at, c=copy: scheduler.on_parked(c, c, 0.05, at),
                    )
                case Close(copy):
                    later(now + noisy(0.01), lambda at, c=copy: scheduler.on_closed(c, at))
                case Refuse(ticket):
                    refused += 1
                    later(now, ask(who_asked[ticket]))
                case SetTimer(at):
                    later(max(at, now), scheduler.on_timer)

    for client in range(clients):
        later(0.0, ask(client))
    while agenda:
        now, _, event = heapq.heappop(agenda)
        perform(event(now), now)
    opens = scheduler.counters.opens
    return Result(
        name, len(asked), 1 - opens / len(asked), _lru(asked, room), refused, peak, limit, now
    )


def _lru(asked: list[int], room: int) -> float:
    resident: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for model in asked:
        if model in resident:
            hits += 1
            resident.move_to_end(model)
        else:
            resident[model] = None
            if len(resident) > room:
                resident.popitem(last=False)
    return hits / len(asked)


def run_all(requests: int = 20_000) -> list[Result]:
    def rng() -> random.Random:
        return random.Random(7)

    return [
        simulate("zipf 1.0, 8 clients", zipf(20, 1.0, rng()), requests=requests),
        simulate("zipf 0.8, 8 clients", zipf(20, 0.8, rng()), requests=requests),
        simulate("zipf 1.2, 8 clients", zipf(20, 1.2, rng()), requests=requests),
        simulate("zipf 1.0, 1 client", zipf(20, 1.0, rng()), requests=requests, clients=1),
        simulate(
            "zipf 1.0, uneven cost",
            zipf(20, 1.0, rng()),
            requests=requests,
            open_seconds=lambda model: 0.1 * (1 + model % 3),
        ),
        simulate("zipf 1.0, shifting", shifting(20, 1.0, rng()), requests=requests),
        simulate("loop over 7", loop(7), models=7, requests=requests // 4, clients=1),
    ]


def main() -> int:
    results = run_all()
    if "--json" in sys.argv[1:]:
        rows = [
            {**vars(r), "ratio": r.ratio if r.lru_hit_rate else None, "is_good": r.is_good}
            for r in results
        ]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        sys.stdout.write(f"{'trace':24} {'pool':>7} {'LRU':>7} {'ratio':>7}  bar {BAR}\n")
        for r in results:
            verdict = "ok" if r.is_good else "MISSED"
            sys.stdout.write(
                f"{r.name:24} {r.hit_rate:7.3f} {r.lru_hit_rate:7.3f} {r.ratio:7.3f}  {verdict}\n"
            )
    return 0 if all(r.is_good for r in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
