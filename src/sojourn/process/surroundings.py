"""What a worker sees of the world: the environment, folder and import path of its client now.

All of it travels as bytes. A variable or a folder may have a name that is not valid text, and
sessions must open there, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import msgspec

from sojourn.process.log_records import LogSettings

# All that a stranger's model is told; anything else in the environment may be a key to something.
_HARMLESS = frozenset({"LANG", "LANGUAGE", "TZ", "GLIBC_TUNABLES", "NUMEXPR_MAX_THREADS"})
_HARMLESS_BEGINNINGS = (
    "LC_", "TF_", "XLA_", "KERAS_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "MALLOC_",
    "ONEDNN_", "DNNL_", "CUDA_VISIBLE_",
)  # fmt: skip
# Of these, a process that has used its framework already does not see a change.
_READ_ONCE = (
    *_HARMLESS_BEGINNINGS, "CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "TPU_", "GRPC_",
    "AUTOGRAPH_", "NUMEXPR_",
)  # fmt: skip


class Surroundings(msgspec.Struct, frozen=True):
    """What the client sees, for a worker to take on."""

    environment: dict[bytes, bytes]
    path: list[bytes]
    folder: bytes | None  # None if it has been removed
    logging: LogSettings | None = None  # None: what it logs is not passed on

    @classmethod
    def here(cls, more: Mapping[str, str], secretive: bool = False) -> Surroundings:
        """Those of this process, with some more variables. Secretive ones have no variables that
        could be secret."""
        environment = dict(os.environb)
        if secretive:
            environment = {n: v for n, v in environment.items() if _is_harmless(os.fsdecode(n))}
        environment.update((os.fsencode(name), os.fsencode(more[name])) for name in more)
        logs = None if secretive else LogSettings.here()
        return cls(environment, list(map(os.fsencode, import_path())), _folder(), logs)

    def settings(self) -> dict[bytes, bytes]:
        """The variables that frameworks and their libraries read once, when they are first used."""
        return {n: v for n, v in self.environment.items() if os.fsdecode(n).startswith(_READ_ONCE)}

    def take_on(self) -> None:
        """See the world as the client sees it now, not as the zygote saw it when it started."""
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
                pass  # the client's folder has been removed; paths are made absolute by the client
        if self.logging is not None:
            self.logging.take_on()


def import_path() -> list[str]:
    """Where this process imports from. What is not text there, Python ignores as well."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def _is_harmless(name: str) -> bool:
    return name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS)


def _folder() -> bytes | None:
    try:
        return way_into(os.getcwdb())
    except OSError:
        return None


def way_into(folder: bytes) -> bytes:
    """How another process gets into the current folder of this one. Its name may be too long, or
    lead through a folder that is closed to us."""
    return folder if os.access(folder, os.X_OK) else b"/proc/%d/cwd" % os.getpid()
