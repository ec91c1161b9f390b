"""Engines: what a worker runs. The only layer, with `compat`, that imports TensorFlow.

An engine loads a model, makes plans for steps and carries out a few named operations. It does not
know whether it lives in a worker or in the caller's process.
"""

from __future__ import annotations

# What the zygote imports for a framework besides the framework itself.
PRELOAD = {"tensorflow": ("sojourn.engines.tensorflow",)}
FRAMEWORKS = tuple(PRELOAD)
