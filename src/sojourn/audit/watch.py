"""Watches raw TensorFlow sessions in this process and records what happens to them.

It wraps a few methods of TensorFlow's own classes (never the class names: TensorFlow looks those
up in its module's globals) and restores them afterwards. One watch serves all audits of the
process; it is installed only while an audit runs. The judge interprets the facts.
"""

from __future__ import annotations

import _thread
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from sojourn.audit import blame as who
from sojourn.audit.facts import Growth, SessionRecord, Use
from sojourn.audit.loading import when_loaded
from sojourn.audit.timeline import Meter, Sampler
from sojourn.values import Place

SESSION_MODULE = "tensorflow.python.client.session"
STACK_MODULE = "tensorflow.python.framework.stack"

# Steps per session that are measured. A session allocates its memory in its first steps: variables,
# then the scratch memory of each kind of step.
MEASURED_RUNS = 16
# Finding the lines that add ops is expensive: after this many growths of a graph, lines are looked
# up only when the number of growths is a power of two.
LOOKED_AT_GROWTHS = 16
_MOST_OPS_LOOKED_AT = 200
_MOST_LATE_USES = 50
# TensorFlow's functions by which users get the default session; others are internal callers.
_ASKING = {"get_default_session", "_eval_using_default_session", "_run_using_default_session",
           "eval", "run"}  # fmt: skip
_missing = object()


@dataclass(slots=True)
class _GraphState:
    serial: int
    version: int
    steps: int = 0
    growths: int = 0


@dataclass(slots=True)
class _Live:
    record: SessionRecord
    graph: _GraphState


