"""The data plane between a caller and an agent: frames over TCP, arrays as they lie in memory.

`frames.py` is what a frame looks like, `words.py` what is said in one, `blocking.py` one end for
threads, `awaited.py` one for an event loop, `proving.py` how each end proves that it may talk.
"""
