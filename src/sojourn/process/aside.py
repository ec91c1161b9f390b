"""Work that takes its time, off the event loop: on a thread that ends with it.

For what happens once in a session's life: opening, closing, replacing a worker. Steps need none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """What the work returns. If the caller is cancelled meanwhile, the work goes on, and what it
    returned is undone."""
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
            abandon()  # the loop is closed, and nothing waits any more

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