class Watch:
    """Records every session opened while it is installed."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.sessions: list[SessionRecord] = []
        self.growths: list[Growth] = []
        self.meter = Meter()
        self.sampler = Sampler(self.began, self.meter.read)
        self.live: dict[int, _Live] = {}
        self._serials = itertools.count(1)
        self._graph_serials = itertools.count(1)
        self._graphs: weakref.WeakKeyDictionary[Any, _GraphState] = weakref.WeakKeyDictionary()
        self._newest: dict[int, SessionRecord] = {}
        self._borrowers: set[tuple[int, str, int]] = set()
        self._patches: list[tuple[type, str, Any, Any]] = []
        self._forget_import: Callable[[], None] = lambda: None

    def now(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self.began

    # Calls from the wrappers.

    def opened(self, session: Any, frame: FrameType, interactive: bool) -> None:
        """Record a session that the code behind `frame` created."""
        place, stack, library = who.blame(frame)
        graph = self._graph_state(session.graph)
        record = SessionRecord(
            serial=next(self._serials),
            kind=type(session).__name__,
            place=place,
            stack=stack,
            opened_at=self.now(),
            graph=graph.serial,
            scope=_current_test(),
            library=library,
            kept_by_library=_is_kept_by_keras(frame),
            interactive=interactive,
        )
        if interactive:
            for other in list(self.live.values()):
                if other.record.interactive and other.record.closed_at is None:
                    other.record.replaced_by = record.serial
        self.live[id(session)] = _Live(record, graph)
        self._newest[_thread.get_ident()] = record
        self.sessions.append(record)

    def closed(self, record: SessionRecord, frame: FrameType, before: int) -> None:
        """Record that the code behind `frame` closed a session."""
        record.closed_at = self.now()
        record.closed_place = who.blame(frame).place
        record.bytes_before_close = before
        record.bytes_after_close = self.meter.read()

    def lost(self, record: SessionRecord, frame: FrameType | None) -> None:
        """Record that an open session is being garbage-collected and can no longer be closed."""
        record.lost_at = self.now()
        newest = self._newest.get(_thread.get_ident())
        if frame is None or newest is None or newest.serial <= record.serial:
            return
        # The line that opened a newer session is binding it to the name of this session.
        if newest.closed_at is None and who.place_of(frame) in newest.stack:
            record.replaced_by = newest.serial

    def used_late(self, record: SessionRecord, frame: FrameType) -> None:
        """Record that a closed session is being run."""
        place, stack, _ = who.blame(frame)
        if who.kind_of(place.file) == who.USER and len(record.late_uses) < _MOST_LATE_USES:
            record.late_uses.append(Use(place, stack, self.now()))

    def asked_for_default(self, record: SessionRecord, frame: FrameType) -> None:
        """Record that code uses the installed default session of other code."""
        for caller in who.frames(frame):
            kind = who.kind_of(caller.f_code.co_filename)
            if kind == who.FRAMEWORK and caller.f_code.co_name in _ASKING:
                continue
            if kind != who.OWN:
                break
        else:
            return
        file, line = caller.f_code.co_filename, caller.f_lineno or 0
        key = (record.serial, file, line)
        if kind != who.USER or file == record.place.file or key in self._borrowers:
            return
        self._borrowers.add(key)
        place, stack, _ = who.blame(caller)
        record.borrowed.append(Use(place, stack, self.now()))

    def stepped(self, graph: Any, state: _GraphState, version: int) -> None:
        """Record that the graph has gained ops since its last step; a step is about to run."""
        before, state.version = state.version, version
        if not state.steps:
            return
        state.growths += 1
        count = state.growths
        lines: tuple[tuple[Place, int], ...] = ()
        if count <= LOOKED_AT_GROWTHS or count & (count - 1) == 0:
            lines = _lines_that_added(graph, version - before)
        self.growths.append(
            Growth(
                graph=state.serial,
                at=self.now(),
                step=state.steps + 1,
                ops_before=before,
                ops_after=version,
                lines=lines,
                scope=_current_test(),
            )
        )

    def _graph_state(self, graph: Any) -> _GraphState:
        state = self._graphs.get(graph)
        if state is None:
            state = _GraphState(next(self._graph_serials), graph.version)
            self._graphs[graph] = state
        return state

    # Installing and removing the wrappers.

    def install(self) -> None:
        """Wrap TensorFlow now, or as soon as it is imported."""
        self.sampler.start()
        self._forget_import = when_loaded(SESSION_MODULE, self._wrap)

    def uninstall(self) -> None:
        """Restore TensorFlow's methods and stop measuring."""
        self.unwrap()
        self.sampler.stop()
        self.meter.close()

    def unwrap(self) -> None:
        """Restore TensorFlow's own methods."""
        self._forget_import()
        for owner, name, original, wrapper in reversed(self._patches):
            # If other code has wrapped our wrapper, it stays and keeps passing calls through.
            if owner.__dict__.get(name) is wrapper:
                if original is _missing:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
        self._patches.clear()
        self.live.clear()

    def _wrap(self, session_module: ModuleType) -> None:
        base = session_module.BaseSession
        interactive = session_module.InteractiveSession
        self._patch(base, "__init__", _wrap_init(self, base.__init__, interactive))
        self._patch(base, "close", _wrap_close(self, base.close))
        self._patch(base, "run", _wrap_run(self, base.run))
        self._patch(base, "__del__", _wrap_del(self, base.__del__))
        stack = sys.modules.get(STACK_MODULE)
        if stack is not None:
            default = stack.DefaultStack
            self._patch(default, "get_default", _wrap_get_default(self, default.get_default))

    def _patch(self, owner: type, name: str, wrapper: Any) -> None:
        original = owner.__dict__.get(name, _missing)
        for attribute in ("__doc__", "__name__", "__qualname__", "__module__", "__wrapped__"):
            value = original if attribute == "__wrapped__" else getattr(original, attribute, None)
            setattr(wrapper, attribute, value)
        self._patches.append((owner, name, original, wrapper))
        setattr(owner, name, wrapper)


def _wrap_init(watch: Watch, original: Any, interactive: type) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        watch.opened(self, sys._getframe(1), isinstance(self, interactive))

    return __init__


