"""The messages between controller, agents and callers: plain values that Ray transfers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sojourn.cluster.wire.sharing import this_machine
from sojourn.errors import SojournError
from sojourn.pool.decisions.terms import CopyId


def needs_gpu(device: str) -> bool:
    """Whether the device can only be a GPU: "gpu", "gpu:1"."""
    return device.startswith("gpu")


class Epoch(NamedTuple):
    """The identity of a controller. A later one has a higher number; no two are equal."""

    number: int
    owner: str


class StaleEpoch(SojournError):
    """A replaced controller gave an order. The order is refused, and that controller ends."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A registered model: where its files are, or the code that builds it, and the pool's
    options."""

    name: str
    path: str = ""  # readable on all nodes, or a URL
    parcel: str = ""  # or the checksum of the parcel that was sent
    pickled: bytes = b""  # or the code that builds it, pickled by the caller
    options: dict[str, Any] = field(default_factory=dict)
    copies: int = 1
    pinned: bool = False
    bytes: int = 256 * 2**20
    device: str = "cpu"
    keep_seconds: float | None = (
        None  # after which an idle copy is closed; None: when room is needed
    )
    is_held: bool = False  # unregistered with its last holder
    warms_up: bool = False  # run once before callers get it
    stamp: str = ""  # distinguishes changed files from earlier ones
    mark: str = field(default="", compare=False)  # id of this registration, set by the controller
    # The slots whose state is in shared storage, for recovery by a new controller.
    parked: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """An agent: where its data plane listens, and the resources of its node."""

    node_id: str
    node: str  # for people
    address: tuple[str, int]
    token: bytes
    incarnation: str
    budget_bytes: int
    processors: int
    devices: tuple[str, ...]
    machine: str = ""  # id that its processes share
    local: str = ""  # the name of its Unix socket, for local callers
    gpus: int = 0

    def can_call(self, device: str) -> bool:
        """Whether a function that needs this device can run on the node."""
        return self.gpus > 0 or not needs_gpu(device)

    @property
    def local_name(self) -> str:
        """The Unix socket's name for callers on the same machine; "" for others."""
        return self.local if self.machine and self.machine == this_machine() else ""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """One copy as its agent reports it."""

    copy: CopyId
    is_open: bool
    bytes: int
    holders: int
    changed: bool
    runs: int


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The state of an agent at one moment."""

    incarnation: str
    copies: tuple[CopyReport, ...]
    charged_bytes: int
    calls: int  # functions under way
    parked: tuple[tuple[str, int], ...] = ()  # models and slots whose state it has parked
