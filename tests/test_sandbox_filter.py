"""The filter of system calls itself, for both processors, by running its program here."""

from __future__ import annotations

import errno
import fcntl
import functools
import os

import pytest

from sojourn.process.sandbox import seccomp, syscalls


@functools.cache
def compiled(machine: str) -> list[seccomp.Instruction]:
    return seccomp.compile_filter(machine, pid=4242)


def decide(machine: str, number: int, arguments: tuple[int, ...] = (), other: int = 0) -> int:
    """What the kernel would answer: 0 for yes, an error number, or -1 for the end."""
    identity = other or seccomp.MACHINES[machine][1]
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    words = {0: number, 4: identity}
    for i, value in enumerate(padded):
        words[16 + 8 * i], words[20 + 8 * i] = value & 0xFFFFFFFF, value >> 32
    program = compiled(machine)
    at = register = 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0x20:
            register = words[value]
        elif code == 0x54:
            register &= value
        elif code == 0x05:
            at += value
        elif code in (0x15, 0x35):
            holds = register == value if code == 0x15 else register >= value
            at += if_true if holds else if_false
        else:
            assert code == 0x06
            if value == 0x80000000:
                return -1
            return 0 if value == 0x7FFF0000 else value & 0xFFFF


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_decides_every_number_as_the_tables_say(machine: str) -> None:
    column, _ = seccomp.MACHINES[machine]
    verdicts = dict.fromkeys(range(470), errno.ENOSYS)
    verdicts |= {n[column]: 0 for n in syscalls.ALLOWED.values() if n[column] is not None}
    verdicts |= {n[column]: errno.EPERM for n in syscalls.REFUSED.values() if n[column] is not None}
    for numbers in syscalls.CHECKED.values():
        verdicts.pop(numbers[column], None)
    assert {number: decide(machine, number) for number in verdicts} == verdicts
    assert decide(machine, 0, other=0x40000003) == -1  # 32-bit


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_filter_that_was_prepared_is_the_same(machine: str) -> None:
    seccomp.prepare(machine)
    assert seccomp.finished(machine, 4242) == compiled(machine)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_no_call_is_in_two_tables(machine: str) -> None:
    column, _ = seccomp.MACHINES[machine]
    tables = (syscalls.ALLOWED, syscalls.REFUSED, syscalls.CHECKED)
    numbers = [n[column] for table in tables for n in table.values() if n[column] is not None]
    assert len(numbers) == len(set(numbers))
    assert set(seccomp.rules(1)) == set(syscalls.CHECKED)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("name", "arguments", "verdict"),
    [
        ("clone", (0x3D0F00,), 0),  # what glibc asks for a thread
        ("clone", (0x1200011,), errno.EPERM),  # what it asks for a fork
        ("openat", (0, 0, os.O_RDONLY | os.O_CLOEXEC), 0),
        ("openat", (0, 0, os.O_WRONLY), errno.EACCES),
        ("openat", (0, 0, os.O_RDONLY | os.O_CREAT), errno.EACCES),
        ("fcntl", (0, 1033), 0),
        ("fcntl", (0, 8), errno.EPERM),
        ("fcntl", (0, fcntl.F_SETFL), errno.EPERM),
        ("ioctl", (0, 0x5401), 0),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x5421), errno.EPERM),
        ("memfd_create", (1 << 40, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), 0),
        ("memfd_create", (1 << 40, os.MFD_HUGETLB | os.MFD_ALLOW_SEALING), errno.EPERM),
        ("prctl", (15,), 0),
        ("prctl", (4,), errno.EPERM),
        ("tgkill", (4242,), 0),
        ("tgkill", (4243,), errno.EPERM),
        ("kill", (0xFFFFFFFF,), errno.EPERM),
        ("sched_setaffinity", (0,), 0),
        ("sendto", (3, 0, 0, 0, 0), 0),
        ("sendto", (3, 0, 0, 0, 1), errno.EPERM),
        ("sendto", (3, 0, 0, 0, 1 << 32), errno.EPERM),
        ("prlimit64", (0, 0, 0, 1 << 40), 0),
        ("prlimit64", (0, 0, 1 << 40), errno.EPERM),
    ],
)
def test_arguments_are_looked_at(
    machine: str, name: str, arguments: tuple[int, ...], verdict: int
) -> None:
    number = syscalls.CHECKED[name][seccomp.MACHINES[machine][0]]
    assert number is not None
    assert decide(machine, number, arguments) == verdict
