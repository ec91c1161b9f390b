"""How arrays cross between two processes: nameless shared memory and a short spin.

`Segment` is the memory, `Outbox` and `Inbox` write and read one message in it, and a lane
(`CallerLane` here, `ServerLane` there) is a pair of them with a way to wake the other side.
Nothing here knows what a message means.
"""
