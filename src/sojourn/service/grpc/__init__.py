"""gRPC: the door in `door.py`, the services that it offers, and their messages.

`messages/` has the descriptors, `tensors.py` and `contents.py` convert messages to arrays and back.
The services only translate: `kserve.py`, `tfserving.py`, `health.py`, `reflection.py`.
"""
