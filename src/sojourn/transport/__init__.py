"""How arrays cross between two processes: nameless shared memory and a short spin.

`Segment` is the memory. `Outbox` writes and `Inbox` reads one message in it. A lane (`CallerLane`
in the caller, `ServerLane` in the worker) is a pair of them with a way to wake the other side.
Nothing here knows what a message means.
"""
