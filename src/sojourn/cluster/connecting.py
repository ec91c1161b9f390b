"""`sojourn.cluster.connect`: join a Ray cluster and start agents on its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray

from sojourn.cluster import actors
from sojourn.cluster.control import Control
from sojourn.cluster.handle import Cluster
from sojourn.cluster.orders import Settings
from sojourn.errors import PoolTimeout, SessionClosed
from sojourn.values import arguments

_AGAIN_SECONDS = 0.1
_LOOK_SECONDS = 30.0


def connect(
    address: str | None = "auto",
    *,
    memory: int | str | None = None,
    storage: str | None = None,
    gpus: int | None = None,
    **ray_options: Any,
) -> Cluster:
    """Connect to every node of the Ray cluster at this address, including nodes that join later.

    `memory` limits what all sessions on each node may hold together; by default, the memory that
    Ray reports for the node. `storage` is a URL that all nodes can reach and fsspec supports: the
    variables of evicted sessions are kept there. Without it they stay on their node. `gpus` is how
    many GPUs of each node to request from Ray; by default, all. The first program that connects
    decides these settings. An existing connection to Ray is used as it is; otherwise the remaining
    options are passed to `ray.init`.
    """
    limit = None if memory is None else arguments.memory("memory", memory)
    if gpus is not None:
        arguments.whole("gpus", gpus, 0)
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(address=address, **{"log_to_driver": False, **ray_options})
    try:
        return joined(Settings(limit, storage, gpus), ray.shutdown if is_ours else _nothing)
    except BaseException:
        if is_ours:
            ray.shutdown()
        raise


def joined(settings: Settings, leave: Callable[[], None] | None = None) -> Cluster:
    """Do the same as `connect` in a program that is already connected to Ray."""
    caller = _Caller(actors.controller(settings), settings)
    return Cluster(Control(caller.call, leave or _nothing))


class _Caller:
    """Calls the controller. While Ray restarts it, calls wait."""

    def __init__(self, handle: Any, settings: Settings) -> None:
        self._handle = handle
        self._settings = settings

    def call(self, method: str, *given: Any, timeout: float | None) -> Any:
        deadline = None if timeout is None else time.monotonic() + timeout + 1.0
        while True:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            if not ray.is_initialized():  # otherwise Ray would start a new cluster
                raise SessionClosed("Ray was shut down, and the connection to the cluster with it")
            try:
                return ray.get(getattr(self._handle, method).remote(*given), timeout=left)
            except ray.exceptions.GetTimeoutError:
                raise PoolTimeout(f"the controller did not answer within {timeout:g} s") from None
            except ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, ConnectionError):
                    raise error.cause from None
            except (ray.exceptions.RayActorError, ray.exceptions.ActorUnavailableError):
                if method == "detach" or (left is not None and left <= _AGAIN_SECONDS):
                    raise
            time.sleep(_AGAIN_SECONDS)
            if method != "detach":
                self._handle = actors.controller(self._settings)


def _nothing() -> None:
    pass


def look(address: str | None = "auto", **ray_options: Any) -> dict[str, Any] | None:
    """Return nodes, budgets and copies of the cluster at this address; None if no program is
    connected.

    Nothing is started.
    """
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(address=address, **{"log_to_driver": False, **ray_options})
    try:
        handle = ray.get_actor(actors.CONTROLLER, actors.NAMESPACE)
        found: dict[str, Any] = ray.get(handle.status.remote(), timeout=_LOOK_SECONDS)
        return found
    except ValueError:
        return None
    finally:
        if is_ours:
            ray.shutdown()
