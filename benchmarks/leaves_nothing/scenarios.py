"""What happens to a system: it is opened, used and closed; it fails; its owner is killed.

Each scenario has an owner of its own that has opened and closed a small model before, so that what
a system keeps running (an imported framework, a server) is not counted as what a stay leaves.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import outside
from outside import Reading

from sojourn.bench import namespace

HERE = Path(__file__).parent
TOLERANCE = 5 * 2**20  # bytes; allocators fluctuate, so less than this counts as nothing
LONG_STEP_ROWS = 1024  # one matrix product of some seconds, during which the owner is killed


class NotMeasured(Exception):
    """A system cannot run here; the text says why."""


@dataclass(frozen=True)
class Place:
    """Where a system's owners run."""

    address: str
    python: str
    listens: bool
    prepared: Path
    settle_seconds: float  # how long cleaning up may take; three times that after a kill
    patience_seconds: float = 240.0


class Owner:
    """An owner process, and its temporary folder."""

    def __init__(self, place: Place, temporary: Path) -> None:
        self._place = place
        self.temporary = temporary
        self._log = open(place.prepared / "owner.log", "ab")
        try:
            self._process = subprocess.Popen(
                [place.python, str(HERE / "owner.py"), place.address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment_of(place, temporary),
                cwd=temporary,
                preexec_fn=_leave_the_network if place.listens else None,
            )
        except subprocess.SubprocessError:
            self._log.close()
            raise NotMeasured("it listens, and no network of its own can be had here") from None

    def do(self, what: str, **details: Any) -> dict[str, Any]:
        """Give an order and wait for the answer."""
        self.say(what, **details)
        return self.answer(what)

    def say(self, what: str, **details: Any) -> None:
        """Give an order and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **details}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, what: str) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        if not select.select([pipe], [], [], self._place.patience_seconds)[0]:
            raise NotMeasured(f"{what} took more than {self._place.patience_seconds:.0f} s")
        line = pipe.readline()
        if not line:
            raise NotMeasured(f"the owner ended in {what!r}: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise NotMeasured(f"{what}: {answer['error']}"[:300])
        return answer

    def look(self) -> Reading:
        return outside.look(self.temporary)

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)

    def leave(self) -> None:
        """Let the owner end as programs do: by the end of its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(60)

    def release(self) -> None:
        self._process.poll()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._log.close()

    def _last_words(self) -> str:
        lines = (self._place.prepared / "owner.log").read_text(errors="replace").splitlines()
        return lines[-1][:200] if lines else "it said nothing"


def _leave_the_network() -> None:
    """In the child, before any thread runs: move to a network that nobody else can reach."""
    if not namespace.enter():
        raise OSError("no network namespace")


def environment_of(place: Place, temporary: Path) -> dict[str, str]:
    """Return the owner's environment: the suite's modules, and a temporary folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {
        "PYTHONPATH": str(HERE),
        "TMPDIR": str(temporary),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",  # bytes on a GPU are not measured, so none may be used
        "RAY_USAGE_STATS_ENABLED": "0",
        "LEAVES_NOTHING_PREPARED": str(place.prepared),
    }


@contextlib.contextmanager
def new_owner(place: Place) -> Iterator[Owner]:
    """Start an owner with nothing left over from others. Afterwards, remove all that it left."""
    temporary = Path(tempfile.mkdtemp(prefix="ln-"))  # short: paths of sockets in it are limited
    before = set(os.listdir(outside.SHARED_MEMORY))
    owner = None
    try:
        owner = Owner(place, temporary)
        yield owner
    finally:
        outside.end_all()
        if owner:
            owner.release()
        shutil.rmtree(temporary, ignore_errors=True)
        if not before:  # a private /dev/shm; otherwise other programs' names would be deleted
            for name in os.listdir(outside.SHARED_MEMORY):
                (outside.SHARED_MEMORY / name).unlink(missing_ok=True)


def prepare(place: Place) -> None:
    """Let the system write the files it needs, in a process that is not measured."""
    done = subprocess.run(
        [place.python, str(HERE / "owner.py"), place.address, "--prepare"],
        env=environment_of(place, place.prepared),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise NotMeasured((done.stderr.strip().splitlines() or ["it cannot be prepared"])[-1][:300])


def score(place: Place) -> dict[str, Any]:
    """Run all scenarios, one after the other."""
    prepare(place)
    closed, failed, killed = _close(place), _exception(place), _kill(place)
    firsts = [one.pop("first_open_seconds") for one in (closed, failed, killed)]
    return {
        **closed,
        "first_open_seconds": median(firsts),
        "exception": failed,
        "kill": killed,
    }


def _warm(owner: Owner, place: Place) -> tuple[Reading, Reading, float]:
    """Return the readings before anything and after small sessions, when what the system keeps
    is running, and the time of the first open."""
    owner.do("facts")
    nothing = owner.look()
    first = owner.do("open", model="small")["seconds"]
    owner.do("close")
    owner.do("open", model="small")
    owner.do("close")
    time.sleep(place.settle_seconds / 5)
    return nothing, owner.look(), first


def _close(place: Place) -> dict[str, Any]:
    with new_owner(place) as owner:
        facts = owner.do("facts")
        nothing, standing, first = _warm(owner, place)
        owner.do("open", model="wide")
        held = owner.look() - standing
        started = time.monotonic()
        seconds = owner.do("close")["seconds"]
        left, settled = _settle(owner, standing, place.settle_seconds, started)
        owner.leave()
        exited, _ = _settle(owner, Reading(), place.settle_seconds, time.monotonic())
        named, files = outside.titles(), outside.names(owner.temporary)
    return {
        **facts,
        "first_open_seconds": first,
        "standing": (standing - nothing).to_dict(),
        "held": held.to_dict(),
        "close_wide_seconds": seconds,
        "back_after_seconds": settled,
        "close": left.to_dict(),
        "exit": exited.to_dict(),
        "exit_processes": named,
        "exit_files": files,
    }


def _exception(place: Place) -> dict[str, Any]:
    with new_owner(place) as owner:
        _, standing, first = _warm(owner, place)
        caught = owner.do("fail")["caught"]
        if not caught:
            raise NotMeasured("an input of the wrong shape was accepted")
        left, _ = _settle(owner, standing, place.settle_seconds, time.monotonic())
    return {**left.to_dict(), "caught": caught, "first_open_seconds": first}


def _kill(place: Place) -> dict[str, Any]:
    with new_owner(place) as owner:
        _, _, first = _warm(owner, place)
        owner.do("open", model="wide")
        owner.say("times", rows=LONG_STEP_ROWS, calls=1000)
        time.sleep(0.7)
        started = time.monotonic()
        owner.kill()
        while outside.descendants() and time.monotonic() - started < 3 * place.settle_seconds:
            time.sleep(0.002)
        waited = time.monotonic() - started
        named, files = outside.titles(), outside.names(owner.temporary)
        gone = None if named else waited
        left = owner.look()
    return {
        **left.to_dict(),
        "gone_after_seconds": gone,
        "left_processes": named,
        "left_files": files,
        "first_open_seconds": first,
    }


def _settle(
    owner: Owner, base: Reading, seconds: float, started: float
) -> tuple[Reading, float | None]:
    """Wait until nothing is left beyond the base or the time is over; return what is left, and
    the seconds until memory and processes were back."""
    gone: float | None = None
    while True:
        left = owner.look() - base
        now = time.monotonic() - started
        if gone is None and is_back(left):
            gone = now
        if is_nothing(left) or now > seconds:
            return left, gone
        time.sleep(0.005 if now < 1 else 0.1)


def is_back(left: Reading) -> bool:
    """Whether the memory and the processes are back at the base."""
    return left.memory_bytes < TOLERANCE and left.processes <= 0


def is_nothing(left: Reading) -> bool:
    """Whether nothing at all is left."""
    counts = (left.processes, left.descriptors, left.ports, left.shared_files, left.files)
    return is_back(left) and all(count <= 0 for count in counts)
