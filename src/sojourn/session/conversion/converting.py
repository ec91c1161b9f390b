"""Choose the engine for one model from what the user asks for; the result is cached."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from sojourn import events
from sojourn.errors import ModelError
from sojourn.kinds import KINDS, Load, engines_of, framework_of
from sojourn.session.conversion import cache
from sojourn.session.conversion.attempt import Attempt
from sojourn.session.conversion.candidates import (
    CHOICES,
    ENGINES,
    FASTEST,
    TENSORFLOW,
    Candidate,
    Examined,
)
from sojourn.session.conversion.choosing import Use, fastest, words_for
from sojourn.session.conversion.examining import Made, examine
from sojourn.session.session import Session
from sojourn.values import Signature

Arrays = list[np.ndarray]
Open = Callable[[Load, Arrays], Session]

_MOST_STEPS = 1e9  # the largest interval, in steps, between two compared steps
_FIRST_PAUSE_SECONDS = 60.0  # until an engine is retried that was refused for lack of memory


def conversion_for(
    engine: str | None,
    load: Load,
    arrays: Arrays,
    samples: Sequence[Mapping[str, Any]] | None,
    tolerance: float | None,
    shadow: float | None,
    isolation: str,
    is_confined: bool,
) -> Conversion | None:
    """The conversion that `engine=` asks for; None if the model runs on its own engine anyway."""
    if engine not in (None, *CHOICES):
        raise ValueError(f"engine must be one of {', '.join(CHOICES)}, not {engine!r}")
    kind = KINDS[load.kind]
    if engine is None or engine == kind.engine:
        if samples is not None or tolerance is not None or shadow is not None:
            raise ValueError("samples=, tolerance= and shadow= are for another engine=")
        return None
    if kind.framework != TENSORFLOW:
        raise ModelError(f"{kind.what} is run by {kind.engine}, not by {engine}")
    if isolation != "process" or is_confined:
        what = "an untrusted model" if is_confined else "an inline session"
        raise ValueError(f"{what} runs on TensorFlow: nothing is converted for it")
    for what, value in (("tolerance", tolerance), ("shadow", shadow)):
        if isinstance(value, bool) or not isinstance(value, Real | None):
            raise TypeError(f"{what} must be a number, not {value!r}")
    if tolerance is not None and not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, not {tolerance!r}")
    if samples is not None:
        is_list = isinstance(samples, Sequence) and not isinstance(samples, str)
        if not is_list or not all(isinstance(feeds, Mapping) for feeds in samples):
            raise TypeError("samples must be a list of feeds, each a dict of arrays by name")
        if not samples:
            raise ValueError("samples must have at least one feed")
    if shadow is not None and not 0 < shadow <= 1:
        raise ValueError(f"shadow must be a fraction of the steps, up to 1, not {shadow!r}")
    allowed = None if tolerance is None else float(tolerance)
    return Conversion(engine, load, arrays, samples, allowed, shadow)


class Conversion:
    """A model and the engine that the user asks for."""

    def __init__(
        self,
        wanted: str,
        load: Load,
        arrays: Arrays,
        samples: Sequence[Mapping[str, Any]] | None,
        tolerance: float | None,
        shadow: float | None,
    ) -> None:
        self._wanted = wanted
        self._shadow = shadow
        self._load = load
        self._arrays = arrays
        self._samples = samples
        self._tolerance = tolerance
        self._engines = tuple(ENGINES) if wanted == FASTEST else (wanted,)
        self._lock = threading.Lock()
        self._examined: Examined | None = None
        self._state: object = None  # the state of the model's files when it was examined
        self._entry: cache.NewEntry | None = None  # an entry for this process alone
        self._until = math.inf  # when the engines are to be tried again
        # An engine asked for by name is retried at once: without it the open fails.
        self._pause = _FIRST_PAUSE_SECONDS if wanted == FASTEST else 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only: another process examines the model again."""
        given = self._samples, self._tolerance, self._shadow
        return Conversion, (self._wanted, self._load, self._arrays, *given)

    def examined(self, attempt: Attempt, open_trial: Open) -> Examined:
        """Return the facts about the engines: from this process, the cache, or by trying."""
        with attempt.holding(self._lock):
            with _reading(self._load):
                state = cache.state_of(self._load)
            is_old = self._state != state or time.monotonic() >= self._until
            if self._examined is None or is_old:
                key = self._key()
                self._examined = self._find(key) or self._found_out(key, attempt, open_trial)
                self._state = state
                self._until = math.inf
                if self._examined.may_pass:
                    # A later open may succeed, but repeated failures must not delay every open.
                    self._until = time.monotonic() + self._pause
                    self._pause *= 2
            return self._examined

    def _find(self, key: str) -> Examined | None:
        """Look up an entry in the cache: for the wanted engines, or for all engines."""
        found = cache.find(_with_engines(key, self._engines))
        return found or cache.find(_with_engines(key, tuple(ENGINES)))

    def _found_out(self, key: str, attempt: Attempt, open_trial: Open) -> Examined:
        # The held entry stays until a new one exists: an open may be about to load from it.
        is_again = self._entry is not None
        with cache.NewEntry(_with_engines(key, self._engines), attempt.pause, is_again) as entry:
            if found := self._find(key):
                return found  # another process has made it meanwhile
            opener = _Opener(attempt, open_trial, self._load, self._arrays)
            found = examine(opener, self._engines, entry.path, self._samples, self._tolerance)
            attempt.check()  # a failure because the attempt was cancelled is no refusal
            is_built = self._load.kind == "builder"  # its key is random, so no open finds it again
            if is_built or found.may_pass:
                self._entry = entry
                return entry.hold(found)
            if self._key() != key:
                raise cache.NotKept("the model's files have changed while it was converted")
            found = entry.keep(found)
            self._entry = None  # from an earlier try, now superseded
            return found

    def is_intact(self) -> bool:
        """Whether the converted files still exist. If not, the next open finds or makes them."""
        with self._lock:
            if self._examined is not None and not cache.is_intact(self._examined):
                self._examined = None
            return self._examined is not None

    def chosen(self, attempt: Attempt, open_trial: Open, name: str) -> tuple[Load, Arrays, str]:
        """Return what to load, with which arrays, and the words that explain the choice.

        Raises ModelError if an engine that was asked for by name is refused.
        """
        try:
            found = self.examined(attempt, open_trial)
        except cache.NotKept as error:
            if self._wanted != FASTEST:
                raise
            why = str(error)
        else:
            if self._wanted == FASTEST:
                # With shadow=, TensorFlow is loaded anyway, beside the engine compared with it.
                uses = fastest(found, alone=self._shadow is not None)
            else:
                uses = (Use(self._wanted),) if found.of(self._wanted).agrees else ()
            if uses:
                words = words_for(found, uses)
                load, arrays = self._load_for(found, uses)
                events.emit("engine.chosen", name, engine=engines_of(load), why=words)
                return load, arrays, words
            why = "; ".join(_why_not(one) for one in found.candidates)
        events.emit("engine.refused", name, engine=self._wanted, why=why)
        if self._wanted != FASTEST:
            raise ModelError(f"the model cannot be run by {why}")
        return self._load, self._arrays, f"{TENSORFLOW}: {why}"

    def _load_for(self, found: Examined, uses: Sequence[Use]) -> tuple[Load, Arrays]:
        """Return what a worker loads for this choice."""
        parts = []
        for engine, _ in uses:
            if engine == TENSORFLOW:
                parts.append(self._load)
                continue
            one = found.of(engine)
            made = Made(engine, Path(found.folder, one.file), one.sha256)
            names = found.inputs, found.outputs
            part = _converted_load(self._load, made, *names, one.threads)
            limits = {"most": one.most, "is_shown": one.is_shown, "only_some": one.only_some}
            parts.append(replace(part, **limits))
        load = parts[0]
        if len(parts) > 1:
            load = Load(kind="by_rows", parts=parts, most_rows=uses[0].most_rows or 0)
        if self._shadow is not None:
            load = Load(
                kind="shadowed",
                parts=[self._load, load],
                every=round(min(1 / self._shadow, _MOST_STEPS)),
                tolerance=found.of(uses[0].engine).tolerance,
            )
        return load, self._arrays if framework_of(load) == TENSORFLOW else []

    def _key(self) -> str:
        more = str(self._tolerance)
        arrays = [*self._arrays]
        for feeds in self._samples or ():
            more += "\n"
            for name, value in sorted(feeds.items()):
                array = np.asarray(value)
                more += f" {name} {array.dtype} {array.shape}"
                if array.dtype.kind in "OTmM":  # its bytes do not identify its content
                    more += repr(array.tolist())
                else:
                    arrays.append(array)
        with _reading(self._load):
            return cache.key_of(self._load, arrays, more)


