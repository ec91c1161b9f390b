"""For tests: what is left behind, and a pytest plugin that looks after every test."""

from sojourn.testing.leftovers import Snapshot, leftovers, take_snapshot

__all__ = ["Snapshot", "leftovers", "take_snapshot"]
