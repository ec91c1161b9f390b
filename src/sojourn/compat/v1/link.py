"""The link between a drop-in session and its engine: prepare, run, account, close."""

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

_STEPS_KEPT = 256  # prepared steps in the cache of one session
_CALLS_BEFORE_TUNING = 3
# A longer step gains nothing by running in the calling thread, and its ops might not run in
# parallel there.
_SHORT_SECONDS = 0.005
CLOSE_SECONDS = 5.0
_HANDLE_OPS = frozenset({"GetSessionHandle", "GetSessionHandleV2"})
_UNSTEPPABLE = frozenset({dtypes.resource.as_datatype_enum, dtypes.variant.as_datatype_enum})


class StepTie(weakref.ref["TunedStep"]):
    """A weak reference that keeps the engine's plan numbers of a garbage-collected step.

    Its callback is the `append` of the link's garbage queue, not a finalizer written in Python,
    which would lose a Ctrl-C that arrives while it runs.
    """

    __slots__ = ("numbers",)

    numbers: list[int]


class TunedStep:
    """A prepared step. After it is garbage-collected here, the engine releases its plans."""

    def __init__(
        self,
        link: Link,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        targets: tuple[str, ...],
    ) -> None:
        self.feeds, self.fetches, self.targets = feeds, fetches, targets
        self.plan: StepPlan  # replaced when the step is tuned
        # All numbers the step ever had: a thread may be about to run the first plan when the
        # step is tuned.
        self._numbers: list[int] = []
        tie = StepTie(self, link.garbage.append)
        tie.numbers = self._numbers
        link.ties.add(tie)
        self.calls = 0
        self.seconds = 0.0

    def set(self, number: int, adoptable: bool, prints: bool) -> None:
        """Make later runs of the step use the engine's plan with this number."""
        self._numbers.append(number)
        step = PreparedStep(number, adoptable=adoptable, prints=prints)
        self.plan = StepPlan(step, len(self.fetches), changes_state=False)


def devices_for(config: Any) -> Choice:
    """Return which of the devices of this process a session with this configuration may use.

    Does not ask TensorFlow, which allocates memory on every device to answer.
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
    """The part that both isolations share. The subclasses have what depends on the isolation."""

    stay: Stay

    gives_scalars = True  # False: gives arrays of rank 0 where TensorFlow's session gives scalars

    def __init__(self, graph: Any, prepares_steps: bool) -> None:
        self.graph = graph
        self.prepares_steps = prepares_steps
        self.branches = Branches(graph)
        self.ties: set[StepTie] = set()
        self.garbage: deque[StepTie] = deque()  # of garbage-collected steps
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

    # -- what TensorFlow's class requests from its C session -------------------------------------
    # Each method takes the session: a link that kept it would keep it from being
    # garbage-collected.

    @abstractmethod
    def extend(self, session: Any) -> None:
        """Make the engine see new nodes of the graph, as TensorFlow's own session does."""

    @abstractmethod
    def run_with_options(
        self, session: Any, fetches: Any, feed_dict: Any, options: Any, metadata: Any
    ) -> Any:
        """Do `Session.run` with options or metadata."""

    @abstractmethod
    def run_unprepared(
        self, session: Any, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any
    ) -> Any:
        """Run a step that cannot be prepared."""

    @abstractmethod
    def setup_partial(self, session: Any, setup: Any, arguments: Any) -> Any:
        """Return the handle of a new partial run; `setup` is TensorFlow's own way to get one."""

    @abstractmethod
    def run_partial(self, session: Any, handle: Any, feeds: Any, fetches: Any) -> Any:
        """Continue a partial run."""

    @abstractmethod
    def make_callable(
        self, session: Any, fetches: Any, feed_list: Any, accept_options: bool
    ) -> Any:
        """Do `Session.make_callable`."""

    @abstractmethod
    def callable_from_options(self, session: Any, options: Any) -> Any:
        """Do `Session._make_callable_from_options`."""

    @abstractmethod
    def list_devices(self, session: Any) -> Any:
        """Do `Session.list_devices`."""

    # -- steps ---------------------------------------------------------------------------------

    @abstractmethod
    def grow(self) -> None:
        """Make the engine see new nodes of the graph before a planned step runs."""

    def can_step(self, feeds: Any, fetches: Any) -> bool:
        """Whether a step can be prepared; False if something in it needs `run_unprepared`."""
        if not self.prepares_steps:
            return False
        if any(is_handle(value) for value in feeds.values()):
            return False  # a tensor handle may be fed for a tensor of any type
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
        """Run a step, which this call or an earlier one prepares."""
        return self.run_step(self.prepare(feeds, fetches, targets), arrays)

    def prepare(
        self, feeds: tuple[str, ...], fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> TunedStep:
        """Return the cached step with these feeds, fetches and targets, or make it."""
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
        # One of the first runs: measure it, because `_tune` needs to know how long the step takes.
        started = time.perf_counter()
        results = self.stay.step(step.plan, arrays)
        step.seconds = time.perf_counter() - started
        step.calls += 1
        if step.calls == _CALLS_BEFORE_TUNING:
            self._tune(step)
        return results  # type: ignore[return-value]

    def _tune(self, step: TunedStep) -> None:
        """Replan a repeated step after inspecting its ops: the fastest safe way to run it."""
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
        """Make TensorFlow cancel the running steps, and refuse new ones."""

    def close(self, place: Place) -> None:
        """Cancel the running steps, and end the stay."""
        if self.stay.is_foreign:
            return
        backend = self.stay.backend
        timeout = 0.0
        try:
            if backend is None or not backend.is_calling_us():
                self.cancel()  # else the step waits for this very call, and ends with the stay
            timeout = CLOSE_SECONDS
        finally:
            self.stay.close(timeout, place)  # after a Ctrl-C too, then with timeout 0
