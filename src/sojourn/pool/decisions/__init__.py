"""The decisions of a pool, and nothing else: no threads, no clocks, no I/O.

Events go in, effects come out (`scheduler.py`). Times and measured sizes are arguments, so that
every decision can be tested by plain calls. `pyproject.toml` lists the imports forbidden here.
"""
