"""The sandbox for untrusted models: one call, `apply`, in a freshly forked worker.

After it, the process reads the model and the interpreter's own libraries and nothing else,
writes nothing, reaches no network, starts no program and no process, and touches no other
process. Nothing here can be undone, not even by the process itself.

Two protections are essential: Landlock (which files) and seccomp (which system calls). Without
one of them `apply` raises `SandboxError`, unless the policy says `best_effort`. Namespaces are
additional: what they close is closed by seccomp as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sojourn.errors import SandboxError
from sojourn.process.sandbox import landlock, libc, namespaces, quotas, seccomp

# Of /proc/self only what is needed: `environ` holds the user's secrets, `mem` is the code itself,
# and `maps` tells where everything is, which is half of taking it over.
# TensorFlow aborts when it cannot read its own `cmdline`.
_OF_ITSELF = ("cmdline", "stat", "statm", "status", "cgroup")
# What the C library, TensorFlow and XLA look up about the machine.
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"),
    *("/etc/ld.so.cache", "/etc/localtime"),
    *("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems"),
    *("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/osrelease"),
    *(f"/proc/self/{name}" for name in _OF_ITSELF),
    *("/sys/devices/system/cpu", "/sys/devices/system/node"),
    *("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max"),
)


def interpreter_paths() -> tuple[str, ...]:
    """Where this Python and its packages live, and what they need to know about the machine.

    Narrower than `sys.prefix`, which may be `/usr` or a folder that holds more than Python.
    """
    own = [os.path.dirname(os.__file__)]  # the standard library
    for prefix in (sys.prefix, sys.base_prefix, sys.base_exec_prefix):
        own += [os.path.join(prefix, "lib"), os.path.join(prefix, "lib64")]
    own += [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    here = os.path.dirname(os.path.abspath(__file__))
    own.append(os.path.dirname(os.path.dirname(here)))  # sojourn itself, if installed in place
    return tuple(dict.fromkeys((*own, *_SYSTEM)))


@dataclass(frozen=True, slots=True)
class Policy:
    """What the worker may read. Everything else is closed.

    `readable` is the model: plain files and folders, by paths without links. A link inside a
    folder that leads out of it is not followed: the model could otherwise name any file.
    """

    readable: tuple[str, ...] = ()
    libraries: tuple[str, ...] = field(default_factory=interpreter_paths)
    file_bytes: int | None = None  # the most that one memory file of its own may hold
    best_effort: bool = False  # apply what can be, and say in `Applied` what could not


@dataclass(frozen=True, slots=True)
class Applied:
    """What is in force. `missing` names what is not, and why."""

    landlock_abi: int = 0  # 0: the file system is not closed off
    seccomp: bool = False
    namespaces: bool = False
    missing: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether everything essential is in force: what is missing is additional."""
        return self.landlock_abi > 0 and self.seccomp

    def __str__(self) -> str:
        on = [f"landlock (version {self.landlock_abi})"] if self.landlock_abi else []
        on += ["seccomp"] if self.seccomp else []
        on += ["namespaces"] if self.namespaces else []
        text = "sandbox: " + (", ".join(on) or "nothing in force")
        return f"{text}; missing: {'; '.join(self.missing)}" if self.missing else text


def apply(policy: Policy) -> Applied:
    """Close this process off, for good. Call it once, right after the fork, before any thread.

    Limits, lifelines (`F_SETOWN`) and pidfds must be set up before: afterwards they are refused.
    """
    _require_one_thread()
    for path in policy.readable:
        try:
            os.close(landlock.open_without_links(path))
        except OSError as error:
            raise SandboxError(f"{path} cannot be made readable: {error.strerror}") from error
    missing: list[str] = []
    additional: list[str] = []

    def essential(protection: str, needs: str, act: Callable[[], object]) -> bool:
        try:
            act()
        except (OSError, ValueError) as error:
            message = f"{protection}: {needs} ({getattr(error, 'strerror', error)})"
            if not policy.best_effort:
                raise SandboxError(f"cannot be applied here: {message}") from error
            missing.append(message)
            return False
        return True

    has_own = True
    try:
        namespaces.isolate()
    except OSError as error:
        has_own = False
        additional.append(f"namespaces of its own (additional): not permitted ({error.strerror})")
    counts: list[bool] = []
    essential(
        "limits on files and cores",
        "setrlimit",
        lambda: counts.append(quotas.set_all(policy.file_bytes, has_own_users=has_own)),
    )
    if not any(counts):
        additional.append(
            "a limit on its threads (additional): needs a user namespace of its own, Linux 5.14, "
            "and a user other than root"
        )
    essential("no privileges", "prctl(PR_SET_NO_NEW_PRIVS)", libc.set_no_new_privs)
    version = landlock.abi()
    closed = essential(
        "closing off the file system",
        "needs Landlock, Linux 5.13 or newer with landlock among its security modules",
        partial(landlock.restrict, policy.readable, policy.libraries, version),
    )
    essential("dropping capabilities", "capset", libc.drop_capabilities)
    filtered = essential(
        "refusing system calls (exec, network, other processes)",
        "needs seccomp filters on x86-64 or arm64, CONFIG_SECCOMP_FILTER",
        _filter_system_calls,
    )
    return Applied(version if closed else 0, filtered, has_own, (*missing, *additional))


def prepare() -> None:
    """Make `apply` quicker in every process that is forked from this one from now on."""
    if os.uname().machine in seccomp.MACHINES:
        seccomp.prepare(os.uname().machine)


def unavailable() -> tuple[str, ...]:
    """Which essential protections this system lacks, without applying any. For diagnosis."""
    found = []
    if not landlock.abi():
        found.append("Landlock (Linux 5.13 or newer, landlock among its security modules)")
    if os.uname().machine not in seccomp.MACHINES:
        found.append(f"seccomp rules for {os.uname().machine} (x86-64 and arm64 have them)")
    elif not _has_seccomp():
        found.append("seccomp filters (CONFIG_SECCOMP_FILTER)")
    return tuple(found)


def _has_seccomp() -> bool:
    try:
        with open("/proc/self/status") as status:
            return any(line.startswith("Seccomp:") for line in status)
    except OSError:
        return False


def _require_one_thread() -> None:
    # Landlock and seccomp hold for the calling thread and for those it starts from then on.
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError as error:
        raise SandboxError("cannot count this process's threads: /proc is not there") from error
    if threads != 1:
        raise SandboxError(f"a sandbox must be applied before any thread: there are {threads}")


def _filter_system_calls() -> None:
    machine = os.uname().machine
    if machine not in seccomp.MACHINES or sys.maxsize < 2**32 or sys.byteorder != "little":
        raise OSError(0, f"no rules for {machine}")
    seccomp.install(machine, os.getpid())


__all__ = ["Applied", "Policy", "apply", "interpreter_paths", "prepare", "unavailable"]
