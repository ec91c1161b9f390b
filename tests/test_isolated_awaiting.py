"""Isolated functions, awaited: the event loop goes on, and nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import sojourn


@sojourn.isolated
def double(x):
    return 2 * x


@sojourn.isolated
def fail(x):
    raise ValueError(f"not {x}")


@sojourn.isolated
def count(n):
    yield from range(n)


@sojourn.isolated(timeout=0.3)
def sleep(seconds):
    time.sleep(seconds)


def test_an_awaited_call_gives_what_the_call_gives(zygote):
    async def main():
        assert await double.acall(21) == 42
        assert await asyncio.gather(*[double.acall(n) for n in range(4)]) == [0, 2, 4, 6]
        with pytest.raises(ValueError, match="not 3"):
            await fail.acall(3)

    asyncio.run(main())
    assert double.receipt.clean


def test_the_event_loop_goes_on_meanwhile_without_a_thread(zygote):
    @sojourn.isolated
    def rest():
        time.sleep(0.5)

    async def main():
        ticks = []
        call = asyncio.ensure_future(rest.acall())
        while not call.done():
            await asyncio.sleep(0.01)
            ticks.append(threading.active_count())
        await call
        assert len(ticks) > 10
        assert min(ticks) == 1, "a thread waited for it"

    asyncio.run(main())


def test_an_item_at_a_time_is_awaited(zygote):
    async def main():
        assert [item async for item in count(4)] == [0, 1, 2, 3]
        stream = count(1000)
        async for item in stream:
            if item == 2:
                break
        await stream.aclose()

    asyncio.run(main())


def test_an_awaited_call_that_takes_too_long_is_ended(zygote):
    async def main():
        with pytest.raises(sojourn.StepTimeout, match="its worker was ended"):
            await sleep.acall(60)

    asyncio.run(main())


def test_a_cancelled_call_leaves_nothing(zygote):
    @sojourn.isolated
    def for_ever():
        time.sleep(600)

    async def main():
        for seconds in (0.0, 0.01, 0.5):
            call = asyncio.ensure_future(for_ever.acall())
            await asyncio.sleep(seconds)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name.startswith("sojourn-aside"):
            thread.join()


def test_a_function_that_yields_is_looped_over(zygote):
    async def main():
        with pytest.raises(TypeError, match="yields"):
            await count.acall(3)

    asyncio.run(main())
