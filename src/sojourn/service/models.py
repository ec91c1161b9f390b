"""The models of a server, by name: which versions of each exist, and which one a request gets.

Nothing is opened or closed here: this module only records what others have done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Mapping

from sojourn.service import versions
from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.inference import ModelRef
from sojourn.service.rules import ModelRules
from sojourn.service.served import Served, VersionState


class Model:
    """One name: its rules, and every version of it that is or was in service."""

    def __init__(self, name: str, rules: ModelRules) -> None:
        self.name = name
        self.rules = rules
        self.labels: Mapping[str, int] = rules.labels  # label to the version that requests get
        self.known: dict[int, Served] = {}
        self.there: Mapping[int, str] = {}  # the versions found at the last look
        self.failures: Counter[int] = Counter()  # temporary ones in a row, by version
        self.lock = asyncio.Lock()  # one operation at a time
        self.latest: Served | None = None
        self.is_out = False  # unloaded by request, and not loaded since
        self.is_wanted = True  # its files exist, or the configuration names it

    @property
    def is_pools(self) -> bool:
        """Whether the model was registered in the pool directly, not by this server."""
        return not self.rules.path

    def available(self) -> dict[int, Served]:
        return {v: s for v, s in self.known.items() if s.state is VersionState.AVAILABLE}

    def is_available(self, latest: Hashable) -> bool:
        """Whether this registration is that of the latest version, in service."""
        served = self.latest
        return (
            served is not None
            and served.registration == latest
            and served.state is VersionState.AVAILABLE
        )

    def find(self, ref: ModelRef) -> Served | None:
        """Return the version that a request gets, if it is in service."""
        if ref.version is None and ref.label is None:
            return self.latest
        version = versions.pick(self.available(), self.labels, ref.version, ref.label)
        return None if version is None else self.known[version]

    def was_unloaded(self, version: int) -> bool:
        """Whether this version was unloaded by request."""
        served = self.known.get(version)
        return served is not None and served.is_out

    def has_failed(self, version: int) -> bool:
        """Whether this version could not be brought into service."""
        served = self.known.get(version)
        return served is not None and served.state is VersionState.END and bool(served.error)

    def settle(self) -> None:
        """Recompute, after a change, which versions requests by name and by label get."""
        serving = self.available()
        self.latest = max(serving.values(), key=lambda s: s.version, default=None)
        self.labels = versions.moved(self.labels, self.rules.labels, serving)

    def follow(self, rules: ModelRules) -> None:
        """Apply these rules from now on."""
        self.rules, self.is_wanted = rules, True
        self.settle()


def not_found(ref: ModelRef, model: Model | None, is_started: bool) -> Refused:
    """Return the refusal of a request for a model or version not in service. Before the server has
    started, the model may still be on its way."""
    missing = f"Servable not found for request: {ref}"
    if model is not None and not model.known and not is_started:
        return Refused(Status.UNAVAILABLE, f"{ref.name} is being loaded", 1.0)
    if model is None or not model.known:
        return Refused(Status.NOT_FOUND, missing)
    if ref.label is not None and ref.label not in model.labels:
        # Like TensorFlow Serving, so that clients can distinguish it from a missing version.
        return invalid(f"Unrecognized servable version label: {ref.label[:100]}")
    version = ref.version if ref.label is None else model.labels[ref.label]
    served = model.known.get(max(model.known) if version is None else version)
    if served is None:
        return Refused(Status.NOT_FOUND, missing)
    if served.state in (VersionState.START, VersionState.LOADING):
        return Refused(Status.UNAVAILABLE, f"{served} is being loaded", 1.0)
    if served.state is VersionState.UNLOADING:
        return Refused(Status.UNAVAILABLE, f"{served} is being unloaded", 1.0)
    if version is None and model.is_out:
        return Refused(Status.NOT_FOUND, f"{missing}; it was unloaded by request")
    if served.error:
        words = f"{served} cannot be loaded: {served.troubles()}"
        return Refused(Status.UNAVAILABLE, words, served.seconds_to_retry() or None)
    return Refused(Status.NOT_FOUND, f"{missing}; {served.left_because}")
