"""The files that belong to a model. The sandbox follows no link in them."""

from __future__ import annotations

import os
import re

from sojourn.errors import ModelError

# The endings of the files that a saver writes. Other files with the same prefix do not belong to
# the model.
_OF_A_CHECKPOINT = re.compile(r"\.(meta|index|data-\d{5}-of-\d{5})")


def one_file(path: str) -> list[str]:
    """Return the file that the user has named, which is the whole model."""
    return [os.path.realpath(path)]


def whole_folder(path: str) -> list[str]:
    """Return a folder, with everything in it."""
    # A link that came with the model could make any other folder readable.
    if os.path.islink(path):
        raise ModelError(
            f"{path} is a link to {os.path.realpath(path)}: an untrusted folder is opened by its "
            "own path"
        )
    return [os.path.realpath(path)]


def of_checkpoint(prefix: str) -> list[str]:
    """Return the files of one checkpoint, and of no other checkpoint in the folder."""
    folder, name = os.path.split(prefix)
    folder = os.path.realpath(folder)
    return [
        os.path.join(folder, sibling)
        for sibling in sorted(os.listdir(folder))
        if sibling.startswith(name) and _OF_A_CHECKPOINT.fullmatch(sibling[len(name) :])
    ]


def plain_file(path: str, of: str) -> str:
    """Check a file that belongs to an untrusted model. Raises ModelError if it is a link or no
    regular file."""
    if not os.path.lexists(path):
        raise ModelError(f"{path}, which belongs to {of}, is not there")
    if os.path.islink(path) or not os.path.isfile(path):
        raise ModelError(f"{path} is not a regular file, and {of} is untrusted")
    return path
