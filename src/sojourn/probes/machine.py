"""Collect the facts that `doctor.py` judges. Kernel features are tried, never looked up."""

from __future__ import annotations

import ctypes.util
import fcntl
import importlib.metadata
import importlib.util
import os
import platform
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

from sojourn.probes import gpu, memory, processes
from sojourn.probes.doctor import BUILDS, Facts

_CGROUPS = "/sys/fs/cgroup"


def collect(tried: Mapping[str, Callable[[], None]]) -> Facts:
    """Collect all facts. `tried` are further features: functions that raise if one fails."""
    gpus = gpu.found()
    has_driver = any(map(os.path.exists, gpu.DRIVER_SIGNS))
    limit, is_cgroup, used, kills = _memory()
    features = {"memfd": _memfd, "eventfd": _eventfd, "pidfd": _pidfd, "smaps": _smaps, **tried}
    return Facts(
        python=sys.version_info[:3],
        is_64_bit=sys.maxsize > 2**32,
        platform=sys.platform,
        builds=_builds(),
        tensorflow_is_whole=_tensorflow_is_whole(),
        has_driver=has_driver,
        has_nvml=any(one.total_bytes is not None for one in gpus),
        gpus=gpus,
        has_cudnn=_has_cudnn() if gpus else True,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        features={name: _failure(trial) for name, trial in features.items()},
        max_descriptors=_limit(resource.RLIMIT_NOFILE),
        max_processes=_limit(resource.RLIMIT_NPROC),
        max_file_bytes=_limit(resource.RLIMIT_FSIZE),
        memory_limit=limit,
        is_limited_by_cgroup=is_cgroup,
        memory_used=used,
        kills_for_memory=kills,
        stale=tuple((one.pid, one.name) for one in stale_processes()),
    )


def stale_processes() -> list[processes.Found]:
    """Return the workers and zygotes whose client has ended."""
    return [
        one
        for one in processes.of_client()
        if not _is_client_of(one.client_pid, one.pid) and not _is_in_a_container(one.pid)
    ]


def _is_in_a_container(pid: int) -> bool:
    """Whether a process is in an inner pid namespace, to which its client's pid then belongs."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            return any(line.startswith(b"NSpid:") and len(line.split()) > 2 for line in status)
    except OSError:
        return False


def _is_client_of(client_pid: int, pid: int) -> bool:
    client, ours = _began(client_pid), _began(pid)
    # A process that is younger than its worker is not the client: it has reused the client's pid.
    return ours is None or (client is not None and client <= ours)


def _began(pid: int) -> int | None:
    """Return when a process was started, in kernel ticks; None if it has ended."""
    try:
        fields = processes.stat_fields(pid)
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _builds() -> dict[str, str]:
    found = {}
    for name in BUILDS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _tensorflow_is_whole() -> bool:
    """Whether TensorFlow's folder has the files that an import begins with. Imports nothing."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    return os.path.exists(os.path.join(os.path.dirname(spec.origin), "python", "__init__.py"))


def _has_cudnn() -> bool:
    names = (dist.metadata["Name"] or "" for dist in importlib.metadata.distributions())
    if any(name.lower().startswith("nvidia-cudnn") for name in names):
        return True
    return ctypes.util.find_library("cudnn") is not None


def _failure(trial: Callable[[], None]) -> str:
    try:
        trial()
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def _memfd() -> None:
    fd = os.memfd_create("sojourn-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 4096)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        try:
            os.ftruncate(fd, 0)
        except PermissionError:
            return
        raise OSError("a sealed segment could be shrunk")
    finally:
        os.close(fd)


def _eventfd() -> None:
    fd = os.eventfd(0, os.EFD_CLOEXEC)  # type: ignore[attr-defined,unused-ignore]
    try:
        os.eventfd_write(fd, 1)  # type: ignore[attr-defined,unused-ignore]
        if os.eventfd_read(fd) != 1:  # type: ignore[attr-defined,unused-ignore]
            raise OSError("it does not return what was written")
    finally:
        os.close(fd)


def _pidfd() -> None:
    """Kill a child process by its descriptor, and check that its end is reported."""
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL
    )
    try:
        fd = os.pidfd_open(child.pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(5000):
                raise OSError("the end of a process is not reported")
        finally:
            os.close(fd)
    finally:
        child.kill()
        child.wait()


def _smaps() -> None:
    if memory.of_process() is None:
        raise OSError("/proc/self/smaps_rollup cannot be read, so bytes cannot be measured")


def _limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _memory() -> tuple[int | None, bool, int, int]:
    """Return the memory limit, whether it is a cgroup's, the bytes in use, and the OOM kills."""
    total = _from_table("/proc/meminfo", "MemTotal:")
    available = _from_table("/proc/meminfo", "MemAvailable:")
    tightest = None
    kills = 0
    for folder in _cgroup_folders():
        limit = _number(f"{folder}/memory.max") or _number(f"{folder}/memory.limit_in_bytes")
        if limit is None or (total is not None and limit >= total * 1024):
            continue
        used = _number(f"{folder}/memory.current") or _number(f"{folder}/memory.usage_in_bytes")
        if tightest is None or limit < tightest[0]:
            tightest = (limit, used or 0)
            kills = _from_table(f"{folder}/memory.events", "oom_kill") or 0
    if tightest is not None:
        return tightest[0], True, tightest[1], kills
    if total is None:
        return None, False, 0, 0
    return total * 1024, False, (total - (available or 0)) * 1024, 0


def _cgroup_folders() -> Iterator[str]:
    """Yield the folders of our cgroup and of its parents, innermost first."""
    try:
        with open("/proc/self/cgroup") as lines:
            entries = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError:
        return
    for _, controllers, path in entries:
        if controllers and "memory" not in controllers.split(","):
            continue
        root = f"{_CGROUPS}/memory" if controllers else _CGROUPS
        while True:
            yield root + path.rstrip("/")
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None  # the file is missing, or contains "max"


def _from_table(path: str, name: str) -> int | None:
    try:
        with open(path) as lines:
            for line in lines:
                key, *rest = line.split()
                if key == name:
                    return int(rest[0])
    except (OSError, ValueError, IndexError):
        pass
    return None


def describe() -> str:
    """Return a short description of the system."""
    return f"{platform.system()} {platform.release()} on {platform.machine()}"
