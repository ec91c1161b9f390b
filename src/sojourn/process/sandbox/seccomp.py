"""The system call filter: which calls the worker may make, and with which arguments.

`compile_filter` is pure: it makes the kernel's small program (classic BPF) from the tables in
`syscalls` and the rules below. `install` hands it over. Numbers are found by binary search, so
an unfiltered call costs a handful of comparisons; kernels since 5.11 remember even those.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sojourn.process.sandbox import libc
from sojourn.process.sandbox.syscalls import ALLOWED, CHECKED, REFUSED

# machine -> (column in the tables, the name by which the kernel knows the processor)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000

# Classic BPF: load a word, jump on it, return.
_LOAD, _AND, _JUMP, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
_AT_NUMBER, _AT_MACHINE, _AT_ARGUMENTS = 0, 4, 16

_NOBODY = 0x7FFFFFFF  # a process id that nobody has, and no other value in the program

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, value


@dataclass(frozen=True, slots=True)
class Masked:
    """Allow when these bits of an argument have this value."""

    argument: int
    mask: int
    value: int
    otherwise: int = errno.EPERM


@dataclass(frozen=True, slots=True)
class OneOf:
    """Allow when the argument (its lower half, which is all that an `int` has) is one of these."""

    argument: int
    values: tuple[int, ...]
    otherwise: int = errno.EPERM


@dataclass(frozen=True, slots=True)
class Null:
    """Allow when the argument is a null pointer."""

    argument: int
    otherwise: int = errno.EPERM


Rule = Masked | OneOf | Null

_THREAD = 0x00010000 | 0x00000100  # CLONE_THREAD, CLONE_VM
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Not among them: F_SETOWN and F_SETSIG, by which a descriptor can be made to signal others; and
# F_SETFL, by which one that the client holds too (a bell) could be made to block the client.
_FCNTL = (
    *(fcntl.F_DUPFD, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL),
    *(fcntl.F_GETLK, fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_GETOWN, fcntl.F_GETSIG),
    *(36, 37, 38),  # F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW
    *(1030, 1031, 1032, 1033, 1034),  # F_DUPFD_CLOEXEC, pipe sizes, seals of a memfd
)
# Is it a terminal, and how wide; bytes waiting; close on exec. Never TIOCSTI, nor FIONBIO, which
# is another F_SETFL.
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451, 0x802C542A)
# Names of threads and of mappings, and questions; nothing that changes who the process is.
_PRCTL = (2, 3, 15, 16, 21, 23, 39, 51, 0x53564D41)
_HUGE_PAGES = 0x0004  # MFD_HUGETLB: who reads such memory dies when the system has no page to give
_ARCH_PRCTL = (0x1021, 0x1022, 0x1023, 0x1024, 0x1025)  # asks for the AMX matrix registers


def rules(pid: int) -> dict[str, Rule]:
    """What the calls of `CHECKED` may be asked for, in the process with this id."""
    return {
        # Threads only. `clone3` hides its flags behind a pointer; without it, glibc uses `clone`.
        "clone": Masked(0, _THREAD | _NEW_NAMESPACES, _THREAD),
        "open": Masked(1, _WRITING, 0, errno.EACCES),
        "openat": Masked(2, _WRITING, 0, errno.EACCES),
        "fcntl": OneOf(1, _FCNTL),
        "ioctl": OneOf(1, _IOCTL),
        "prctl": OneOf(0, _PRCTL),
        "arch_prctl": OneOf(0, _ARCH_PRCTL),
        "memfd_create": Masked(1, _HUGE_PAGES, 0),
        "kill": OneOf(0, (pid,)),
        "tgkill": OneOf(0, (pid,)),
        "sched_setaffinity": OneOf(0, (0, pid)),
        "sendto": Null(4),  # no address: only where the socket is connected to
        "prlimit64": Null(2),  # ask for limits, never set them
    }


def _result(error: int | None) -> list[Instruction]:
    return [(_RETURN, 0, 0, _ALLOW if error is None else _ERRNO | error)]


def _code(rule: Rule) -> list[Instruction]:
    lower = _AT_ARGUMENTS + 8 * rule.argument
    code: list[Instruction] = [(_LOAD, 0, 0, lower)]
    if isinstance(rule, Masked):
        code += [(_AND, 0, 0, rule.mask), (_JUMP_EQUAL, 1, 0, rule.value)]
    elif isinstance(rule, OneOf):
        count = len(rule.values)
        code += [(_JUMP_EQUAL, count - i, 0, value) for i, value in enumerate(rule.values)]
    else:
        code += [(_JUMP_EQUAL, 0, 2, 0), (_LOAD, 0, 0, lower + 4), (_JUMP_EQUAL, 1, 0, 0)]
    return [*code, *_result(rule.otherwise), *_result(None)]


def _search(cases: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Code that finds the last case whose number is not above the one in the register."""
    if len(cases) == 1:
        return cases[0][1]
    middle = len(cases) // 2
    below, above = _search(cases[:middle]), _search(cases[middle:])
    first_above = cases[middle][0]
    if len(below) <= 255:
        return [(_JUMP_AT_LEAST, len(below), 0, first_above), *below, *above]
    # A conditional jump reaches 255 instructions; an unconditional one, any number.
    return [(_JUMP_AT_LEAST, 0, 1, first_above), (_JUMP, 0, 0, len(below)), *below, *above]


def compile_filter(machine: str, pid: int) -> list[Instruction]:
    """The whole filter for a processor of this kind and the process with this id."""
    column, identity = MACHINES[machine]
    unknown = _result(errno.ENOSYS)
    cases: dict[int, list[Instruction]] = {}
    checked = rules(pid)
    for table in (ALLOWED, REFUSED, CHECKED):
        for name, numbers in table.items():
            if (number := numbers[column]) is None:
                continue
            if table is CHECKED:
                cases[number] = _code(checked[name])
            else:
                cases[number] = _result(None if table is ALLOWED else errno.EPERM)
    return [
        (_LOAD, 0, 0, _AT_MACHINE),
        # A call made in the manner of another processor (32-bit) has numbers of its own.
        (_JUMP_EQUAL, 1, 0, identity),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
        *_search(list(_intervals(cases, unknown))),
    ]


def _intervals(
    cases: dict[int, list[Instruction]], unknown: list[Instruction]
) -> Iterable[tuple[int, list[Instruction]]]:
    """Cut the numbers from 0 on where the answer changes."""
    before: list[Instruction] | None = None
    for number in sorted({0, *cases, *(n + 1 for n in cases)}):
        code = cases.get(number, unknown)
        # Code that ends in a rule is never shared: its neighbour is another call.
        if code != before:
            yield number, code
        before = code


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


@functools.cache
def _for_anybody(machine: str) -> tuple[Instruction, ...]:
    return tuple(compile_filter(machine, _NOBODY))


def prepare(machine: str) -> None:
    """Do what takes longest of `install`, once for every process that is forked from this one."""
    _for_anybody(machine)


def finished(machine: str, pid: int) -> list[Instruction]:
    """The same as `compile_filter` makes, quickly where it was prepared."""
    return [
        (code, if_true, if_false, pid if value == _NOBODY else value)
        for code, if_true, if_false, value in _for_anybody(machine)
    ]


def install(machine: str, pid: int) -> None:
    """Put this process under the filter, for good. `NO_NEW_PRIVS` must be set."""
    code = finished(machine, pid)
    instructions = (_Instruction * len(code))(*(_Instruction(*line) for line in code))
    program = _Program(len(code), instructions)
    libc.set_seccomp_filter(ctypes.addressof(program))
