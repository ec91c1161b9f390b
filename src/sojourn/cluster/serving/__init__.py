"""`sojourn serve --cluster`: a server on every node, and one namespace of models behind them.

`pool.py` adapts the cluster to a server, `front.py` is the server of one node, `fronts.py` runs one
as a Ray actor on every node, and `daemon.py` is the command's process.
"""
