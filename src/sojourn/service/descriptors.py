"""Limit the number of connected clients by the number of files that the process may open.

Models, their files and their workers need descriptors too: clients get at most half of the
descriptors, over all listeners, so that no number of clients keeps a model from being opened.
"""

from __future__ import annotations

import logging
import resource

MOST = 65536  # highest limit requested; more would only slow down code that scans all descriptors
_log = logging.getLogger("sojourn.service")


def connections(wished: int, doors: int = 1) -> int:
    """Return the connections for each listener: as many as wished, or fewer, with a warning, if
    there are not enough descriptors."""
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
    """Raise the soft limit of this process as far as its hard limit allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST if soft == resource.RLIM_INFINITY else soft
