"""What must hold after every test, whatever it did: see `docs/faults.md`."""

from __future__ import annotations

import ctypes
import gc
import os
import secrets
import sys
import time
from collections.abc import Iterator, Set
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from sojourn import events
from sojourn.engines import code_capture
from sojourn.process.zygote import zygote
from sojourn.testing import Watch, leftovers, take_snapshot
from sojourn.testing.snapshots import RUN

SECONDS = 10.0  # until what is left counts as a leak: the machine may be far too busy
GROWTH_BYTES = 5 * 2**20
EXPLORING_BYTES = 64 * 2**20  # what Hypothesis remembers of its examples
MANY_MODULES = 200
MODULE_BYTES = 2**18  # for each module imported meanwhile: it stays loaded, and is no leak
OPEN_SECONDS, REPLACED_SECONDS = 1.0, 10.0  # the latter if the zygote had to be replaced
CHOOSING = 30  # calls until TensorFlow's steps have found the faster way to run
MATRIX = np.random.default_rng(7).normal(size=(16, 784)).astype(np.float32)


# Events after which a test checks that a session can be opened; otherwise the next test shows it.
_HARMFUL = {"worker.died", "session.broken", "session.forgotten", "zygote.started", "zygote.ended"}


def mark_this_run() -> None:
    """Mark every process that is started from now on, directly or indirectly, as of this run."""
    os.environ[RUN] = ".".join(filter(None, [os.environ.get(RUN), secrets.token_hex(8)]))


def give_back_at_once() -> None:
    """Make malloc return freed memory to the system.

    By default it keeps up to twice the largest block that was ever freed, for each thread: here the
    code of all modules, which is sent along with functions. A test is judged by the bytes it holds.
    """
    trim_threshold, mmap_threshold, kept_bytes = -1, -3, 128 * 2**10
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(trim_threshold, kept_bytes)
        libc.mallopt(mmap_threshold, kept_bytes)


def forget_what_is_loaded() -> None:
    """Make the garbage collector ignore the objects that exist before the first test.

    Otherwise, with TensorFlow loaded, a collection takes a quarter of a second for every test.
    """
    if "hypothesis" in sys.modules:
        _draw_something()
    code_capture.packed(models.adder)  # caches the modules' code, which each worker gets
    gc.collect()
    gc.freeze()
    gc.enable()


def _draw_something() -> None:
    """Fill Hypothesis's tables: several megabytes, which it makes when they are first needed."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    texts = st.text() | st.characters() | st.from_regex("[a-z]+") | st.binary()
    numbers = st.integers() | st.floats() | st.complex_numbers() | st.decimals() | st.fractions()
    arrays = hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(), hnp.array_shapes())
    several = st.lists(texts | numbers) | st.dictionaries(texts, numbers) | st.sets(st.dates())

    @settings(max_examples=150, database=None, deadline=None, suppress_health_check=HealthCheck)
    @given(texts | numbers | arrays | several)
    def draw(value: Any) -> None:
        pass

    draw()


class Bystanders:
    """A session that stays open during one fault after another, as long as none harms it."""

    def __init__(self) -> None:
        self._session: sojourn.Session | None = None
        self._module: ModuleType | None = None

    def one(self, module: ModuleType) -> sojourn.Session:
        """Return the session, or a new one if the last fault harmed it and its test failed."""
        if self._session is not None and self._session.state is not sojourn.State.READY:
            self.leave()
        if self._session is None:
            self._session, self._module = open_bystander(), None
        if module is not self._module:
            open_and_close()  # so that what is loaded or allocated only once exists before the test
            self._module = module
        return self._session

    def leave(self) -> None:
        """Close the session; the next fault opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


def open_bystander() -> sojourn.Session:
    """Open a session that no fault involves, and whose bits depend on everything it is fed."""
    weights = np.random.default_rng(8).normal(size=(784, 10)).astype(np.float32)

    def build() -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 784], name="x")
        return {"x": x}, {
            "y": tf.nn.softmax(tf.matmul(x, v1.get_variable("w", initializer=weights)))
        }

    session = sojourn.open(build, name="bystander")
    for _ in range(CHOOSING):  # on one thread or on several, sums may differ in their last bit
        session.run("y", {"x": MATRIX})
    return session


