"""The surroundings of a worker: its client's current environment, folder and import path.

All of it is sent as bytes, because a variable or a folder may have a name that is not valid text,
and sessions must open there, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import msgspec

from sojourn.process.log_records import LogSettings

# The only variables that an untrusted model's worker receives; any other may hold a secret.
_HARMLESS = frozenset({"LANG", "LANGUAGE", "TZ", "GLIBC_TUNABLES", "NUMEXPR_MAX_THREADS"})
_HARMLESS_BEGINNINGS = (
    "LC_", "TF_", "XLA_", "KERAS_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "MALLOC_",
    "ONEDNN_", "DNNL_", "CUDA_VISIBLE_",
)  # fmt: skip
# A process that has already used its framework does not notice a change of these variables.
_READ_ONCE = (
    *_HARMLESS_BEGINNINGS, "CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "TPU_", "GRPC_",
    "AUTOGRAPH_", "NUMEXPR_",
)  # fmt: skip


class Surroundings(msgspec.Struct, frozen=True):
    """The client's environment, import path, folder and log settings, for a worker to adopt."""

    environment: dict[bytes, bytes]
    path: list[bytes]
    folder: bytes | None  # None if it has been removed
    logging: LogSettings | None = None  # None: log records are not sent to the client

    @classmethod
    def here(cls, more: Mapping[str, str], secretive: bool = False) -> Surroundings:
        """Return those of this process, with the variables of `more` added. With `secretive`,
        variables that could hold a secret are left out."""
        environment = dict(os.environb)
        if secretive:
            environment = {n: v for n, v in environment.items() if _is_harmless(os.fsdecode(n))}
        environment.update((os.fsencode(name), os.fsencode(more[name])) for name in more)
        logs = None if secretive else LogSettings.here()
        return cls(environment, list(map(os.fsencode, import_path())), _folder(), logs)

    def settings(self) -> dict[bytes, bytes]:
        """Return the variables that frameworks and their libraries read only at first use."""
        return {n: v for n, v in self.environment.items() if os.fsdecode(n).startswith(_READ_ONCE)}

    def take_on(self) -> None:
        """Replace what this process inherited from the zygote by the client's current state."""
        for name in os.environb.keys() - self.environment.keys():
            del os.environb[name]
        for name, value in self.environment.items():
            if os.environb.get(name) != value:
                os.environb[name] = value
        sys.path[:] = [os.fsdecode(entry) for entry in self.path]
        if self.folder is not None:
            try:
                os.chdir(self.folder)
            except OSError:
                pass  # the client's folder has been removed; the client sends absolute paths
        if self.logging is not None:
            self.logging.take_on()


def import_path() -> list[str]:
    """Return `sys.path` without entries that are not text, which Python ignores as well."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def _is_harmless(name: str) -> bool:
    return name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS)


def _folder() -> bytes | None:
    try:
        return way_into(os.getcwdb())
    except OSError:
        return None


def way_into(folder: bytes) -> bytes:
    """Return a path by which another process can enter the current folder of this one. Its own
    path may be too long, or lead through a folder that we cannot enter."""
    return folder if os.access(folder, os.X_OK) else b"/proc/%d/cwd" % os.getpid()
