"""Many sessions under one memory budget: leases, reuse, idle time, eviction, parking, versions.

`pool.py` is the handle that users hold, `driver.py` what it asks for, `books.py` the one owner of
the state and its lock, `hands.py` what takes time, `keeper.py` the one standing thread.
`decisions/` decides, and has no threads, clocks or I/O in it.
"""

from sojourn.pool.decisions.status import CopyStatus, ModelStatus, PoolStatus
from sojourn.pool.leasing import PoolLease
from sojourn.pool.options import ModelOptions
from sojourn.pool.pool import Pool

__all__ = ["CopyStatus", "ModelOptions", "ModelStatus", "Pool", "PoolLease", "PoolStatus"]
