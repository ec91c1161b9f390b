"""What TensorFlow needs from a process. Imports TensorFlow only where it is loaded already."""

from __future__ import annotations

from sojourn.engines.distrust import refuse_custom_ops as distrust
from sojourn.engines.tensorflow_errors import limit_reached
from sojourn.engines.tensorflow_errors import rebuild as revive
from sojourn.engines.tensorflow_memory import bound_tensors as limit_memory


def prepare_forks() -> None:
    """Prepare for workers, which end without running the interpreter's exit handlers."""
    from sojourn.engines import autograph_files, denormals

    autograph_files.keep_in_memory()
    denormals.want_in_this_process()


def warm() -> None:
    """Do TensorFlow's one-time work in this process."""
    from sojourn.engines import tensorflow_warming

    tensorflow_warming.warm()


def throws_unprepared() -> bool:
    """Whether C++ exceptions pass through code that does not expect them and end the process."""
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
