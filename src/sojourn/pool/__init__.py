"""Many sessions under one memory budget: leases, reuse, idle time, eviction, parking, versions.

`pool.py` is the handle that users hold. It calls `driver.py`. `books.py` alone owns the state and
its lock, `hands.py` does the slow work, and `keeper.py` is the one long-lived thread.
`decisions/` makes the decisions, without threads, clocks or I/O.
"""

from sojourn.pool.decisions.status import CopyStatus, ModelStatus, PoolStatus
from sojourn.pool.leasing import PoolLease
from sojourn.pool.options import ModelOptions
from sojourn.pool.pool import Pool

__all__ = ["CopyStatus", "ModelOptions", "ModelStatus", "Pool", "PoolLease", "PoolStatus"]
