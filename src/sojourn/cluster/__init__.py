"""More than one machine: sojourn on Ray.

    import sojourn.cluster as cluster

    with cluster.connect() as everywhere:
        everywhere.register("resnet", "/models/resnet")
        with everywhere.lease("resnet", timeout=5) as session:
            session.run("probabilities", {"image": image})

`planner/` decides what is open where; `controller.py` has it carried out for those in `callers.py`
(`orders.py`) by an `agent.py` on each node (`leases.py`, `calls.py`, `files.py`, `storage.py`).
`handle.py`, `lease.py` and `links.py` are the side of the caller; `wire/` is what is said between
the two. `serving/` is a server on every node. `actors.py`, `connecting.py` and `serving/fronts.py`
alone know Ray.
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
    if name == "connect":  # with Ray, which takes a second to import
        from sojourn.cluster.connecting import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
