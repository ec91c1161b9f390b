"""A cluster without Ray: agents and a controller on one event loop of this process.

The test does Ray's work (starting, restarting, noticing that a node is dead); everything else is
the real code, including the data plane over TCP.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sojourn.cluster.agent import Agent
from sojourn.cluster.control import Control
from sojourn.cluster.controller import Controller
from sojourn.cluster.handle import Cluster
from sojourn.cluster.orders import Settings

GiB = 2**30


class TaskError(Exception):
    """Stands for the error that Ray raises when an actor has raised one."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Method:
    def __init__(self, actor: _Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *given: Any) -> Any:
        return asyncio.ensure_future(self._call(*given))

    async def _call(self, *given: Any) -> Any:
        if self._actor.is_dead:
            raise ConnectionError("the actor died")
        try:
            found = getattr(self._actor.agent, self._name)(*given)
            return await found if asyncio.iscoroutine(found) else found
        except Exception as error:
            raise TaskError(error) from error


class _Actor:
    """An agent with the calling convention of Ray's actors."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.is_dead = False
        self.facts: Any = None

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, "started" if name == "start" else name)


class Nodes:
    """Stands for the part of Ray that the controller uses."""

    def __init__(self, settings: Settings, names: tuple[str, ...], memory: int) -> None:
        self.settings, self.memory = settings, memory
        self.names = list(names)
        self.actors: dict[str, _Actor] = {}
        self.gpus: dict[str, int] = {}  # by the name of the node
        self.has_ended = threading.Event()
        self.has_stepped_down = threading.Event()

    def alive(self) -> dict[str, Mapping[str, Any]]:
        return {name: {"NodeID": name} for name in self.names}

    def agent(self, node: Mapping[str, Any]) -> _Actor:
        name = node["NodeID"]
        actor = self.actors.get(name)
        if actor is None or actor.is_dead:
            agent = Agent(name, name, self.memory, 2, self.gpus.get(name, 0), self.settings.storage)
            actor = self.actors[name] = _Actor(agent)

            async def started() -> Any:
                if actor.facts is None:
                    actor.facts = await agent.start("127.0.0.1")
                return actor.facts

            agent.started = started  # type: ignore[attr-defined]
        return actor

    def forget(self, actor: _Actor) -> None:
        actor.is_dead = True

    def end(self) -> None:
        self.has_ended.set()

    def step_down(self) -> None:
        self.has_stepped_down.set()


class StandIn:
    """The event loop, the nodes and the controller."""

    def __init__(self, *names: str, storage: str | None = None, memory: int = GiB) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="stand-in")
        self._thread.start()
        self.settings = Settings(storage=storage, client_seconds=3.0)
        self.nodes = Nodes(self.settings, names, memory)
        self._controllers: list[Controller] = []
        self.controller = self.new_controller()

    def new_controller(self) -> Controller:
        async def make() -> Controller:
            return Controller(self.nodes, self.settings)

        self.controller = self.do(make())
        self._controllers.append(self.controller)
        return self.controller

    def do(self, work: Any, timeout: float | None = 60.0) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def connect(self) -> Cluster:
        def call(method: str, *given: Any, timeout: float | None) -> Any:
            limit = None if timeout is None else timeout + 1.0  # as with Ray
            return self.do(getattr(self.controller, method)(*given), limit)

        return Cluster(Control(call, lambda: None))

    def kill(self, name: str) -> None:
        """Remove a node and close its connections; end what it leaves in this process."""
        actor = self.nodes.actors[name]
        actor.is_dead = True
        if name in self.nodes.names:
            self.nodes.names.remove(name)
        self.do(actor.agent.end())

    def evict(self, name: str) -> None:
        """Have the only copy of a model leave before any report has said that it has changed."""

        async def order() -> None:
            planner = self.controller._planner
            copies = list(planner.books.entries[name].copies.values())
            self.controller._perform(planner._evict([one.id for one in copies], time.monotonic()))

        self.do(order())

    def stop_controller(self) -> None:
        """Cancel the controller's tasks at once; the agents keep running."""
        self._cancel(self.controller)

    def _cancel(self, controller: Controller) -> None:
        tasks = list(controller._tasks)

        async def cancel() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.do(cancel())

    def close(self) -> None:
        for controller in self._controllers:
            self._cancel(controller)
        for actor in self.nodes.actors.values():
            self.do(actor.agent.end())
        self.do(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        # Drop what would end with the processes of real actors. A test holds this object until its
        # leaks are measured, and each actor holds models with the code of all modules: megabytes.
        del self.controller, self._controllers
        self.nodes.actors.clear()


@contextmanager
def stand_in(*names: str, **options: Any) -> Iterator[StandIn]:
    cluster = StandIn(*names, **options)
    try:
        yield cluster
    finally:
        cluster.close()


def copies_of(everywhere: Cluster, model: str) -> list[str]:
    """Return the nodes that have this model open."""
    return [
        node["id"]
        for node in everywhere.status()["nodes"]
        for copy in node["copies"]
        if copy["model"] == model and copy["state"] == "open"
    ]
