"""Engines: what a worker runs. The only layer, with `compat`, that imports a framework.

An engine loads a model, makes plans for steps and carries out a few named operations. It does not
know whether it lives in a worker or in the caller's process. `process` below knows no framework:
it uses the `Host` of `base.py`, and `hooks.py` for what a framework needs from a process.
"""
