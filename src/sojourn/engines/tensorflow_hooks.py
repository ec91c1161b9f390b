"""What TensorFlow needs of a process. Imports TensorFlow only where it is loaded already."""

from __future__ import annotations

from sojourn.engines.distrust import refuse_custom_ops as distrust
from sojourn.engines.tensorflow_errors import limit_reached
from sojourn.engines.tensorflow_errors import rebuild as revive
from sojourn.engines.tensorflow_memory import bound_tensors as limit_memory


def prepare_forks() -> None:
    """Workers end without ceremony: nothing may wait for the exit of the interpreter."""
    from sojourn.engines import autograph_files, denormals

    autograph_files.keep_in_memory()
    denormals.want_in_this_process()


def warm() -> None:
    """Do what is done once in a process."""
    from sojourn.engines import tensorflow_warming

    tensorflow_warming.warm()


def throws_unprepared() -> bool:
    """Exceptions of C++ pass through code that does not expect them, and end the process."""
    return True


__all__ = [
    "distrust",
    "limit_memory",
    "limit_reached",
    "prepare_forks",
    "revive",
    "throws_unprepared",
    "warm",
]
