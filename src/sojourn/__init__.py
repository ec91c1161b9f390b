"""TensorFlow sessions that leave nothing behind.

The layers, from the top: `cli`; `compat` and `audit`; `pool`; `session`; `process`; `engines` and
`transport`; `probes`; `events`, `values`, `errors`. Imports go down only. Importing sojourn loads
no TensorFlow, starts no process and does no work.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sojourn import errors, events
from sojourn._version import __version__
from sojourn.errors import *  # noqa: F403 - the public errors, listed in errors.__all__
from sojourn.functions import isolated
from sojourn.session import Lease, Session, State, current, metrics, open
from sojourn.values import Footprint, Receipt, Residue, Signature, TensorSpec


def warm_up(*, wait: bool = False) -> None:
    """Start the zygote ahead of the first session, so that opening it takes milliseconds.

    Returns at once; with `wait`, when TensorFlow has been imported there.
    """
    from sojourn.probes.platform import require_process_isolation

    require_process_isolation()
    from sojourn.process.zygote import zygote

    if wait:
        zygote.frameworks()
    else:
        zygote.start()


# Loaded when first asked for.
_LAZY = {"audit": "sojourn.audit", "compat": "sojourn.compat", "Pool": "sojourn.pool:Pool"}

if TYPE_CHECKING:
    from sojourn import compat as compat
    from sojourn.audit import audit as audit
    from sojourn.pool import Pool as Pool


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, _, attribute = _LAZY[name].partition(":")
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Footprint",
    "Lease",
    "Pool",
    "Receipt",
    "Residue",
    "Session",
    "Signature",
    "State",
    "TensorSpec",
    "__version__",
    "audit",
    "compat",
    "current",
    "errors",
    "events",
    "isolated",
    "metrics",
    "open",
    "warm_up",
    *errors.__all__,
]
