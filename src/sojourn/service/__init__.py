"""Models behind HTTP and gRPC: the pool, served in the protocols that clients already use.

`inference.py` defines requests and answers, `failures.py` how they fail; `handler.py` carries out
requests, and `http/` and `grpc/` only translate to and from it. `catalogue.py` knows which models
are served, `batching.py` which requests are joined, `server.py` owns the loop and its listeners.
"""
