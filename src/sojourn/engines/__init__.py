"""Engines: what a worker runs. The only layer, with `compat`, that imports TensorFlow.

An engine loads a model, makes plans for steps and carries out a few named operations. It does not
know whether it lives in a worker or in the caller's process.
"""

from __future__ import annotations

import os
import sys

# What the zygote imports for a framework besides the framework itself.
PRELOAD = {
    "tensorflow": (
        "numpy.random",  # the worker seeds it
        "sojourn.engines.builder",
        "sojourn.engines.tensorflow",
        "sojourn.engines.keras_model",
        "sojourn.engines.remote_session_functions",
        "sojourn.engines.remote_session",
    )
}


def frameworks() -> tuple[str, ...]:
    """The frameworks to import ahead of time.

    A program that isolates plain functions only can set `SOJOURN_PRELOAD=none`, and its zygote
    starts in a fraction of a second.
    """
    wanted = os.environ.get("SOJOURN_PRELOAD")
    if wanted is None:
        return tuple(PRELOAD)
    return tuple(name for name in wanted.split(",") if name in PRELOAD)


def prepare_workers() -> None:
    """What the frameworks that are loaded need in processes that will end without ceremony."""
    if "tensorflow" in sys.modules:
        from sojourn.engines import autograph_files, denormals

        autograph_files.keep_in_memory()
        denormals.want_in_this_process()
