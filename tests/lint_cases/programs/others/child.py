"""Closes what its parent opened."""

from agents import ClosedByItsChild


class Child(ClosedByItsChild):
    def close(self):
        self.kept.close()
