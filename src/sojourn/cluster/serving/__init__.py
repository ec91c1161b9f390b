"""`sojourn serve --cluster`: a server on every node, and one namespace of models behind them.

`pool.py` is the cluster as a server sees it, `front.py` the server of one node, `fronts.py` all of
them, each a Ray actor, and `daemon.py` what the command runs.
"""
