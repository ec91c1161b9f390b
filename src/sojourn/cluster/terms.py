"""The words between controller, agents and callers: plain values that Ray carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sojourn.cluster.wire.sharing import this_machine
from sojourn.errors import SojournError
from sojourn.pool.decisions.terms import CopyId


def needs_gpu(device: str) -> bool:
    """Whether this is a GPU and nothing else: "gpu", "gpu:1"."""
    return device.startswith("gpu")


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
    path: str = ""  # that all nodes see, or a URL
    parcel: str = ""  # or sent along: what its files are packed as
    pickled: bytes = b""  # or packed, with the code that builds it, by the caller
    options: dict[str, Any] = field(default_factory=dict)
    copies: int = 1
    pinned: bool = False
    bytes: int = 256 * 2**20
    device: str = "cpu"
    keep_seconds: float | None = (
        None  # after which an idle copy is closed; None: when room is needed
    )
    is_held: bool = False  # it is unregistered with the last caller that holds it
    warms_up: bool = False  # it is run once before callers get it
    stamp: str = ""  # tells files that were changed from those that were there before
    mark: str = field(default="", compare=False)  # of this registration, from the controller
    # The slots whose state is in the storage that all nodes see, for a controller that starts anew.
    parked: tuple[int, ...] = field(default=(), compare=False)


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
    machine: str = ""  # what its processes have in common
    local: str = ""  # the name of its Unix socket, for them
    gpus: int = 0

    def can_call(self, device: str) -> bool:
        """Whether a function that needs this device can run there."""
        return self.gpus > 0 or not needs_gpu(device)

    @property
    def local_name(self) -> str:
        """The Unix socket, for a caller on the same machine; nothing for others."""
        return self.local if self.machine and self.machine == this_machine() else ""


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
    parked: tuple[tuple[str, int], ...] = ()  # models and slots whose state it has kept
