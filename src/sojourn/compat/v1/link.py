"""Between a drop-in session and the engine that runs its steps: prepare, run, account, close."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import dtypes
from tensorflow.python.framework import errors_impl as tf_errors
from tensorflow.python.platform import test as tf_test

from sojourn.engines.feed_flow import may_outlive_the_step
from sojourn.engines.remote_session import is_handle
from sojourn.engines.tensorflow_steps import step_facts
from sojourn.errors import SessionBroken, SessionClosed
from sojourn.probes import gpu
from sojourn.process.calls import WorkerDied, step_meta
from sojourn.session.backend import Backend, MakeBackend
from sojourn.session.devices import Choice, everything
from sojourn.session.plans import PlanFacts
from sojourn.session.stay import OUTCOME, Stay
from sojourn.values import Place

_STEPS_KEPT = 256
_CALLS_BEFORE_TUNING = 3
# A longer step has nothing to gain from the calling thread, and may lose its parallel ops.
_SHORT_SECONDS = 0.005
CLOSE_SECONDS = 5.0
_HANDLE_OPS = frozenset({"GetSessionHandle", "GetSessionHandleV2"})
_UNSTEPPABLE = frozenset({dtypes.resource.as_datatype_enum, dtypes.variant.as_datatype_enum})


class WorkerLost(SessionBroken, tf_errors.UnavailableError):  # type: ignore[misc]
    """The worker died. TensorFlow's recoverable sessions know it by the second of its types."""

    def __init__(self, node_def: Any, op: Any, message: str) -> None:
        tf_errors.UnavailableError.__init__(self, node_def, op, message)


class Step:
    """A prepared step. The engine forgets it when nobody refers to it any more."""

    def __init__(
        self,
        link: Link,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        targets: tuple[str, ...],
    ) -> None:
        self._garbage = link.garbage
        self.feeds, self.fetches, self.targets = feeds, fetches, targets
        # Meta bytes, adoptable, prints: changed together when the step has been tuned.
        self.how: tuple[bytes, bool, bool]
        # All it ever had: somebody may be about to run the first one when it is tuned.
        self._numbers: list[int] = []
        self.calls = 0
        self.seconds = 0.0

    def set(self, number: int, adoptable: bool, prints: bool) -> None:
        self._numbers.append(number)
        self.how = (step_meta(number), adoptable, prints)

    def __del__(self) -> None:
        self._garbage.extend(self._numbers)


def devices_for(config: Any) -> Choice:
    """What a session with this configuration may use of all that this process sees.

    Found without asking TensorFlow, which takes memory on every device to tell.
    """
    gpus: Sequence[gpu.Gpu] = gpu.found()
    if not gpus or not tf_test.is_built_with_gpu_support():
        gpus = ()
    only = None
    if config is not None:
        if config.device_count.get("GPU", 1) == 0:
            gpus = ()
        only = config.gpu_options.visible_device_list or None
    return everything(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), only)


