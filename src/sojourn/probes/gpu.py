"""GPUs and the bytes that processes hold on them, as NVIDIA's driver counts them.

Only the client calls this module: a process that has used NVML or CUDA must not fork, and forking
is all that the zygote does. Results are keyed by device UUID, because device numbers change with
the environment. Bytes require the `gpu` extra; without it, devices are still found.

What a process holds is measured, never how much is free, because other processes change that.
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
    """One device. Bytes are None if NVML is not available."""

    uuid: str
    name: str
    total_bytes: int | None = None
    free_bytes: int | None = None


def found() -> tuple[Gpu, ...]:
    """Return the devices of this machine in the order of their bus addresses."""
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
            continue  # the device has fallen off the bus, or we may not access it
    return tuple(gpus)


def held_by(pids: Collection[int]) -> dict[str, int]:
    """Return the bytes that these processes hold, by UUID, without devices where they hold none.

    If a driver lists a process but not its bytes (as some do for other users' processes), they
    count as zero: never report bytes that were not measured.
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
    """Wait until the driver shows no bytes for these processes; return what it still shows."""
    until = time.monotonic() + seconds
    while True:
        left = held_by(pids)
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_POLL_SECONDS)


_lock = threading.Lock()
_initialised: tuple[int, Any] | None = None  # pid of the initialising process; library or None


def _nvml() -> Any:
    """Return the library, initialised in this process; None if it or the driver is missing."""
    global _initialised
    with _lock:
        if _initialised is None or _initialised[0] != os.getpid():
            _initialised = (os.getpid(), _initialise())
        return _initialised[1]


def _initialise() -> Any:
    # Checking for the driver's files is much cheaper than importing the binding to learn the same.
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
    """Make the next call look for the library again; for tests that replace it."""
    global _initialised
    with _lock:
        _initialised = None


def _handles(nvml: Any) -> list[Any]:
    try:
        count = nvml.nvmlDeviceGetCount()
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    except nvml.NVMLError:
        return []  # the driver was unloaded meanwhile


def _text(value: str | bytes) -> str:
    # Older versions of the binding return bytes.
    return value.decode() if isinstance(value, bytes) else value


def _from_driver() -> tuple[Gpu, ...]:
    """Return the devices that the kernel module lists, for installations without the extra."""
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
        if uuid.startswith("GPU-") and "?" not in uuid:  # masked until the device is opened
            gpus.append(Gpu(uuid, fields.get("Model", "GPU")))
    return tuple(gpus)
