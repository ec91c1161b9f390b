"""The requests of callers to an agent, and its replies. Arrays follow these structs as raw
bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from sojourn.values import Footprint, Receipt, TensorSpec

Spec = tuple[str, tuple[int, ...], int]  # dtype, shape, bytes
# An array that is not in its frame: its index, the sender's descriptor of its file, the file's
# inode, and the array's offset in the file.
Place = tuple[int, int, int, int]


class Request(msgspec.Struct, tag=True, array_like=True):
    """Base of all requests."""


class LeaseModel(Request):
    """Lease this model. The lease expires unless it is renewed every `keep_seconds`."""

    model: str
    timeout: float | None
    keep_seconds: float
    holder: str


class AskStep(Request):
    """Ask whether this step can safely be run twice, without running it.

    `fetches`: a name, several names, or None for all outputs.
    """

    lease: int
    fetches: str | list[str] | None
    feeds: list[str]


class RunStep(AskStep):
    """Run one step with a lease."""

    timeout: float | None


class KeepLeases(Request):
    """Renew these leases."""

    leases: list[int]
    keep_seconds: float


class GiveBack(Request):
    """Return a lease."""

    lease: int


class Operate(Request):
    """Run another operation of a session: reset, save, restore, footprint."""

    lease: int
    what: str
    path: str = ""


class CallFunction(Request):
    """Call an isolated function once, in a worker of its own. The arrays are its parcel."""

    call: int
    name: str
    label: str
    timeout: float | None
    memory: int | str | None
    device: str
    seed: int | None
    deterministic: bool


class SendParcel(Request):
    """Send a part of a parcel, in the array. Without an array: ask how much of it is stored."""

    digest: str
    offset: int
    total: int


class FetchParcel(Request):
    """Fetch the part of a parcel that begins at this offset."""

    digest: str
    offset: int


class Opened(Request):
    """Report that the files of this answer were opened. No reply."""

    number: int


class Released(Request):
    """Report that the results in these files, given by inode, are no longer used. No reply."""

    files: list[int]


class CutOff(Request):
    """End the worker of a function that this caller called."""

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
    """Base of all replies."""


class Leased(Reply):
    """The lease, with the facts of its session."""

    lease: int
    session: str
    pid: int
    engine: str
    node: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    mark: str  # id of its model's registration


class Moved(Reply):
    """The model is not open here but on these nodes, as of this plan; none: ask the controller."""

    plan: tuple[int, int]  # epoch, and the number of the plan in it
    nodes: list[str]


class Results(Reply):
    """The results of a step, in the order of its fetches; `present` is False for an operation's
    None."""

    names: list[str] | None
    is_single: bool
    present: list[bool]


class StepFacts(Reply):
    can_repeat: bool


class Kept(Reply):
    """The leases that have ended meanwhile, with the reasons."""

    ended: dict[int, str]


class Done(Reply):
    """The operation is done; its result, if any."""

    footprint: Footprint | None = None


class Returned(Reply):
    """The outcome of a function: its kind and texts. The arrays are its parcel."""

    kind: str
    message: str
    traceback: str
    receipt: Receipt | None
    node: str


class ParcelFacts(Reply):
    """How many bytes of a parcel are stored, or its total size; -1: the parcel is not here."""

    have: int


class Failed(Reply):
    """An error, in the form that also crosses from a worker."""

    error: bytes
    receipt: Receipt | None = None


AnyReply = Leased | Moved | Results | StepFacts | Kept | Done | Returned | ParcelFacts | Failed


class Head(msgspec.Struct, array_like=True):
    """The part of a frame before its arrays."""

    number: int  # of the request, repeated in its answer
    body: Any
    arrays: list[Spec]
    places: list[Place] = []
