"""What can be chosen about a model when it is opened depends on its kind. Loads no framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sojourn.errors import ModelError

_GRAPH = ("inputs", "outputs", "initializer")
_CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "savedmodel": ("a SavedModel", ("signature", "tags")),
    "keras": ("a Keras file", ("inputs",)),
    "packed": ("a Keras model or tf.function", ("inputs",)),
    "frozen": ("a frozen graph", _GRAPH),
    "graph": ("a graph", _GRAPH),
    "metagraph": ("a checkpoint with its meta graph", ("signature", "inputs", "outputs")),
    "function": ("a plain function", ("outputs",)),
    "built": ("a builder that returns inputs and outputs", ("initializer",)),
    "loaded": ("a loaded SavedModel", ("signature", "inputs")),
}
_ALL = ("signature", "tags", *_GRAPH)


def refuse_what_is_ignored(kind: str, given: Mapping[str, Any]) -> None:
    """Raise ModelError if something is given that a model of this kind would not look at."""
    if kind not in _CHOICES:
        return  # a builder: what it returns will tell
    what, takes = _CHOICES[kind]
    for name in _ALL:
        if given.get(name) is not None and name not in takes:
            raise ModelError(f"{name}= is not for {what}, which takes {' and '.join(takes)} only")
