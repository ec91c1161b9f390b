"""What callers ask an agent, and what it answers. Arrays follow these structs as raw bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from sojourn.values import Footprint, Receipt, TensorSpec

Spec = tuple[str, tuple[int, ...], int]  # dtype, shape, bytes
# An array that is not in its frame: which one it is, the sender's descriptor of its file, the
# inode of that, and where in it the array begins.
Place = tuple[int, int, int, int]


class Request(msgspec.Struct, tag=True, array_like=True):
    """Any question."""


class LeaseModel(Request):
    """A lease of this model, which ends unless it is renewed every `keep_seconds`."""

    model: str
    timeout: float | None
    keep_seconds: float
    holder: str


class AskStep(Request):
    """Whether this step can be run twice without harm. It is not run.

    `fetches`: a name, some, or None for all outputs.
    """

    lease: int
    fetches: str | list[str] | None
    feeds: list[str]


class RunStep(AskStep):
    """One step with a lease."""

    timeout: float | None


class KeepLeases(Request):
    """These leases are still wanted."""

    leases: list[int]
    keep_seconds: float


class GiveBack(Request):
    """A lease is no longer wanted."""

    lease: int


class Operate(Request):
    """Something else that a session can do: reset, save, restore, footprint."""

    lease: int
    what: str
    path: str = ""


class CallFunction(Request):
    """An isolated function, once, in a worker of its own. The arrays are its parcel."""

    call: int
    name: str
    label: str
    timeout: float | None
    memory: int | str | None
    device: str
    seed: int | None
    deterministic: bool


class SendParcel(Request):
    """A part of a model's files, as the array. Without one: how much of it is there."""

    digest: str
    offset: int
    total: int


class FetchParcel(Request):
    """The part of a model's files that begins here."""

    digest: str
    offset: int


class Opened(Request):
    """The files of this answer were opened. There is no reply."""

    number: int


class Released(Request):
    """Results that lay in these files, by their inodes, are gone. There is no reply."""

    files: list[int]


class CutOff(Request):
    """End the worker of a function that this caller has called."""

    call: int


AnyRequest = (
    LeaseModel
    | RunStep
    | AskStep
    | KeepLeases
    | GiveBack
    | Operate
    | CallFunction
    | SendParcel
    | FetchParcel
    | Opened
    | Released
    | CutOff
)


class Reply(msgspec.Struct, tag=True, array_like=True):
    """Any answer."""


class Leased(Reply):
    """The lease, and what it leases."""

    lease: int
    session: str
    pid: int
    engine: str
    node: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    mark: str  # which registration of its model


class Moved(Reply):
    """The model is not open here. It is on these nodes, as of this plan; none: ask for it."""

    plan: tuple[int, int]  # epoch, and the number of the plan in it
    nodes: list[str]


class Results(Reply):
    """What a step gave, in the order of its fetches; None for an operation."""

    names: list[str] | None
    is_single: bool
    present: list[bool]


class StepFacts(Reply):
    can_repeat: bool


class Kept(Reply):
    """Which of the leases have ended meanwhile, and why."""

    ended: dict[int, str]


class Done(Reply):
    """It was done; the result, if there is one."""

    footprint: Footprint | None = None


class Returned(Reply):
    """The outcome of a function: its kind and texts. The arrays are its parcel."""

    kind: str
    message: str
    traceback: str
    receipt: Receipt | None
    node: str


class ParcelFacts(Reply):
    """How much of a parcel is there, or how long it is; -1: it is not there."""

    have: int


class Failed(Reply):
    """An error, as it crosses from a worker as well."""

    error: bytes
    receipt: Receipt | None = None


AnyReply = Leased | Moved | Results | StepFacts | Kept | Done | Returned | ParcelFacts | Failed


class Head(msgspec.Struct, array_like=True):
    """The part of a frame before its arrays."""

    number: int  # of the question, repeated by its answer
    body: Any
    arrays: list[Spec]
    places: list[Place] = []
