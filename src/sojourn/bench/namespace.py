"""A private network namespace, in which only this benchmark can reach the servers it starts."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1

_private = False


def enter() -> bool:
    """Move to an empty network with a loopback. Returns False if the system does not allow it.

    Must be called before any thread is started.
    """
    global _private
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    if libc.unshare(flags) != 0:
        return False
    _private = _bring_up_loopback()
    return _private


def is_private() -> bool:
    """Whether `enter` has succeeded."""
    return _private


def _bring_up_loopback() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        try:
            reply = fcntl.ioctl(sock, _SIOCGIFFLAGS, request)
            flags = struct.unpack("16sh14x", reply)[1] | _IFF_UP
            fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))
        except OSError:
            return False
    return True
