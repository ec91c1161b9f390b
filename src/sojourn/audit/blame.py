"""Finds the user's line in a stack: skips frames of TensorFlow, Python and sojourn.

The line to show is the innermost one of the user's own code: the user has to close a session that
a library opens for them. Installed packages count as libraries, unless nothing else is on the
stack: a program that is itself installed still gets its lines named.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

from sojourn.values import Place
from sojourn.values.places import NOWHERE, at

_SOJOURN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
    | {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}
)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "tensorflow_estimator", "tf_slim"}
# The callers of this file started the program and are not part of it.
_PROGRAM = _SOJOURN + "program.py"
_DEEPEST = 24

OWN, PYTHON, FRAMEWORK, LIBRARY, USER = range(5)


class Blame(NamedTuple):
    """The user's line, the calls that led to it, and the library in between, if any."""

    place: Place
    stack: tuple[Place, ...]
    library: str


@lru_cache(maxsize=4096)
def kind_of(file: str) -> int:
    """The owner of a file's code: OWN, PYTHON, FRAMEWORK, LIBRARY or USER."""
    if file.startswith(_SOJOURN):
        return OWN
    if file.startswith("<frozen "):
        return PYTHON
    for marker in _INSTALLED:
        if marker in file:
            return FRAMEWORK if package_of(file) in _FRAMEWORKS else LIBRARY
    return PYTHON if file.startswith(_STANDARD) else USER


@lru_cache(maxsize=4096)
def package_of(file: str) -> str:
    """The installed package that a file belongs to, or an empty string."""
    for marker in _INSTALLED:
        _, found, after = file.rpartition(marker)
        if found:
            return after.partition(os.sep)[0].removesuffix(".py")
    return ""


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """`frame` and its callers up to the start of the program, innermost first."""
    while frame is not None and frame.f_code.co_filename != _PROGRAM:
        yield frame
        frame = frame.f_back


def place_of(frame: FrameType) -> Place:
    """The line that a frame is executing."""
    return at(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name)


def blame(frame: FrameType | None) -> Blame:
    """The user's line behind `frame`."""
    seen = [(place_of(f), kind_of(f.f_code.co_filename)) for f in frames(frame)]
    return blame_places([place for place, _ in seen], [kind for _, kind in seen])


def blame_places(places: list[Place], kinds: list[int] | None = None) -> Blame:
    """Like `blame`, for a stack given as places, innermost first."""
    start = next((n for n, place in enumerate(places) if place.file == _PROGRAM), len(places))
    places = places[:start]
    kinds = kinds or [kind_of(place.file) for place in places]
    wanted = next((k for k in (USER, LIBRARY) if k in kinds), None)
    if wanted is None:
        return Blame(places[0] if places else NOWHERE, (), "")
    inner = kinds.index(wanted)
    outer = len(kinds) - 1 - kinds[::-1].index(wanted)
    # Calls further out belong to the code that started the program: pytest, a server, a notebook.
    stack = [p for p, k in zip(places, kinds[: outer + 1], strict=False) if k in (USER, LIBRARY)]
    # The session's own module is not "a library in between".
    between = [
        p
        for p, k in zip(places[:inner], kinds, strict=False)
        if k in (FRAMEWORK, LIBRARY) and not p.file.endswith("client/session.py")
    ]
    library = package_of(between[0].file) if between else ""
    return Blame(places[inner], tuple(reversed(stack[:_DEEPEST])), library)
