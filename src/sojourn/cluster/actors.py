"""The agent and the controller as Ray actors, each found by its name."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import ray

from sojourn.cluster.agent import Agent
from sojourn.cluster.controller import MEET_SECONDS, Controller
from sojourn.cluster.orders import Settings
from sojourn.cluster.terms import AgentFacts, AgentReport, Epoch, ModelSource
from sojourn.pool.decisions.terms import CopyId

NAMESPACE = "sojourn"
CONTROLLER = "controller"
_AGENT = "agent-"
# An agent that no controller contacts for this long ends. A controller that died is back in one
# second; one that starts may wait for other nodes for half of this.
_ALONE_SECONDS = 2 * MEET_SECONDS


class AgentActor:
    """An agent on the node where Ray placed it. Ray restarts it if it dies."""

    def __init__(self, node: Mapping[str, Any], settings: Settings) -> None:
        gpus = ray.get_gpu_ids()
        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray leaves it unset, which exposes all GPUs
        resources = node["Resources"]
        budget = settings.memory_bytes or int(resources.get("memory", 2**33))
        self._host = node["NodeManagerAddress"]
        name = f"{node.get('NodeName') or socket.gethostname()}/{node['NodeID'][:6]}"
        self._agent = Agent(
            node["NodeID"],
            name,
            budget,
            max(1, int(resources.get("CPU", 1))),
            len(gpus),
            settings.storage,
        )
        self._facts: AgentFacts | None = None
        self._heard_at = time.monotonic()

    async def start(self) -> AgentFacts:
        if self._facts is None:
            self._facts = await self._agent.start(self._host)
            self._heard_at = time.monotonic()  # the start may have taken longer than the limit
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self._facts

    async def _watch(self) -> None:
        """End the actor if no controller contacts it: nothing else would end it."""
        while time.monotonic() - self._heard_at < _ALONE_SECONDS:
            await asyncio.sleep(1.0)
        await self._agent.end()
        _end_this_actor()

    async def adopt(self, epoch: Epoch) -> Epoch:
        return self._agent.adopt(epoch)

    async def recall(self) -> dict[str, ModelSource]:
        return self._agent.recall()

    async def remember(
        self, epoch: Epoch, sources: dict[str, ModelSource | None], are_all: bool
    ) -> None:
        self._agent.remember(epoch, sources, are_all)

    async def open(
        self,
        epoch: Epoch,
        copy: CopyId,
        source: ModelSource,
        restores: bool,
        others: list[AgentFacts],
    ) -> int:
        return await self._agent.open(epoch, copy, source, restores, others)

    async def close(self, epoch: Epoch, copy: CopyId, parks: bool, evicts: bool) -> bool:
        return await self._agent.close(epoch, copy, parks, evicts)

    async def drop(self, epoch: Epoch, name: str, slots: int) -> None:
        await self._agent.drop(epoch, name, slots)

    async def set_routes(self, epoch: Epoch, plan: int, routes: dict[str, list[str]]) -> None:
        self._agent.set_routes(epoch, plan, routes)

    async def report(self) -> AgentReport:
        self._heard_at = time.monotonic()
        return self._agent.report()

    async def end(self, epoch: Epoch) -> None:
        await self._agent.end(epoch)


class RayNodes:
    """The nodes that Ray knows, with an agent on each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def alive(self) -> dict[str, Mapping[str, Any]]:
        """Return the live nodes that take part. A head started without processors does not."""
        nodes = (node for node in ray.nodes() if node["Alive"])
        return {node["NodeID"]: node for node in nodes if node["Resources"].get("CPU", 0) > 0}

    def agent(self, node: Mapping[str, Any]) -> Any:
        """Return the agent of this node; start it if none exists."""
        # By its label, which is a hard constraint: with a soft affinity it could land elsewhere.
        node_id = node["NodeID"]
        remote = ray.remote(AgentActor).options(
            name=_AGENT + node_id,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=self._gpus(node),
            label_selector={"ray.io/node-id": node_id},
            max_restarts=-1,
            max_concurrency=1000,
        )
        return remote.remote(node, self._settings)

    def _gpus(self, node: Mapping[str, Any]) -> int:
        there = int(node["Resources"].get("GPU", 0))
        return there if self._settings.gpus is None else min(there, self._settings.gpus)

    def forget(self, agent: Any) -> None:
        ray.kill(agent, no_restart=True)

    def end(self) -> None:
        """End the controller's actor: its last action."""
        _end_this_actor()

    def step_down(self) -> None:
        # Not by the actor handle: to Ray, the successor is the same actor.
        os._exit(1)


class ControllerActor(Controller):
    """The controller as a detached actor: it outlives the program that started it while others use
    it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(RayNodes(settings), settings)


def _end_this_actor() -> None:
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def controller(settings: Settings) -> Any:
    """Return the controller of this Ray cluster; start it if none exists."""
    remote = ray.remote(ControllerActor).options(
        name=CONTROLLER,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=-1,
        max_concurrency=1000,
    )
    return remote.remote(settings)
