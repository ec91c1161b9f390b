"""Convert a model, compare the engines' answers with TensorFlow's, and time both.

Each conversion happens in a worker of its own, which may crash: the engine is then refused. Times
are a caller's, measured in turns, so that other load on the machine affects all engines alike.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from sojourn.errors import BudgetExceeded, ModelError, SessionBroken, StepTimeout
from sojourn.session.conversion import cache, proof
from sojourn.session.conversion.attempt import Attempt
from sojourn.session.conversion.candidates import ENGINES, TENSORFLOW, Candidate, Examined
from sojourn.session.conversion.inputs import HUGE, Feeds
from sojourn.session.conversion.proof import Outputs
from sojourn.session.conversion.trying import (
    NOTHING,
    EndlessError,
    Tried,
    first_line,
    try_out,
    usual,
)
from sojourn.session.session import Session
from sojourn.values import Signature

_TIMING_SECONDS = 0.5  # for each batch size
_TURN_SECONDS = 0.02  # of consecutive steps, as a caller runs them: a waiting side first spins
_LEAST_STEPS_IN_TURN, _MOST_STEPS_IN_TURN = 3, 50
_CLEARLY = 0.9  # one thread is chosen only below this ratio of its time to that with all cores
_LONG_STEP_SECONDS = 0.02  # models with longer steps are tried with all cores only

# Words in the error of a worker that died by itself, rather than being killed from outside.
_LIMITED = "its memory is limited to"
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "ended with code")


class Opener(Protocol):
    """Opens sessions on one model."""

    attempt: Attempt  # it may be called off
    thread_counts: Sequence[int | None]  # numbers of threads to choose from

    def reference(self) -> Session:
        """Open a session on TensorFlow."""

    def frozen(self, graph_def: np.ndarray, signature: Signature) -> Session:
        """Open a session on TensorFlow, with variables as constants."""

    def converted(self, made: Made, signature: Signature, threads: int | None) -> Session:
        """Open a session on another engine, under the names of the signature."""


class Made(NamedTuple):
    """A converted model."""

    engine: str
    path: Path
    sha256: str


def examine(
    opener: Opener,
    engines: Sequence[str],
    entry: Path,
    samples: Sequence[Mapping[str, Any]] | None,
    tolerance: float | None,
) -> Examined:
    """Try every engine on the model and return the facts. Files are left in the entry.

    A refused engine is a result; only errors of TensorFlow's own session are raised.
    """
    started = time.perf_counter()
    with opener.reference() as reference:
        open_seconds = time.perf_counter() - started
        if "convert" not in reference._stay.keeping.operations:
            raise ModelError("only models of TensorFlow can be converted, not a plain function")
        signature = reference.signature
        try:
            tried, refusal = try_out(opener.attempt, reference, samples)
        except EndlessError:
            tried, refusal = NOTHING, "it loops without an end for an input: give samples="
        is_passing = False
        if not refusal and tolerance is None:
            try:
                tolerance = proof.tolerance(_noise(opener, signature, tried))
            except Exception as error:
                refusal, is_passing = _refusal(error), True
        if not refusal and tolerance is not None:
            idle = proof.says_nothing([outputs for _, _, outputs in tried.answered], tolerance)
            if idle:
                refusal = f"its output {idle!r} hardly varies, which proves nothing: give samples="
        found = [
            _candidate(engine, refusal=refusal, is_passing=is_passing)
            if refusal
            else _examined(opener, engine, entry, reference, tried, tolerance or 0.0)
            for engine in engines
        ]
        held = reference.footprint().host_bytes
    return Examined(found, list(signature.inputs), list(signature.outputs), held, open_seconds)


def _noise(opener: Opener, signature: Signature, tried: Tried) -> float:
    """Measure how much TensorFlow differs from itself when variables are constants.

    Raises errors that have nothing to do with the model: otherwise a tolerance that was never
    measured would be cached together with its refusals.
    """
    try:
        with opener.frozen(_converted(opener, TENSORFLOW), signature) as frozen:
            return max(
                proof.difference(
                    expected, frozen.run(None, feeds, timeout=opener.attempt.seconds_left)
                )[0]
                for _, feeds, expected in tried.answered
            )
    except Exception as error:
        opener.attempt.check()
        if _may_pass(error):
            raise
        return 0.0  # the engines that are tried next fail in the same way, and report it


def _converted(opener: Opener, engine: str) -> np.ndarray:
    with opener.reference() as disposable:
        _, [made] = disposable._stay.call(
            "convert", {"to": engine}, timeout=opener.attempt.seconds_left, counts=False
        )
        return made


def _examined(
    opener: Opener,
    engine: str,
    entry: Path,
    reference: Session,
    tried: Tried,
    tolerance: float,
) -> Candidate:
    started = time.perf_counter()
    kind, _ = ENGINES[engine]
    path = entry / f"model.{kind}"
    try:
        content = _converted(opener, engine)
        cache.write(path, content.data)
        made = Made(engine, path, hashlib.sha256(content.data).hexdigest())
        convert_seconds = time.perf_counter() - started
        found = []
        is_long = _seconds(opener.attempt, reference, tried.answered[0][1]) > _LONG_STEP_SECONDS
        for threads in opener.thread_counts[: 1 if is_long else None]:
            one = _proven(opener, made, threads, reference, tried, tolerance)
            if not one.agrees:
                path.unlink()
                return one
            found.append(one)
        best, *others = found
        for one in others:  # not by chance: rows that were not timed may need every core
            if _mean(one) < _CLEARLY * _mean(best):
                best = one
        opens = min(one.open_seconds for one in found)  # the first may have started a zygote
        return replace(best, convert_seconds=convert_seconds, open_seconds=opens)
    except cache.NotKept:
        raise  # it concerns every engine
    except Exception as error:  # from the converter, an engine, or the death of a worker
        opener.attempt.check()
        with contextlib.suppress(OSError):
            path.unlink()
        refusal = _refusal(error).replace(str(path), "the converted model")
        return _candidate(engine, refusal=refusal, is_passing=_may_pass(error))


def _proven(
    opener: Opener,
    made: Made,
    threads: int | None,
    reference: Session,
    tried: Tried,
    tolerance: float,
) -> Candidate:
    """Compare and time the converted model with this number of threads."""
    started = time.perf_counter()
    with opener.converted(made, reference.signature, threads) as session:
        open_seconds = time.perf_counter() - started
        worst = 0.0

        def run(feeds: Feeds) -> Outputs:
            return session.run(None, feeds, timeout=opener.attempt.seconds_left)

        def answered(feeds: Feeds) -> Outputs | None:
            try:
                return run(feeds)
            except (SessionBroken, StepTimeout, BudgetExceeded):
                raise
            except Exception:  # engines raise errors of any type
                return None

        def refused(wrong: str) -> Candidate:
            return _candidate(made.engine, refusal=wrong, worst=worst, tolerance=tolerance)

        for _, feeds, expected in tried.answered:
            differs, wrong = proof.disagreement(expected, run(feeds), tolerance)
            worst = max(worst, differs)
            if wrong:
                return refused(wrong)
        for feeds, why in tried.refused:
            if answered(feeds) is not None:
                return refused(f"it answers what TensorFlow refuses: {why}")

        def is_unlike(feeds: Feeds, expected: Outputs | None) -> bool:
            got = answered(feeds)
            if got is None or expected is None:
                return got is not expected
            return bool(proof.disagreement(expected, got, tolerance)[1])

        def hides(feeds: Feeds, expected: Outputs | None) -> bool:
            got = answered(feeds)
            return got is None or expected is None or proof.hides(expected, got, tolerance)

        def are_unlike(odd: list[tuple[Feeds, Outputs | None]]) -> bool:
            return any(expected is None or is_unlike(feeds, expected) for feeds, expected in odd)

        def largest() -> float | None:
            agreed = 0.0
            for size, one in zip(HUGE, tried.huge, strict=False):
                if are_unlike([one]):
                    return agreed or usual(tried)
                agreed = size
            is_for_all = not tried.loops and not are_unlike(tried.not_finite)
            return None if is_for_all else sys.float_info.max

        most = largest()
        parted = [one for size, one in zip(HUGE, tried.huge, strict=False) if size > (most or 0)]
        is_shown = most is not None and not tried.loops
        is_shown = is_shown and not any(hides(*one) for one in (*parted, *tried.not_finite))
        ratios = _ratios(opener.attempt, reference, session, tried)
        held_bytes = session.footprint().host_bytes
        try:
            only_some = tried.loops or any(is_unlike(*one) for one in tried.empty)
        except SessionBroken:  # tried last, because the engine may crash
            only_some = True
        return _candidate(
            made.engine,
            file=made.path.name,
            sha256=made.sha256,
            threads=threads,
            checks=len(tried.answered),
            most=most,
            is_shown=is_shown,
            only_some=only_some,
            worst=worst,
            tolerance=tolerance,
            ratios=ratios,
            held_bytes=held_bytes,
            open_seconds=open_seconds,
        )


def _mean(candidate: Candidate) -> float:
    return geometric_mean(candidate.ratios.values())


def _candidate(engine: str, **facts: Any) -> Candidate:
    return Candidate(engine=engine, version=cache.version_of(ENGINES[engine][1]), **facts)


def _ratios(attempt: Attempt, reference: Session, other: Session, tried: Tried) -> dict[int, float]:
    found: dict[int, float] = {}
    for batch, feeds, _ in tried.answered:
        attempt.check()
        if batch not in found:
            found[batch] = _ratio(attempt, feeds, reference, other)
    return found


def _ratio(attempt: Attempt, feeds: Feeds, reference: Session, other: Session) -> float:
    times: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + _TIMING_SECONDS
    while not times[0] or time.perf_counter() < until:
        for session, taken in zip((reference, other), times, strict=True):
            # The other session has used the CPU caches meanwhile, so the first step is not counted.
            steps = int(_TURN_SECONDS / _seconds(attempt, session, feeds))
            steps = min(_MOST_STEPS_IN_TURN, max(_LEAST_STEPS_IN_TURN, steps))
            taken += [_seconds(attempt, session, feeds) for _ in range(steps)]
    return min(times[1]) / min(times[0])  # the minima, when nothing else loads the machine


def _seconds(attempt: Attempt, session: Session, feeds: Feeds) -> float:
    left = attempt.seconds_left
    started = time.perf_counter()
    session.run(None, feeds, timeout=left)
    return time.perf_counter() - started


def _may_pass(error: Exception) -> bool:
    """Whether the error is unrelated to the model: lack of memory or disk, or a killed worker."""
    if isinstance(error, SessionBroken) and any(name in str(error) for name in _CRASHES):
        return _LIMITED in str(error)  # C code may crash for lack of memory
    return isinstance(error, BudgetExceeded | OSError | SessionBroken)


def _refusal(error: Exception) -> str:
    if not isinstance(error, BudgetExceeded):
        return first_line(error)
    ahead = "with `sojourn convert` it can be done ahead, without a limit"
    return f"converting and comparing it needs more memory: {first_line(error)}; {ahead}"
