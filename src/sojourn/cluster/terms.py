"""The words between controller, agents and callers: plain values that Ray carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sojourn.errors import SojournError
from sojourn.pool.decisions.terms import CopyId


class Epoch(NamedTuple):
    """Which controller speaks. A later one has a higher number; two never have the same."""

    number: int
    owner: str


class StaleEpoch(SojournError):
    """A controller that was replaced gave an order. It is refused, and the controller ends."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A registered model: where its files are, or what builds it, and the pool's options."""

    name: str
    path: str = ""  # that all nodes see
    pickled: bytes = b""  # or packed, with the code that builds it, by the caller
    options: dict[str, Any] = field(default_factory=dict)
    copies: int = 1
    pinned: bool = False
    bytes: int = 256 * 2**20
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """An agent: where its data plane listens, and what its node has."""

    node_id: str
    node: str  # for people
    address: tuple[str, int]
    token: bytes
    incarnation: str
    budget_bytes: int
    processors: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CopyReport:
    """One copy as its agent sees it."""

    copy: CopyId
    is_open: bool
    bytes: int
    holders: int
    changed: bool
    runs: int


@dataclass(frozen=True, slots=True)
class AgentReport:
    """An agent at one moment."""

    incarnation: str
    copies: tuple[CopyReport, ...]
    charged_bytes: int
    calls: int  # functions under way