def _with_engines(key: str, engines: tuple[str, ...]) -> str:
    return hashlib.sha256(f"{key} {engines}".encode()).hexdigest()


@contextmanager
def _reading(load: Load) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(f"the model in {load.path} cannot be read: {error}") from error


def _why_not(candidate: Candidate) -> str:
    if candidate.refusal:
        return str(candidate)
    least = max(candidate.ratios, key=lambda batch: candidate.ratios[batch])
    return f"{candidate}, {candidate.gain(least)}, which is not a clear win"


class _Opener:
    """Opens the sessions with which engines are tried."""

    def __init__(self, attempt: Attempt, trial: Open, load: Load, arrays: Arrays) -> None:
        self.attempt = attempt
        # Also one thread: small models gain nothing by a second one, and waking it takes time.
        is_open = load.threads is None and len(os.sched_getaffinity(0)) > 1
        self.thread_counts: Sequence[int | None] = (None, 1) if is_open else (load.threads,)
        self._trial = trial
        self._load = load
        self._arrays = arrays

    def reference(self) -> Session:
        return self._trial(self._load, self._arrays)

    def frozen(self, graph_def: np.ndarray, signature: Signature) -> Session:
        inputs = _names("i", signature.inputs, ":0")
        outputs = _names("o", signature.outputs, ":0")
        load = Load(kind="graph", inputs=inputs, outputs=outputs, threads=self._load.threads)
        return self._trial(load, [graph_def])

    def converted(self, made: Made, signature: Signature, threads: int | None) -> Session:
        names = signature.inputs, signature.outputs
        return self._trial(_converted_load(self._load, made, *names, threads), [])


def _converted_load(
    load: Load, made: Made, inputs: Iterable[str], outputs: Iterable[str], threads: int | None
) -> Load:
    """Return how to load a converted model under the names of the original model."""
    kind, _ = ENGINES[made.engine]
    ending = ":0" if kind == "onnx" else ""
    return Load(
        kind=kind,
        path=str(made.path),
        inputs=_names("i", inputs, ending),
        outputs=_names("o", outputs, ending),
        deterministic=load.deterministic,
        threads=threads,
        sha256=made.sha256,
    )


def _names(letter: str, names: Iterable[str], ending: str) -> dict[str, Any]:
    return {name: f"{letter}{n}{ending}" for n, name in enumerate(names)}
