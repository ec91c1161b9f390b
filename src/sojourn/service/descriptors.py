"""How many clients may be connected, given what the system lets one process have open.

Models, their files and their workers need descriptors too: clients get at most half of
them, all doors together, so that no number of clients keeps a model from being opened.
"""

from __future__ import annotations

import logging
import resource

MOST = 65536  # that are asked for; more would only cost those who look through all of them
_log = logging.getLogger("sojourn.service")


def connections(wished: int, doors: int = 1) -> int:
    """Of each door: as many as is wished, or as there are descriptors for; says so in the log."""
    limit = raise_limit()
    allowed = min(wished, limit // 2 // max(1, doors))
    if allowed < wished:
        _log.warning(
            "max_connections is %d, not %d: this process may have %d files open (ulimit -n)",
            allowed,
            wished,
            limit,
        )
    return allowed


def raise_limit() -> int:
    """Raise the limit for this process as far as anybody may; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST if soft == resource.RLIM_INFINITY else soft
