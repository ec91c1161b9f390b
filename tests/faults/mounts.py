"""Mounts that only the program under test sees, for disks that are full, read-only or broken.

Where no such mounts can be made the program ends with the reason, and the test fails.
"""

from __future__ import annotations

import os
from unittest import mock

from faults.programs import run_to_end

_MOUNTS = """
import ctypes, errno
NEWNS, NEWUSER, PRIVATE = 0x00020000, 0x10000000, 0x44000
READ_ONLY, REMOUNT, BIND = 0x1, 0x20, 0x1000
libc = ctypes.CDLL(None, use_errno=True)

def done(status, what):
    if status != 0:
        raise SystemExit(f"{what}: {os.strerror(ctypes.get_errno())}")

def mount(source, target, kind, flags=0, data=""):
    words = (source, target, kind)
    done(libc.mount(*(os.fsencode(w) for w in words), flags, data.encode()), f"mount {words}")

uid, gid = os.getuid(), os.getgid()
if libc.unshare(NEWNS) != 0:
    done(libc.unshare(NEWNS | NEWUSER), "a namespace of mounts")
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
mount("none", "/", "none", PRIVATE)
"""


def run_with_mounts(code: str) -> list[str]:
    """Run a program that may `mount`; the lines it told."""
    # Who is not root needs a namespace of users as well. It can be had only by a program with one
    # thread, and numpy would start others.
    with mock.patch.dict(os.environ, OPENBLAS_NUM_THREADS="1"):
        return run_to_end(_MOUNTS + code)
