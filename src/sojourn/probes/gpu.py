"""GPUs and the bytes that processes hold on them, as NVIDIA's driver counts them.

Asked in the client only: a process that has touched NVML or CUDA must not fork, and the zygote does
nothing else. Everything is keyed by the UUID of a device, because numbers change with the
environment. Needs the `gpu` extra for the bytes; without it, devices are still found.

Judged is what a process holds, never how much is free: others come and go meanwhile.
"""

from __future__ import annotations

import glob
import os
import sys
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

_POLL_SECONDS = 0.02
DRIVER_SIGNS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
_DRIVER_LISTING = "/proc/driver/nvidia/gpus/*/information"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. Bytes are None where NVML is not at hand."""

    uuid: str
    name: str
    total_bytes: int | None = None
    free_bytes: int | None = None


def found() -> tuple[Gpu, ...]:
    """The devices of this machine in the order of their bus addresses."""
    nvml = _nvml()
    if nvml is None:
        return _from_driver()
    gpus = []
    for handle in _handles(nvml):
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
            gpus.append(Gpu(_text(uuid), _text(name), memory.total, memory.free))
        except nvml.NVMLError:
            continue  # fallen off the bus, or not ours to see
    return tuple(gpus)


def held_by(pids: Collection[int]) -> dict[str, int]:
    """Bytes that these processes hold, by UUID; devices where they hold nothing are left out.

    A device that shows a process but not its bytes (as some drivers do for others) counts as zero
    and is left out: never claim bytes that were not measured.
    """
    held: dict[str, int] = {}
    nvml = _nvml()
    if nvml is None:
        return held
    for handle in _handles(nvml):
        try:
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError:
            continue
        count = sum(p.usedGpuMemory or 0 for p in running if p.pid in pids)
        if count:
            held[uuid] = count
    return held


def wait_until_back(pids: Collection[int], seconds: float = 5.0) -> Mapping[str, int]:
    """Wait until the driver shows nothing for these processes; what it still shows then."""
    until = time.monotonic() + seconds
    while True:
        left = held_by(pids)
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_POLL_SECONDS)


_lock = threading.Lock()
_initialised: tuple[int, Any] | None = None  # the process that did it, and the library or None


def _nvml() -> Any:
    """The library, initialised in this process; None where it or the driver is missing."""
    global _initialised
    with _lock:
        if _initialised is None or _initialised[0] != os.getpid():
            _initialised = (os.getpid(), _initialise())
        return _initialised[1]


def _initialise() -> Any:
    # Looking for the driver is much cheaper than importing the binding to be told so.
    if "pynvml" not in sys.modules and not any(map(os.path.exists, DRIVER_SIGNS)):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def forget() -> None:
    """Look for the library again at the next question; for tests that replace it."""
    global _initialised
    with _lock:
        _initialised = None


def _handles(nvml: Any) -> list[Any]:
    try:
        count = nvml.nvmlDeviceGetCount()
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    except nvml.NVMLError:
        return []  # the driver went away under us


def _text(value: str | bytes) -> str:
    # Older versions of the binding give bytes.
    return value.decode() if isinstance(value, bytes) else value


def _from_driver() -> tuple[Gpu, ...]:
    """What the kernel module lists, for those without the extra."""
    gpus = []
    for path in sorted(glob.glob(_DRIVER_LISTING)):
        fields: dict[str, str] = {}
        try:
            with open(path) as file:
                for line in file:
                    key, _, value = line.partition(":")
                    fields[key.strip()] = value.strip()
        except OSError:
            continue
        uuid = fields.get("GPU UUID", "")
        if uuid.startswith("GPU-") and "?" not in uuid:  # masked until it is opened
            gpus.append(Gpu(uuid, fields.get("Model", "GPU")))
    return tuple(gpus)
