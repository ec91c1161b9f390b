"""Tools for tests: checks for leftovers and for reported transitions, and a pytest plugin."""

from sojourn.testing.leftovers import leftovers
from sojourn.testing.snapshots import Snapshot, take_snapshot
from sojourn.testing.transitions import Watch

__all__ = ["Snapshot", "Watch", "leftovers", "take_snapshot"]