def hold(
    request: pytest.FixtureRequest, bystander: sojourn.Session | None = None
) -> Iterator[None]:
    """Check after a test that nothing is left, memory has not grown, every transition was legal and
    reported once, other sessions compute the same bits, and after a death the next open succeeds in
    time."""
    if "tmp_path_factory" in request.fixturenames:
        request.getfixturevalue("tmp_path_factory").getbasetemp()
    if bystander is not None or "zygote" in request.fixturenames:
        sojourn.warm_up(wait=True)  # the previous test may have ended it, and this one is timed
    heard: set[str] = set()
    stop = events.subscribe(lambda event: heard.add(event.kind))
    modules = len(sys.modules)
    try:
        expected = _bits(bystander)
        before = take_snapshot(strict=True)
        # So that what only the collector would free counts as left behind always, not sometimes.
        gc.disable()
        with Watch() as watch:
            yield
            has_sessions = bystander is not None or bool(heard)
            growth = EXPLORING_BYTES if explores(request) else GROWTH_BYTES
            growth += max(0, len(sys.modules) - modules) * MODULE_BYTES
            is_judged = has_sessions and not runs_tensorflow(request)
            left = leftovers(before, seconds=SECONDS, growth_bytes=growth if is_judged else None)
        if left:
            pytest.fail("left behind: " + "; ".join(left), pytrace=False)
        wrong = watch.wrong()
        assert not wrong, "; ".join(wrong)
        assert _bits(bystander) == expected, "another session computes other bits"
        if bystander is not None or heard & _HARMFUL:
            open_and_close(heard)
    finally:
        gc.enable()
        stop()
        if len(sys.modules) > modules + MANY_MODULES or explores(request):
            gc.collect()
            gc.freeze()  # perhaps TensorFlow, or what Hypothesis remembers: both stay loaded


def explores(request: pytest.FixtureRequest) -> bool:
    """Whether tests of this module have Hypothesis draw their arguments."""
    return "hypothesis.strategies" in {
        getattr(value, "__name__", "") for value in vars(request.module).values()
    }


def runs_tensorflow(request: pytest.FixtureRequest) -> bool:
    """Whether this test, or another of its module, runs TensorFlow in this process.

    TensorFlow never gives memory back, and its pools of threads and of memory grow at any time.
    """
    loaded = sys.modules.get("tensorflow")
    code = request.function.__code__
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    says_inline = any(
        "inline" in (value if isinstance(value, tuple) else [value])
        for value in (*code.co_consts, *parameters.values())
        if isinstance(value, str | tuple)
    )
    return (
        says_inline
        or "tensorflow" in code.co_names
        or (loaded is not None and any(value is loaded for value in vars(request.module).values()))
    )


def open_and_close(heard: Set[str] = frozenset()) -> None:
    """Check that a session opens in time. `heard` are the kinds of events that were received."""
    before = zygote.pid
    seconds, delayed = _open_and_close()
    if "zygote.started" in heard or before != zygote.pid:
        _judge(seconds, delayed, REPLACED_SECONDS)
        seconds, delayed = _open_and_close()  # the next open finds the zygote ready
    _judge(seconds, delayed, OPEN_SECONDS)


def _open_and_close() -> tuple[float, float]:
    """Return the seconds that it took, and how many of them were waits for a processor."""
    before = zygote.pid
    delayed, started = _delay(before), time.monotonic()
    with sojourn.open(models.adder) as session:
        assert session.run("output", {"a": 1, "b": 2}) == 3
        seconds = time.monotonic() - started
        delayed = _delay(zygote.pid, session.pid) - (delayed if before == zygote.pid else 0)
    return seconds, delayed


def _judge(seconds: float, delayed: float, allowed: float) -> None:
    # The time that this process, the zygote and the worker wait for a processor does not count.
    assert seconds - delayed < allowed, (
        f"the next open took {seconds:.2f} s, {delayed:.2f} s of it without a processor"
    )


def _bits(session: sojourn.Session | None) -> bytes:
    return session.run("y", {"x": MATRIX}).tobytes() if session is not None else b""


def _delay(*pids: int | None) -> float:
    """Return the seconds that this thread and these processes have waited for a processor."""
    tasks = ["/proc/thread-self"]
    for pid in filter(None, pids):
        try:
            tasks += [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            pass  # the process has ended
    waited = 0
    for task in tasks:
        try:
            with open(f"{task}/schedstat") as numbers:
                waited += int(numbers.read().split()[1])
        except OSError:
            pass
    return waited / 1e9
