"""Calls in the background: a future for each, and no thread that outlives the last of them."""

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
    """Have it done by a thread that ends when there is nothing more to do."""
    future: Future[R] = Future()
    with _lock:
        try:
            _waiting.append((future, work))
            if len(_threads) < len(os.sched_getaffinity(0)):
                _start_thread()
        except BaseException as error:
            if not (_threads and is_no_thread(error)):  # else the others do it
                future.cancel()  # nobody will ever have it
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
        except BaseException:  # of a callback: the other calls still want this thread
            threading.excepthook(
                threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            )
        del future, work  # the future is the caller's: its result goes when they drop it


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _forget_in_child() -> None:
    # The threads are the parent's, and so are the calls.
    global _lock
    _lock = threading.Lock()
    _waiting.clear()
    _threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
