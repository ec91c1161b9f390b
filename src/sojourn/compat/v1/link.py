"""Between a drop-in session and the engine that runs its steps: prepare, run, account, close."""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import dtypes
from tensorflow.python.platform import test as tf_test

from sojourn.compat.v1.words import TensorFlowWords
from sojourn.engines.branches import Branches
from sojourn.engines.feed_flow import may_outlive_the_step
from sojourn.engines.remote_session import is_handle
from sojourn.engines.tensorflow_steps import step_facts
from sojourn.kinds import Load
from sojourn.probes import gpu
from sojourn.process.calls import PreparedStep
from sojourn.session.backend import Backend, MakeBackend
from sojourn.session.devices import Choice, everything
from sojourn.session.plans import PlanFacts, StepPlan
from sojourn.session.stay import Stay
from sojourn.values import Place

_STEPS_KEPT = 256
_CALLS_BEFORE_TUNING = 3
# A longer step has nothing to gain from the calling thread, and may lose its parallel ops.
_SHORT_SECONDS = 0.005
CLOSE_SECONDS = 5.0
_HANDLE_OPS = frozenset({"GetSessionHandle", "GetSessionHandleV2"})
_UNSTEPPABLE = frozenset({dtypes.resource.as_datatype_enum, dtypes.variant.as_datatype_enum})


class StepTie(weakref.ref["TunedStep"]):
    """What is left of a step that was garbage-collected: the engine's numbers of it.

    Python itself puts it on the link's list of garbage, not a finalizer of ours, which would lose
    a Ctrl-C that comes while it runs.
    """

    __slots__ = ("numbers",)

    numbers: list[int]


class TunedStep:
    """A prepared step. The engine forgets it when it is garbage-collected here."""

    def __init__(
        self,
        link: Link,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        targets: tuple[str, ...],
    ) -> None:
        self.feeds, self.fetches, self.targets = feeds, fetches, targets
        self.plan: StepPlan  # replaced by another when the step has been tuned
        # All it ever had: a thread may be about to run the first one when it is tuned.
        self._numbers: list[int] = []
        tie = StepTie(self, link.garbage.append)
        tie.numbers = self._numbers
        link.ties.add(tie)
        self.calls = 0
        self.seconds = 0.0

    def set(self, number: int, adoptable: bool, prints: bool) -> None:
        """From now on the engine's plan of this number is run."""
        self._numbers.append(number)
        step = PreparedStep(number, adoptable=adoptable, prints=prints)
        self.plan = StepPlan(step, len(self.fetches), changes_state=False)


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
    """What both isolations share. What depends on the isolation is in the classes below it."""

    stay: Stay

    gives_scalars = True  # or else arrays of rank 0, where TensorFlow's own session has scalars

    def __init__(self, graph: Any, prepares_steps: bool) -> None:
        self.graph = graph
        self.prepares_steps = prepares_steps
        self.branches = Branches(graph)
        self.ties: set[StepTie] = set()
        self.garbage: deque[StepTie] = deque()  # of steps that are no longer needed
        self._steps: OrderedDict[Any, TunedStep] = OrderedDict()
        self._lock = threading.Lock()

    def _open(
        self,
        name: str,
        isolation: str,
        place: Place,
        make: MakeBackend,
        load: Load,
        device: str | None = None,
    ) -> Backend:
        self.stay = Stay(name, isolation, device or devices_for(None).label, place, TensorFlowWords)
        self.stay.beginning.open(make, load)
        assert self.stay.backend is not None
        return self.stay.backend

    # -- what TensorFlow's class asks of its C session -------------------------------------------
    # With the session, which a link must not keep: it would never be garbage-collected.

    @abstractmethod
    def extend(self, session: Any) -> None:
        """Make the engine see what was added to the graph, as TensorFlow's own session does."""

    @abstractmethod
    def run_with_options(
        self, session: Any, fetches: Any, feed_dict: Any, options: Any, metadata: Any
    ) -> Any:
        """`Session.run` with options or metadata."""

    @abstractmethod
    def run_unprepared(
        self, session: Any, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any
    ) -> Any:
        """A step that has something in it that cannot be prepared."""

    @abstractmethod
    def setup_partial(self, session: Any, setup: Any, arguments: Any) -> Any:
        """The handle of a partial run; `setup` is TensorFlow's own way to get one."""

    @abstractmethod
    def run_partial(self, session: Any, handle: Any, feeds: Any, fetches: Any) -> Any:
        """Go on with a partial run."""

    @abstractmethod
    def make_callable(
        self, session: Any, fetches: Any, feed_list: Any, accept_options: bool
    ) -> Any:
        """`Session.make_callable`."""

    @abstractmethod
    def callable_from_options(self, session: Any, options: Any) -> Any:
        """`Session._make_callable_from_options`."""

    @abstractmethod
    def list_devices(self, session: Any) -> Any:
        """`Session.list_devices`."""

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
        if any(
            c_api.TF_OperationOutputType(output) in _UNSTEPPABLE
            or c_api.TF_OperationOpType(output.oper) in _HANDLE_OPS
            for outputs in (feeds, fetches)
            for output in outputs
        ):
            return False
        return not self.branches.may_lack(c_api.TF_OperationName(o.oper) for o in fetches)

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
    ) -> TunedStep:
        """The step with these feeds, fetches and targets."""
        key = (feeds, fetches, targets)
        with self._lock:
            step = self._steps.get(key)
            if step is not None:
                self._steps.move_to_end(key)
                return step
        step = TunedStep(self, feeds, fetches, targets)
        self._plan(step)
        with self._lock:
            step = self._steps.setdefault(key, step)
            if len(self._steps) > _STEPS_KEPT:
                self._steps.popitem(last=False)
        return step

    def run_step(self, step: TunedStep, arrays: Sequence[Any]) -> list[Any]:
        """Run a prepared step."""
        if step.calls > _CALLS_BEFORE_TUNING:
            return self.stay.step(step.plan, arrays)  # type: ignore[return-value]
        # One of the first runs: they tell how long it takes, and whether tuning is worth it.
        started = time.perf_counter()
        results = self.stay.step(step.plan, arrays)
        step.seconds = time.perf_counter() - started
        step.calls += 1
        if step.calls == _CALLS_BEFORE_TUNING:
            self._tune(step)
        return results  # type: ignore[return-value]

    def _tune(self, step: TunedStep) -> None:
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
        step: TunedStep,
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

        with self.stay.taking_part("plan"):
            backend = self.stay.backend
            assert backend is not None
            while self.garbage:
                tie = self.garbage.popleft()
                self.ties.discard(tie)
                for number in tie.numbers:
                    backend.call("release", {"number": number})
            facts, _ = backend.call("plan", wanted, result=PlanFacts)
        step.set(int(facts.number), adoptable, prints)

    def _call(
        self, name: str, arguments: Any, arrays: Sequence[Any] = (), counts: bool = False
    ) -> tuple[Any, Sequence[np.ndarray]]:
        return self.stay.call(name, arguments, arrays, counts=counts)

    # -- the end -------------------------------------------------------------------------------

    @abstractmethod
    def cancel(self) -> None:
        """Make TensorFlow cancel what runs, and refuse what comes."""

    def close(self, place: Place) -> None:
        """Cancel what runs, and end the stay."""
        if self.stay.is_foreign:
            return
        backend = self.stay.backend
        timeout = 0.0
        try:
            if backend is None or not backend.is_calling_us():
                self.cancel()  # else the step waits for this very function, and ends with the stay
            timeout = CLOSE_SECONDS
        finally:
            self.stay.close(timeout, place)  # also when Ctrl-C came meanwhile: then at once
