"""The data plane between a caller and an agent: frames over TCP, with arrays as raw memory.

`frames.py` defines the frame format, `words.py` the messages, `blocking.py` the caller's end for
threads, `awaited.py` both ends for an event loop, `proving.py` the authentication of both ends.
"""
