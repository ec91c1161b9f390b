"""Processes: the zygote that has the framework imported, the workers forked from it, and the
client's handle on both.

In the client: `zygote.py` (the handle that starts and restarts it), `worker.py` (one child).
In the children: `zygote_main.py`, `worker_main.py`, with `lifeline.py`, `limits.py`, `title.py`.
"""
