"""gRPC: the door in `door.py`, the services that it offers, and the messages they speak.

`messages/` has the descriptors, `tensors.py` and `contents.py` turn messages into arrays and back.
The services translate only: `kserve.py`, `tfserving.py`, `health.py`, `reflection.py`.
"""
