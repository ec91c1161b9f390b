"""A stand-in with the interface of NVIDIA's library: two devices, and processes that hold bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

GIB = 2**30


@dataclass
class Device:
    """One device as the driver would report it."""

    uuid: str
    name: str = "NVIDIA A100"
    total: int = 40 * GIB
    free: int = 30 * GIB
    processes: dict[int, int | None] = field(default_factory=dict)
    is_lost: bool = False


@dataclass
class Amount:
    """nvmlMemory_t."""

    total: int
    free: int
    used: int


@dataclass
class Process:
    """nvmlProcessInfo_t."""

    pid: int
    usedGpuMemory: int | None


class StandIn(ModuleType):
    """Stands for the module `pynvml`. Bytes stay for `held_for` readings after the process ends."""

    class NVMLError(Exception):
        """The base class of the library's errors."""

    def __init__(self, *devices: Device) -> None:
        super().__init__("pynvml")
        self.devices = devices
        self.initialised = 0
        self.readings = 0

    def nvmlInit(self) -> None:
        self.initialised += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        return self.devices[index]

    def nvmlDeviceGetUUID(self, handle: Device) -> str:
        if handle.is_lost:
            raise self.NVMLError("GPU is lost")
        return handle.uuid

    def nvmlDeviceGetName(self, handle: Device) -> bytes:
        return handle.name.encode()  # older bindings return bytes

    def nvmlDeviceGetMemoryInfo(self, handle: Device) -> Amount:
        return Amount(handle.total, handle.free, handle.total - handle.free)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Device) -> list[Any]:
        self.readings += 1
        return [Process(pid, used) for pid, used in handle.processes.items()]
