"""The messages of every gRPC service here, in a separate descriptor pool.

Each file is read when one of its messages is first used: `KSERVE.ModelInferRequest`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError as DecodeError

from sojourn.service.grpc.messages import reading

POOL = descriptor_pool.DescriptorPool()
_kinds: dict[str, int] = {}
_read: set[str] = set()


class File:
    """The messages of one `.proto` file, as attributes, and its services."""

    def __init__(self, name: str, *imports: str, instead: tuple[str, str] = ("", "")) -> None:
        self._name = name
        self._imports = imports
        self._instead = instead  # (old, new) text to replace: for a service under two names
        self._descriptor: Any = None

    @property
    def descriptor(self) -> Any:
        """The descriptor of the file; its imports are read first."""
        if self._descriptor is None:
            for name in (*self._imports, self._name):
                _add(name, self._instead)
            self._descriptor = POOL.FindFileByName(_known_as(self._name, self._instead))
        return self._descriptor

    def __getattr__(self, name: str) -> Any:
        """The message class of this name."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = self.descriptor.message_types_by_name.get(name)
        if found is None:
            raise AttributeError(f"{self._name}.proto has no message {name!r}")
        made = message_factory.GetMessageClass(found)
        setattr(self, name, made)
        return made


def _known_as(name: str, instead: tuple[str, str]) -> str:
    return f"{name}.proto" if not instead[0] else f"{name}_{instead[1]}.proto"


def _add(name: str, instead: tuple[str, str]) -> None:
    file_name = _known_as(name, instead)
    if file_name in _read:
        return
    text = Path(__file__).with_name(f"{name}.proto").read_text()
    if instead[0]:
        text = text.replace(*instead)
    file, kinds = reading.read(file_name, text, _kinds)
    POOL.Add(file)
    _kinds.update(kinds)
    _read.add(file_name)


KSERVE = File("kserve")
TENSORS = File("tensors")
TFSERVING = File("tfserving", "wellknown", "errors", "tensors")
HEALTH = File("health")
REFLECTION = File("reflection")
REFLECTION_ALPHA = File("reflection", instead=("v1", "v1alpha"))
