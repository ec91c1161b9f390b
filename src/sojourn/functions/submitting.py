"""Calls in the background, with a future for each. The threads end with the last call."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sojourn.process.interrupts import is_no_thread

R = TypeVar("R")

_lock = threading.Lock()
_waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
_threads: set[threading.Thread] = set()


def submit(work: Callable[[], R]) -> Future[R]:
    """Do the work on a background thread, which ends when no more work is queued."""
    future: Future[R] = Future()
    with _lock:
        try:
            _waiting.append((future, work))
            if len(_threads) < len(os.sched_getaffinity(0)):
                _start_thread()
        except BaseException as error:
            if not (_threads and is_no_thread(error)):  # else the existing threads do it
                future.cancel()  # the caller does not get it
                raise
    return future


def _start_thread() -> None:
    thread = threading.Thread(target=_serve, name="sojourn-submit")
    _threads.add(thread)
    try:
        thread.start()
    except BaseException:
        _threads.discard(thread)
        raise


def _serve() -> None:
    while True:
        with _lock:
            if not _waiting:
                _threads.discard(threading.current_thread())
                return
            future, work = _waiting.popleft()
        try:
            if future.set_running_or_notify_cancel():
                _run(future, work)
        except BaseException:  # of a callback: other calls still need this thread
            threading.excepthook(
                threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            )
        del future, work  # no reference here keeps the result after the caller drops it


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _forget_in_child() -> None:
    # The threads and the calls belong to the parent.
    global _lock
    _lock = threading.Lock()
    _waiting.clear()
    _threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
