"""Leases for asyncio: a thin facade over the pool. Waiting does not block the event loop."""

from __future__ import annotations

import asyncio
import weakref
from types import TracebackType
from typing import TYPE_CHECKING

from sojourn.pool.deciding import LOOK_SECONDS
from sojourn.pool.decisions.terms import Holder
from sojourn.pool.driver import Wish
from sojourn.pool.leasing import PoolLease, Waiter
from sojourn.process.aside import aside
from sojourn.process.deadlines import deadline_after, left_until
from sojourn.values import Place

if TYPE_CHECKING:
    from sojourn.pool.pool import Pool


class AsyncLease:
    """`async with pool.alease(name) as session`: leased for the block, by the task that runs it.

    `session.run` takes as long as the step does; where that is too long for the event loop, call
    it by `await asyncio.to_thread(session.run, ...)`.
    """

    def __init__(
        self, pool: Pool, model: str, version: int | None, timeout: float | None, place: Place
    ) -> None:
        self._pool = pool
        self._model = model
        self._version = version
        self._timeout = timeout
        self._place = place
        self._lease: PoolLease | None = None
        self._is_in_use = False

    async def __aenter__(self) -> PoolLease:
        if self._is_in_use:
            raise RuntimeError(f"{self._model}: alease() is for one block at a time: call it again")
        self._is_in_use = True
        try:
            self._lease = await self._take()
        except BaseException:
            self._is_in_use = False
            raise
        return self._lease

    async def _take(self) -> PoolLease:
        task = asyncio.current_task()
        assert task is not None
        # Weak: a strong reference would keep a task whose loop is closed, and its lease, forever.
        key = weakref.ref(task)
        hash(key)  # computed now and cached: later the task may be gone
        holder = Holder(key, self._place, task.get_name())
        lease = self._pool._driver.at_door(self._model, self._version, holder, self._pool)
        if lease is None:
            lease = await self._ask(Wish(self._model, holder, self._pool, self._version))
        return lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease, self._lease, self._is_in_use = self._lease, None, False
        if lease is None:
            return
        if lease.is_broken:
            await aside(lease.close)  # blocks until the pool has the copy's receipt
        else:
            lease.close()

    async def _ask(self, wish: Wish) -> PoolLease:
        loop = asyncio.get_running_loop()
        bell = asyncio.Event()

        def ring() -> None:
            try:
                loop.call_soon_threadsafe(bell.set)
            except RuntimeError:
                pass  # the loop is closed: no task waits any more

        deadline = deadline_after(self._timeout)
        got = self._pool._driver.ask(wish, ring)
        return await self._wait(got, deadline, bell) if isinstance(got, Waiter) else got

    async def _wait(self, waiter: Waiter, deadline: float | None, bell: asyncio.Event) -> PoolLease:
        driver = self._pool._driver
        try:
            while True:
                bell.clear()
                got = driver.look(waiter, deadline, self._pool)
                if isinstance(got, PoolLease):
                    return got
                # Not `wait_for`: before Python 3.12 it swallows a cancellation that arrives at
                # the moment when the bell rings.
                seconds = left_until(deadline, most=LOOK_SECONDS)
                timer = asyncio.get_running_loop().call_later(seconds, bell.set)
                try:
                    await bell.wait()
                finally:
                    timer.cancel()
        except GeneratorExit:
            raise  # the task is garbage-collected, perhaps under the lock: the tie reports it
        except BaseException:
            driver.cancel(waiter)
            raise
