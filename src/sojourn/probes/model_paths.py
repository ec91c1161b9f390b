"""Which file of a folder is the model. Whoever opens one and whoever inspects it ask here.

Two answers would let a folder show one model to those who look and load another.
"""

from __future__ import annotations

import os
import stat

HDF5 = b"\x89HDF\r\n\x1a\n"  # what such a file begins with
_LARGEST_NOTE = 1 << 20


def chosen_checkpoint(folder: str, ending: str) -> str | None:
    """The checkpoint of a folder, as a path without `ending`; `None` if there is no telling.

    It is the one that the file `checkpoint` names, or the last by name where that file names
    none of them, or the only one.
    """
    found = sorted(os.listdir(folder))
    prefixes = [name.removesuffix(ending) for name in found if name.endswith(ending)]
    if "checkpoint" in found and prefixes:
        named = _named_in(os.path.join(folder, "checkpoint"))
        return os.path.join(folder, named if named in prefixes else prefixes[-1])
    return os.path.join(folder, prefixes[0]) if len(prefixes) == 1 else None


def _named_in(path: str) -> str:
    """The latest checkpoint according to TensorFlow's note; its name alone, as folders move."""
    # Not blocking: what is called so may be a pipe into which nobody writes.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""  # a link to nowhere, or closed to us
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        note = os.read(descriptor, _LARGEST_NOTE).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    for line in note.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model_checkpoint_path":
            return os.path.basename(value.strip().strip('"'))
    return ""
