"""Many sessions under one memory budget: leases, reuse, idle time, eviction, parking.

`pool.py` is the handle that users hold, `driver.py` performs what `scheduler.py` decides,
`keeper.py` is the one standing thread. All other modules are pure and have no threads, clocks
or I/O in them.
"""

from sojourn.pool.leasing import PoolLease
from sojourn.pool.pool import Pool
from sojourn.pool.status import CopyStatus, PoolStatus

__all__ = ["CopyStatus", "Pool", "PoolLease", "PoolStatus"]
