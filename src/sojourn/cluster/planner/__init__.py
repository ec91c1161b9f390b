"""Decide which model is open on which node. Pure: events in, orders out.

`terms.py` has the types, `books.py` the state and its indexes, `planner.py` the decisions. A
contract in `pyproject.toml` keeps threads, clocks, I/O and Ray out of all three.
"""

from sojourn.cluster.planner.planner import Planner
from sojourn.cluster.planner.terms import Close, Lost, Model, Node, Open, Order, Park, Rules

__all__ = [
    "Close",
    "Lost",
    "Model",
    "Node",
    "Open",
    "Order",
    "Park",
    "Planner",
    "Rules",
]
