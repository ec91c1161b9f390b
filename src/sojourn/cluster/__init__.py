"""More than one machine: sojourn on Ray.

import sojourn.cluster as cluster

with cluster.connect() as everywhere:
        everywhere.register("resnet", "/models/resnet")
        with everywhere.lease("resnet", timeout=5) as session:
            session.run("probabilities", {"image": image})

`planner/` decides which model is open on which node; `controller.py` serves the callers
(`callers.py`) and carries out the plan (`orders.py`) through an `agent.py` on each node
(`leases.py`, `calls.py`, `files.py`, `storage.py`). `handle.py`, `lease.py` and `links.py` are the
caller's side; `wire/` is the protocol between callers and agents. `serving/` is a server on every
node. Only `actors.py`, `connecting.py` and `serving/fronts.py` know Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sojourn.cluster.handle import Cluster
from sojourn.cluster.lease import RemoteLease
from sojourn.cluster.links import NodeLost

if TYPE_CHECKING:
    from sojourn.cluster.connecting import connect as connect

__all__ = ["Cluster", "NodeLost", "RemoteLease", "connect"]


def __getattr__(name: str) -> Any:
    if name == "connect":  # imports Ray, which takes a second
        from sojourn.cluster.connecting import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
