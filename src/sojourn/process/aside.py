"""Run slow work off the event loop, on a thread of its own that ends with the work.

Used for operations that happen once in a session's life: opening it, closing it, replacing its
worker. Steps do not need a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Run the work on a thread and return its result. If the caller is cancelled meanwhile, the
    work still runs to its end, and `undo` is called with its result."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    outcome: list[T] = []
    failure: list[BaseException] = []

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            abandon()  # the loop is closed, so nobody waits for the result

    def abandon() -> None:
        if undo is not None and outcome:
            undo(outcome.pop())

    def finish_alone() -> None:
        thread.join()
        abandon()

    thread = threading.Thread(target=run, name="sojourn-aside")
    thread.start()
    try:
        await done
    except BaseException:
        threading.Thread(target=finish_alone, name="sojourn-aside-undo").start()
        raise
    thread.join()
    try:
        if failure:
            raise failure[0]
        return outcome[0]
    finally:
        failure.clear()  # an error refers to this frame, which must not refer to it
