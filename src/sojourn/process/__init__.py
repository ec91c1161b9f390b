"""Processes: the zygote that has the framework imported, the workers forked from it, and the
client's handle on both.

In the client: `zygote.py` (the handle that starts and restarts it), `worker.py` (one child) with
its `lanes.py` and `output.py`, `callbacks.py` (what the child asks of the client),
`interrupts.py` and `exits.py` (Ctrl-C and the end of the program), `deadlines.py`.
In the children: `zygote_main.py`, `worker_main.py`, with `lifeline.py`, `limits.py`, `marks.py`,
`huge_pages.py`, `sandbox/`.
Between them: `protocol.py`, `surroundings.py`, `calls.py`, `crossing.py` (errors).
"""
