"""What the pool costs and which limits it keeps, with real workers.

Five parts, each in a process of its own:

- warm: a lease, one step and the return, against the same step of a session without a pool, in
  turns; and the lease alone. Bars: 1.15, and 25 us.
- threads: 8 threads that lease one warm model for every step, against 8 threads that call one raw
  `Session.run`, in turns. Bar: 1.5 times the throughput.
- budget: 20 models of 100 MB in a budget for 6, leased by 8 threads in a Zipf distribution. Bars:
  the bytes of all workers, as the kernel counts them, never exceed the budget; no error; the hit
  rate is within 5 % of an ideal LRU on the same trace.
- opening: the 99th percentile of a warm model while another one is being opened, against alone,
  in turns. Bar: 2.0.
- storm: random leases, evictions and kills (workers, the zygote, borrowers that forget to give
  back). Bars: the budget holds, no unexpected error, nothing is left.

    python benchmarks/pool.py [--part warm] [--seconds 60] [--operations 3000] [--json]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

import sojourn
from sojourn.probes import memory, processes
from sojourn.testing import leftovers, take_snapshot

THREADS = 8
X = np.ones((1, 784), np.float32)


def dense() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 784], name="x")
    w = v1.get_variable("w", [784, 10], initializer=v1.ones_initializer())
    b = v1.get_variable("b", [10], initializer=v1.zeros_initializer())
    return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w) + b)}


def hundred_megabytes() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    big = v1.get_variable(
        "big", [100, 250_000], initializer=v1.ones_initializer(), use_resource=True
    )
    return {}, {"first": big[0, :8]}


def plain() -> Any:
    return lambda a, b: a + b


def times_of(work: Callable[[], Any], calls: int) -> list[float]:
    """Return how long each call took. Medians are robust on a machine that does other work."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times


# -- parts ---------------------------------------------------------------------------------------


def warm(options: argparse.Namespace) -> dict[str, Any]:
    with sojourn.Pool() as pool:
        pool.register("dense", dense)
        # The direct call uses the same worker: lanes learn how long to wait for an answer, and two
        # workers may have learned different things.
        with pool.lease("dense") as session:

            def measure(batch: int) -> tuple[float, list[float]]:
                feeds = {"x": np.ones((batch, 784), np.float32)}

                def direct() -> None:
                    session.run("y", feeds)

                def leased() -> None:
                    with pool.lease("dense") as lease:
                        lease.run("y", feeds)

                def nothing() -> None:
                    with pool.lease("dense"):
                        pass

                kinds = (direct, leased, nothing)
                for work in kinds:
                    times_of(work, 1000)
                rounds = [[times_of(work, 100) for work in kinds] for _ in range(options.rounds)]
                ratio = statistics.median(
                    statistics.median(there) / statistics.median(here) for here, there, _ in rounds
                )
                columns = zip(*rounds, strict=True)
                return ratio, [statistics.median(itertools.chain(*times)) for times in columns]

            ratio, medians = measure(1)
            larger_ratio, larger = measure(64)
    return {
        "direct_us": medians[0] * 1e6,
        "leased_us": medians[1] * 1e6,
        "lease_us": medians[2] * 1e6,
        "ratio": ratio,
        "batch_64_direct_us": larger[0] * 1e6,
        "batch_64_ratio": larger_ratio,
        "passed": ratio <= 1.15 and medians[2] <= 25e-6,
    }


