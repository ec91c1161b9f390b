"""Many sessions under one memory budget: leases, reuse, idle time, eviction, parking.

`pool.py` is the handle that users hold, `driver.py` what it asks for, `books.py` the one lock and
the state below it, `hands.py` what takes time, `keeper.py` the one standing thread. `scheduler.py`
decides; it and all it uses are pure and have no threads, clocks or I/O in them.
"""

from sojourn.pool.decisions.status import CopyStatus, PoolStatus
from sojourn.pool.leasing import PoolLease
from sojourn.pool.pool import Pool

__all__ = ["CopyStatus", "Pool", "PoolLease", "PoolStatus"]
