"""Models behind HTTP and gRPC: the pool, in the protocols that clients already speak.

`inference.py` is what is asked and answered, `failures.py` how it fails; `handler.py` does what is
asked, and `http/` and `grpc/` only translate to and from it. `catalogue.py` knows which models are
served, `batching.py` which requests go together, `server.py` owns the loop and its doors.
"""