def threads(options: argparse.Namespace) -> dict[str, Any]:
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        inputs, outputs = dense()
        raw = v1.Session(graph=graph)
        raw.run(v1.global_variables_initializer())
    x, y = inputs["x"], outputs["y"]
    with sojourn.Pool() as pool:
        pool.register("dense", dense)
        pool.preload()

        def by_pool() -> None:
            with pool.lease("dense") as session:
                session.run("y", {"x": X})

        def by_raw() -> None:
            raw.run(y, {x: X})

        def throughput(work: Callable[[], None], seconds: float) -> float:
            counts: list[int] = []
            until = time.perf_counter() + seconds

            def loop() -> None:
                count = 0
                while time.perf_counter() < until:
                    work()
                    count += 1
                counts.append(count)

            workers = [threading.Thread(target=loop) for _ in range(THREADS)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            return sum(counts) / seconds

        for work in (by_pool, by_raw):
            throughput(work, 1.0)
        pairs = [
            (throughput(by_pool, 0.5), throughput(by_raw, 0.5)) for _ in range(options.rounds // 5)
        ]
    raw.close()
    ratio = statistics.median(pooled / bare for pooled, bare in pairs)
    return {
        "pool_per_second": statistics.median(p for p, _ in pairs),
        "raw_per_second": statistics.median(r for _, r in pairs),
        "ratio": ratio,
        "passed": ratio >= 1.5,
    }


def budget(options: argparse.Namespace) -> dict[str, Any]:
    models, room = 20, 6
    with sojourn.open(hundred_megabytes) as session:
        session.run("first")
        one = session.footprint().held_bytes
    limit = room * int(one * 1.05)
    weights = [1 / rank for rank in range(1, models + 1)]
    trace: list[int] = []
    errors: Counter[str] = Counter()
    lock = threading.Lock()
    peak = samples = 0
    is_over = threading.Event()

    def sample() -> None:
        nonlocal peak, samples
        while not is_over.is_set():
            found = [f.pid for f in processes.of_client(os.getpid()) if not f.is_zygote]
            readings = [memory.of_process(pid) for pid in found]
            peak = max(peak, sum(r.worker_bytes for r in readings if r is not None))
            samples += 1

    with sojourn.Pool(memory=limit, idle_seconds=None) as pool:
        for i in range(models):
            pool.register(f"m{i}", hundred_megabytes)
        until = time.monotonic() + options.seconds

        def client(seed: int) -> None:
            rng = random.Random(seed)
            while time.monotonic() < until:
                (i,) = rng.choices(range(models), weights)
                with lock:
                    trace.append(i)
                try:
                    with pool.lease(f"m{i}", timeout=60) as session:
                        session.run("first")
                except sojourn.SojournError as error:
                    errors[f"{type(error).__name__}: {error}"[:200]] += 1
                time.sleep(rng.expovariate(1 / 0.005))

        sampler = threading.Thread(target=sample)
        sampler.start()
        workers = [threading.Thread(target=client, args=[seed]) for seed in range(THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        is_over.set()
        sampler.join()
        opens = pool.stats().counters["opens"]
    hit_rate, ideal = 1 - opens / len(trace), lru(trace, room)
    return {
        "leases": len(trace),
        "hit_rate": hit_rate,
        "lru_hit_rate": ideal,
        "peak_of_limit": peak / limit,
        "samples": samples,
        "errors": dict(errors),
        "passed": not errors and peak <= limit and hit_rate >= 0.95 * ideal,
    }


def lru(trace: list[int], room: int) -> float:
    resident: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for model in trace:
        if model in resident:
            hits += 1
            resident.move_to_end(model)
        else:
            resident[model] = None
            if len(resident) > room:
                resident.popitem(last=False)
    return hits / len(trace)


def opening(options: argparse.Namespace) -> dict[str, Any]:
    with sojourn.Pool() as pool:
        pool.register("warm", dense)
        pool.register("other", hundred_megabytes)
        pool.preload()
        may_open, is_over = threading.Event(), threading.Event()
        opens = 0

        def open_again_and_again() -> None:
            nonlocal opens
            while True:
                may_open.wait()
                if is_over.is_set():
                    return
                pool.evict("other")
                pool.lease("other").close()
                opens += 1

        opener = threading.Thread(target=open_again_and_again)
        opener.start()

        def latencies(calls: int) -> list[float]:
            def work() -> None:
                with pool.lease("warm") as session:
                    session.run("y", {"x": X})

            return times_of(work, calls)

        latencies(2000)
        alone: list[float] = []
        beside: list[float] = []
        for _ in range(options.rounds // 4):
            alone += latencies(500)
            may_open.set()
            beside += latencies(500)
            may_open.clear()
            time.sleep(0.3)  # opens under way finish
        is_over.set()
        may_open.set()
        opener.join()
    p99 = [statistics.quantiles(times, n=100)[98] for times in (alone, beside)]
    return {
        "opens": opens,
        "alone_p99_us": p99[0] * 1e6,
        "beside_p99_us": p99[1] * 1e6,
        "ratio": p99[1] / p99[0],
        "passed": p99[1] / p99[0] <= 2.0,
    }


def storm(options: argparse.Namespace) -> dict[str, Any]:
    limit, size = 800 * 2**20, 200 * 2**20
    surprises: Counter[str] = Counter()
    done: Counter[str] = Counter()
    with sojourn.open(plain) as session:  # what stays permanently exists before the snapshot
        session.run("output", {"a": 1, "b": 2})
    warnings.simplefilter("ignore", ResourceWarning)
    before = take_snapshot()
    numbers = itertools.count()
    with sojourn.Pool(memory=limit, idle_seconds=1.0, lease_warning_seconds=5) as pool:
        names = [f"m{i}" for i in range(8)]
        for i, name in enumerate(names):
            pool.register(
                name,
                plain,
                memory=size,
                exclusive=i % 4 == 0,
                copies=1 + i % 2,
                max_runs=50 if i == 2 else None,
            )

        def one(rng: random.Random) -> str:
            name = rng.choice(names)
            dice = rng.random()
            if dice < 0.03:
                pool.evict(name, timeout=0.05)
                return "evict"
            if dice < 0.032:
                for found in processes.of_client(os.getpid()):
                    if found.is_zygote:
                        os.kill(found.pid, signal.SIGKILL)
                return "zygote killed"
            if dice < 0.05:
                lease = pool.lease(name, timeout=30)
                del lease
                return "forgotten"
            with pool.lease(name, timeout=rng.choice([0.01, 30, 30])) as session:
                if dice < 0.12:
                    os.kill(session.pid, signal.SIGKILL)
                if dice > 0.9:
                    other = rng.choice(names)
                    with pool.lease(other, timeout=30) as second:
                        assert second.run("output", {"a": 2, "b": 2}) == 4
                assert session.run("output", {"a": 1, "b": 2}) == 3
            return "used"

        def client(seed: int) -> None:
            rng = random.Random(seed)
            while next(numbers) < options.operations:
                try:
                    done[one(rng)] += 1
                except (
                    sojourn.SessionBroken,
                    sojourn.PoolTimeout,
                    sojourn.BudgetExceeded,
                    sojourn.DeadlockDetected,
                ) as error:
                    done[type(error).__name__] += 1
                except BaseException as error:
                    surprises[repr(error)[:200]] += 1
                if pool.stats().charged_bytes > limit:
                    surprises["over the limit"] += 1

        workers = [threading.Thread(target=client, args=[seed]) for seed in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        gc.collect()
        time.sleep(5)  # the pool does not reopen a model at once that was killed too often
        for name in names:
            with pool.lease(name, timeout=60) as session:
                if session.run("output", {"a": 1, "b": 2}) != 3:
                    surprises["a wrong result"] += 1
        counters = dict(pool.stats().counters)
    left = leftovers(before, seconds=5)
    return {
        "done": dict(done),
        "counters": counters,
        "surprises": dict(surprises),
        "left": left,
        "passed": not surprises and not left,
    }


PARTS = {
    "warm": warm,
    "threads": threads,
    "budget": budget,
    "opening": opening,
    "storm": storm,
}


def run_part(name: str, arguments: list[str]) -> dict[str, Any]:
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    if name == "storm":
        environment["SOJOURN_PRELOAD"] = "none"  # no model needs one, and zygotes are killed
    command = [sys.executable, __file__, *arguments, "--part", name, "--here"]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the budget part")
    parser.add_argument("--operations", type=int, default=3000, help="of the storm")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        sojourn.warm_up(wait=True)
        print(json.dumps(PARTS[options.part[0]](options)))
        return 0
    passed_on = [
        f"--rounds={options.rounds}",
        f"--seconds={options.seconds}",
        f"--operations={options.operations}",
    ]
    results = {name: run_part(name, passed_on) for name in options.part or PARTS}
    if options.json:
        print(json.dumps(results))
    else:
        for name, result in results.items():
            print(name, "passed" if result["passed"] else "FAILED")
            for key, value in result.items():
                shown = f"{value:.3f}" if type(value) is float else str(value)
                print(f"    {key:18} {shown}")
    return 0 if all(result["passed"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
