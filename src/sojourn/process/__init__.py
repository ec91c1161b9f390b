"""Processes: the zygote that has the framework imported, the workers forked from it, and the
client's handle on both.

In the client: `zygote.py` (the handle that starts and restarts it) with `zygote_process.py` (one
that runs), `worker.py` (one child) with `forked.py` (its process), `lanes.py`, `output.py` and
`worker_ends.py`, `awaiting.py` and `bundles.py` (steps that an
event loop waits for), `callbacks.py` (calls from the child to the client),
`interrupts.py` and `exits.py` (Ctrl-C and the end of the program), `deadlines.py`.
In the children: `zygote_main.py`, `worker_main.py`, with `lifeline.py`, `limits.py`, `marks.py`,
`huge_pages.py`, `sandbox/`.
Between them: `protocol.py`, `surroundings.py`, `calls.py`, `crossing.py` (errors).
"""
