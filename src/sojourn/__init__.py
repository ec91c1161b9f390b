"""TensorFlow sessions that leave nothing behind.

The layers, from the top: `cli`; `bench` and `demo`; `testing`; `cluster`; `service`; `compat` and
`audit`; `pool` and `functions`; `session`; `process`; `engines` and `transport`; `probes`; `events`
and `program`; `values` and `errors`. Each layer imports only from lower ones. Importing sojourn
loads no TensorFlow, starts no process and does no work; from then on, the source text of the user's
modules is kept as they are imported.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

from sojourn import errors, events, imported
from sojourn._version import __version__
from sojourn.errors import *  # noqa: F403 - the public errors, listed in errors.__all__
from sojourn.values import Footprint, Receipt, Residue, Signature, TensorSpec

imported.watch()  # before anybody's modules are: their files may change


def warm_up(*, wait: bool = False, spares: int | None = None) -> None:
    """Start the zygote ahead of the first session, so that opening it takes milliseconds.

    The zygote then runs until the program ends. Returns at once; with `wait`, returns when
    TensorFlow has been imported in the zygote.

    From now on, `spares` workers in which TensorFlow has already run are kept ready: the next
    session takes one, and another is made. They take about 20 MiB each until the program exits or
    `warm_up(spares=0)` ends them.
    """
    from sojourn.probes.platform import require_process_isolation

    require_process_isolation()
    from sojourn.process.zygote import zygote

    if spares is not None:
        from sojourn.session.sparing import keep_spares

        keep_spares(spares, wait=wait)
        if spares == 0:
            return
    zygote.remain()
    if wait:
        zygote.frameworks()
    else:
        zygote.start()


# These names are imported on first use: importing numpy alone takes longer than all the rest.
_loading = threading.RLock()
_MODULES = {"audit", "cluster", "compat"}
_NAMES = {
    "Pool": "sojourn.pool",
    "Rows": "sojourn.values.rows",
    "Server": "sojourn.service.server",
    "empty": "sojourn.transport.placed",
    "empty_like": "sojourn.transport.placed",
    **dict.fromkeys(("Keywords", "grid", "isolated"), "sojourn.functions"),
    **dict.fromkeys(
        ("Lease", "Session", "State", "aopen", "current", "metrics", "open"), "sojourn.session"
    ),
}

if TYPE_CHECKING:
    from sojourn import cluster as cluster
    from sojourn import compat as compat
    from sojourn.audit import audit as audit
    from sojourn.functions.isolated import isolated as isolated
    from sojourn.functions.items import Keywords as Keywords
    from sojourn.functions.items import grid as grid
    from sojourn.pool import Pool as Pool
    from sojourn.service.server import Server as Server
    from sojourn.session import Lease as Lease
    from sojourn.session import Session as Session
    from sojourn.session import State as State
    from sojourn.session import aopen as aopen
    from sojourn.session import current as current
    from sojourn.session import open as open
    from sojourn.session.metrics import metrics as metrics
    from sojourn.transport.placed import empty as empty
    from sojourn.transport.placed import empty_like as empty_like
    from sojourn.values.rows import Rows as Rows


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # One thread at a time: if two threads import packages that need each other, Python gives each
    # the other's half-initialised package rather than deadlock.
    with _loading:
        if name in _MODULES:
            return importlib.import_module(f"sojourn.{name}")
        found = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Footprint",
    "Keywords",
    "Lease",
    "Pool",
    "Receipt",
    "Residue",
    "Rows",
    "Server",
    "Session",
    "Signature",
    "State",
    "TensorSpec",
    "__version__",
    "aopen",
    "audit",
    "compat",
    "current",
    "empty",
    "empty_like",
    "errors",
    "events",
    "grid",
    "isolated",
    "metrics",
    "open",
    "warm_up",
    *errors.__all__,
]
