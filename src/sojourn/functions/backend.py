"""The worker of a call: ended politely when the call is over, at once when it was given up."""

from __future__ import annotations

from sojourn.session.backend import Account
from sojourn.session.isolation import WorkerBackend
from sojourn.values import Footprint


class CallBackend(WorkerBackend):
    """A worker process that shows its last output when it has ended."""

    ends_abruptly = False

    def end(self, held: Footprint) -> Account:
        if self.ends_abruptly:
            self.kill()  # no grace: somebody who pressed Ctrl-C is waiting
        account = super().end(held)
        try:
            self.worker.output.show()
        except (OSError, ValueError):
            pass  # the caller's own streams are closed
        return account
