"""An agent with one model, for a test that runs it in a network namespace of its own.

Prints its facts, then the number of leases whenever it changes; ends when its standard input ends.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import sys

import models
from sojourn.cluster.agent import Agent
from sojourn.cluster.terms import Epoch, ModelSource
from sojourn.pool.decisions.terms import CopyId
from sojourn.session.opening import Blueprint


async def main(host: str) -> None:
    agent = Agent("far", "far", 2**30, 1, 0, None)
    facts = await agent.start(host)
    packed = pickle.dumps(Blueprint(models.sleeper))
    source = ModelSource("sleep", pickled=packed)
    await agent.open(Epoch(1, "test"), CopyId("sleep", 0, 1), source, False)
    print(base64.b64encode(pickle.dumps(facts)).decode(), flush=True)
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    before = 0
    while not over.done():
        count = agent._leases.count("sleep")
        if count != before:
            print(count, flush=True)
            before = count
        await asyncio.sleep(0.05)
    await agent.end()


asyncio.run(main(sys.argv[1]))
