"""Random sessions with random faults, and the same invariants after every round.

    python benchmarks/soak.py --sessions 20000

Everything follows from the seed. A round that breaks an invariant is printed with the operations in
it, and can be run again: `--seed S --round R`, with `--times N` if it fails only sometimes.

There are three kinds of rounds, each in a process of its own: in one of nine rounds the sessions
are TensorFlow graphs, in one of forty they are graphs built or run in the client, in the others
they are plain functions. This process only watches: if a child crashes or hangs, it reports the
child's round and where each of its threads was.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

from soak_rounds import EVERY, FUNCTIONS, GRAPHS, LIVE, kind_of

HUNG_SECONDS = 600.0  # without output, until a child counts as hung; a round takes one or two
TIME = {GRAPHS: 1 / 3, LIVE: 1 / 6}  # shares of the time, where time is limited
AT_ONCE = {GRAPHS: sys.maxsize, LIVE: 250}  # sessions in one process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no longer than this")
    parser.add_argument("--seed", type=int, default=None, help="of a failure, to see it again")
    parser.add_argument("--round", type=int, default=None, help="only this one")
    parser.add_argument("--times", type=int, default=1, help="how often, with --round")
    parser.add_argument("--kind", choices=[FUNCTIONS, *EVERY], help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind is not None:
        _run_one_kind(options)
        return
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    whole: dict[str, Any] = collections.Counter()
    by_kind: collections.Counter[str] = collections.Counter()
    for kind, sessions, seconds in _shares(options):
        told = _watched(kind, sessions, seconds, options)
        options.first = told.pop("next_round")
        by_kind.update(told.pop("faults_by_kind"))
        for key, count in told.items():
            whole[key] += count
    result = {"seed": options.seed, **whole, "seconds": round(whole["seconds"], 1), "left": 0}
    print(json.dumps({**result, "faults_by_kind": dict(sorted(by_kind.items()))}))


def _shares(options: argparse.Namespace) -> Iterable[tuple[str, int, float]]:
    """Yield a kind, its number of sessions, and the most seconds they may take."""
    if options.round is not None:
        yield kind_of(options.round), sys.maxsize, options.seconds
        return
    begun = time.monotonic()
    others = options.sessions
    for kind, every in EVERY.items():
        sessions = max(1, options.sessions // every)
        others -= sessions
        until = time.monotonic() + options.seconds * TIME[kind]
        options.first = 0
        while sessions > 0:
            part = min(sessions, AT_ONCE[kind])
            yield kind, part, until - time.monotonic()
            sessions = 0 if time.monotonic() > until else sessions - part
    options.first = 0
    yield FUNCTIONS, others, options.seconds - (time.monotonic() - begun)


def _watched(
    kind: str, sessions: int, seconds: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Run one kind in a process of its own; return its result. Exits if it failed."""
    command = [sys.executable, os.path.abspath(__file__), "--kind", kind]
    command += ["--seed", str(options.seed), "--sessions", str(sessions)]
    command += ["--seconds", str(seconds), "--times", str(options.times)]
    command += ["--first", str(options.first)]
    if options.round is not None:
        command += ["--round", str(options.round)]
    with (
        tempfile.TemporaryDirectory(prefix="sojourn-soak-") as own,  # so its leftovers are its own
        subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment(own)) as process,
    ):
        assert process.stdout is not None
        said = b""  # a line at the beginning of each round, and the result at the end
        while True:
            ready, _, _ = select.select([process.stdout], [], [], HUNG_SECONDS)
            if not ready:
                print("it hangs", file=sys.stderr)
                process.send_signal(signal.SIGABRT)  # faulthandler prints where it hangs
                break
            more = os.read(process.stdout.fileno(), 65536)
            if not more:
                break
            said = (said + more).splitlines(keepends=True)[-1]
    last = said.decode().strip()
    if process.returncode != 0:
        told = f"seed {options.seed}, {last}: ended with {process.returncode}"
        print(told, file=sys.stderr)
        sys.exit(1)
    return dict(json.loads(last))


def _environment(own: str) -> dict[str, str]:
    runtime = os.path.join(own, "runtime")
    os.mkdir(runtime)
    return {**os.environ, "TMPDIR": own, "XDG_RUNTIME_DIR": runtime}


def _run_one_kind(options: argparse.Namespace) -> None:
    faulthandler.enable()
    # A shell that starts this in the background makes it ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from soak_invariants import rounds_of, soak

    if options.round is not None:
        rounds = iter([options.round] * options.times)
    else:
        rounds = rounds_of(options.kind, options.first)
    try:
        told = soak(options.kind, options.seed, options.sessions, rounds, options.seconds)
    except AssertionError as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