def _wrap_close(watch: Watch, original: Any) -> Any:
    def close(self: Any) -> Any:
        live = watch.live.get(id(self))
        if live is None or live.record.closed_at is not None:
            return original(self)
        before = watch.meter.read()
        try:
            return original(self)
        finally:
            if self._closed:
                watch.closed(live.record, sys._getframe(1), before)

    return close


def _wrap_run(watch: Watch, original: Any) -> Any:
    live_sessions = watch.live
    read = watch.meter.read
    now = time.monotonic

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        live = live_sessions.get(id(self))
        if live is None:
            return original(self, *args, **kwargs)
        record, graph_state = live.record, live.graph
        if self._closed:
            watch.used_late(record, sys._getframe(1))
            return original(self, *args, **kwargs)
        record.runs += 1
        record.last_run_at = now() - watch.began
        version = self._graph.version
        if version != graph_state.version:
            watch.stepped(self._graph, graph_state, version)
        graph_state.steps += 1
        if record.runs > MEASURED_RUNS:
            return original(self, *args, **kwargs)
        before = read()
        try:
            return original(self, *args, **kwargs)
        finally:
            record.grown_bytes += read() - before

    return run


def _wrap_del(watch: Watch, original: Any) -> Any:
    def __del__(self: Any) -> None:
        live = watch.live.pop(id(self), None)
        if live is not None and live.record.closed_at is None:
            watch.lost(live.record, sys._getframe().f_back)  # None while the interpreter shuts down
        original(self)
        if live is not None and live.record.closed_at is not None:
            # TensorFlow frees part of a session's memory only now.
            live.record.bytes_after_close = min(live.record.bytes_after_close, watch.meter.read())

    return __del__


def _wrap_get_default(watch: Watch, original: Any) -> Any:
    def get_default(self: Any) -> Any:
        session = original(self)
        live = watch.live.get(id(session))
        if live is not None and live.record.interactive:
            watch.asked_for_default(live.record, sys._getframe(1))
        return session

    return get_default


def _current_test() -> str:
    """The test that pytest is running, without its phase."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def _is_kept_by_keras(frame: FrameType) -> bool:
    """Whether Keras opens the session for all its models: Keras keeps it, users do not close it."""
    for caller in who.frames(frame):
        kind = who.kind_of(caller.f_code.co_filename)
        if kind == who.USER:
            return False
        if "keras" in caller.f_code.co_filename and "get_session" in caller.f_code.co_name:
            return True
    return False


def _lines_that_added(graph: Any, count: int) -> tuple[tuple[Place, int], ...]:
    """The user's lines that added the newest `count` ops of `graph`, with the count of each."""
    newest = graph.get_operations()[-count:]
    stride = max(1, len(newest) // _MOST_OPS_LOOKED_AT)
    ops_of: dict[Place, int] = {}
    for op in newest[::stride]:
        places = [Place(f.filename, f.lineno, f.name) for f in reversed(list(op.traceback or ()))]
        place = who.blame_places(places).place
        ops_of[place] = ops_of.get(place, 0) + stride
    return tuple(ops_of.items())


_lock = threading.Lock()
_watch: Watch | None = None
_audits = 0


def join_watch() -> Watch:
    """Return the watch of this process, and install it for the first audit."""
    global _watch, _audits
    with _lock:
        if _watch is None:
            _watch = Watch()
            _watch.install()
        _audits += 1
        return _watch


def leave_watch() -> None:
    """Note that an audit has ended. The last audit uninstalls the watch."""
    global _watch, _audits
    with _lock:
        _audits -= 1
        if _audits == 0 and _watch is not None:
            watch, _watch = _watch, None
            watch.uninstall()


def _after_fork_in_child() -> None:
    """Remove the watch in a forked child: the audits belong to the parent."""
    global _watch, _audits, _lock
    watch, _watch, _audits, _lock = _watch, None, 0, threading.Lock()
    if watch is not None:
        watch.unwrap()
        watch.meter.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