class Link(ABC):
    """What both isolations share."""

    stay: Stay

    gives_scalars = True  # or else arrays of rank 0, where TensorFlow's own session has scalars

    def __init__(self, graph: Any, prepares_steps: bool) -> None:
        self.graph = graph
        self.prepares_steps = prepares_steps
        self.garbage: list[int] = []  # numbers of steps that nobody needs any more
        self._steps: OrderedDict[Any, Step] = OrderedDict()
        self._lock = threading.Lock()

    def _open(
        self,
        name: str,
        isolation: str,
        place: Place,
        make: MakeBackend,
        arguments: dict[str, Any],
        device: str | None = None,
    ) -> Backend:
        self.stay = Stay(name, isolation, device or devices_for(None).label, place)
        self.stay.open(make, {"kind": "session", **arguments})
        assert self.stay.backend is not None
        return self.stay.backend

    # -- steps ---------------------------------------------------------------------------------

    @abstractmethod
    def grow(self) -> None:
        """Make the engine see what was added to the graph."""

    def can_step(self, feeds: Any, fetches: Any) -> bool:
        """Whether a step can be prepared, or has something in it that only `run` can do."""
        if not self.prepares_steps:
            return False
        if any(is_handle(value) for value in feeds.values()):
            return False  # a tensor handle, which may be fed for a tensor of any type
        return not any(
            c_api.TF_OperationOutputType(output) in _UNSTEPPABLE
            or c_api.TF_OperationOpType(output.oper) in _HANDLE_OPS
            for outputs in (feeds, fetches)
            for output in outputs
        )

    def step(
        self,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        targets: tuple[str, ...],
        arrays: Sequence[Any],
    ) -> list[Any]:
        """Run a step, prepared for this or an earlier call."""
        return self.run_step(self.prepare(feeds, fetches, targets), arrays)

    def prepare(
        self, feeds: tuple[str, ...], fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> Step:
        """The step with these feeds, fetches and targets."""
        key = (feeds, fetches, targets)
        with self._lock:
            step = self._steps.get(key)
            if step is not None:
                self._steps.move_to_end(key)
                return step
        step = Step(self, feeds, fetches, targets)
        self._plan(step)
        with self._lock:
            step = self._steps.setdefault(key, step)
            if len(self._steps) > _STEPS_KEPT:
                self._steps.popitem(last=False)
        return step

    def run_step(self, step: Step, arrays: Sequence[Any]) -> list[Any]:
        """Run a prepared step."""
        if step.calls <= _CALLS_BEFORE_TUNING:
            return self._run_early(step, arrays)
        meta, adoptable, prints = step.how
        lifecycle = self.stay.lifecycle
        try:
            started = lifecycle.begin_step()
        except (SessionBroken, SessionClosed) as refusal:
            raise self._refused(refusal) from None
        failed = True
        try:
            results = self.stay.backend.step(meta, arrays, adoptable, prints, None)  # type: ignore[union-attr]
            failed = False
            return results  # type: ignore[return-value]
        except WorkerDied as death:
            raise self._broken(death) from None
        finally:
            lifecycle.end_step(True, started, failed=failed)

    def _run_early(self, step: Step, arrays: Sequence[Any]) -> list[Any]:
        """One of the first runs: they tell how long it takes, and whether tuning is worth it."""
        meta, adoptable, prints = step.how
        started = time.perf_counter()
        results = self._within(
            lambda backend: backend.step(meta, arrays, adoptable, prints, None), counts=True
        )
        step.seconds = time.perf_counter() - started
        step.calls += 1
        if step.calls == _CALLS_BEFORE_TUNING:
            self._tune(step)
        return results  # type: ignore[no-any-return]

    def _tune(self, step: Step) -> None:
        """It comes again and again: look at its ops, and find the fastest safe way to run it."""
        feeds = [self.graph.get_tensor_by_name(name) for name in step.feeds]
        fetches = [self.graph.get_tensor_by_name(name) for name in step.fetches]
        targets = [self.graph.get_operation_by_name(name) for name in step.targets]
        facts = step_facts(self.graph, feeds, fetches, targets)
        self._plan(
            step,
            adoptable=not may_outlive_the_step(feeds, fetches),
            prints=facts.prints,
            tries_calling_thread=not facts.may_block and step.seconds < _SHORT_SECONDS,
        )
        step.calls += 1

    def _plan(
        self,
        step: Step,
        adoptable: bool = False,
        prints: bool = True,
        tries_calling_thread: bool = False,
    ) -> None:
        wanted = {
            "feeds": list(step.feeds),
            "fetches": list(step.fetches),
            "targets": list(step.targets),
            "tries_calling_thread": tries_calling_thread,
        }

        def plan(backend: Backend) -> int:
            while self.garbage:
                backend.call("release", {"number": self.garbage.pop()})
            facts, _ = backend.call("plan", wanted, result=PlanFacts)
            return int(facts.number)

        step.set(self._within(plan), adoptable, prints)

    def _within(self, action: Callable[[Backend], Any], counts: bool = False) -> Any:
        """Do it while nobody can end the session, and say in TensorFlow's words if it has ended."""
        try:
            started = self.stay.lifecycle.begin_step()
        except (SessionBroken, SessionClosed) as refusal:
            raise self._refused(refusal) from None
        failed = True
        try:
            result = action(self.stay.backend)  # type: ignore[arg-type]
            failed = False
            return result
        except WorkerDied as death:
            raise self._broken(death) from None
        finally:
            self.stay.lifecycle.end_step(counts, started if counts else 0.0, failed=failed)

    def _call(
        self, name: str, arguments: dict[str, Any], arrays: Sequence[Any] = (), counts: bool = False
    ) -> tuple[Any, Sequence[np.ndarray]]:
        return self._within(  # type: ignore[no-any-return]
            lambda backend: backend.call(name, arguments, arrays), counts
        )

    # -- the end -------------------------------------------------------------------------------

    @abstractmethod
    def cancel(self) -> None:
        """Make TensorFlow cancel what runs, and refuse what comes."""

    def close(self, place: Place) -> None:
        """Cancel what runs, and end the stay."""
        if not self.stay.is_foreign:
            backend = self.stay.backend
            if backend is None or not backend.is_calling_us():
                self.cancel()  # else the step waits for this very function, and ends with the stay
            self.stay.close(CLOSE_SECONDS, place)

    def _refused(self, refusal: Exception) -> Exception:
        if isinstance(refusal, SessionBroken):
            return WorkerLost(None, None, str(refusal))
        return RuntimeError("Attempted to use a closed Session.")

    def _broken(self, death: WorkerDied) -> Exception:
        error: Exception = self.stay.broken_by(death, OUTCOME[death.has_begun])
        if isinstance(error, SessionClosed):
            return tf_errors.CancelledError(None, None, "Session has been closed.")  # type: ignore[no-any-return]
        return WorkerLost(None, None, str(error))
