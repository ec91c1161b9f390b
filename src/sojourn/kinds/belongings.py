"""Which files belong to a model. The sandbox follows no link in them."""

from __future__ import annotations

import os
import re

from sojourn.errors import ModelError

# What a saver writes beside one another. Whatever else begins with the same name is not the model.
_OF_A_CHECKPOINT = re.compile(r"\.(meta|index|data-\d{5}-of-\d{5})")


def one_file(path: str) -> list[str]:
    """A file that the user has named; no other comes with it."""
    return [os.path.realpath(path)]


def whole_folder(path: str) -> list[str]:
    """A folder with everything in it."""
    # What lies beside the link is then readable, or anything: it may have come with the model.
    if os.path.islink(path):
        raise ModelError(
            f"{path} is a link to {os.path.realpath(path)}: an untrusted folder is opened by its "
            "own path"
        )
    return [os.path.realpath(path)]


def of_checkpoint(prefix: str) -> list[str]:
    """The files of one checkpoint, and none of its neighbours."""
    folder, name = os.path.split(prefix)
    folder = os.path.realpath(folder)
    return [
        os.path.join(folder, sibling)
        for sibling in sorted(os.listdir(folder))
        if sibling.startswith(name) and _OF_A_CHECKPOINT.fullmatch(sibling[len(name) :])
    ]


def plain_file(path: str, of: str) -> str:
    """A file beside the one that was named. Raises ModelError if it is a link or no file."""
    if not os.path.lexists(path):
        raise ModelError(f"{path}, which belongs to {of}, is not there")
    if os.path.islink(path) or not os.path.isfile(path):
        raise ModelError(f"{path} is not a regular file, and {of} is untrusted")
    return path
