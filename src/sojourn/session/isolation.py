"""The engine in a worker of its own. Imported only where processes can be isolated."""

from __future__ import annotations

from sojourn.process.worker import Worker
from sojourn.session.backend import Account
from sojourn.values import Footprint, Residue


class WorkerBackend(Worker):
    """A worker process."""

    def end(self, held: Footprint) -> Account:  # type: ignore[override]
        ending = super().end()
        if ending.left:
            return Account(0, Residue(processes=ending.left, host_bytes=held.host_bytes))
        # It has been reaped, so the kernel has taken its private memory back; what it shared
        # with us goes with the mappings, which nobody else has.
        return Account(held.host_bytes, Residue())
