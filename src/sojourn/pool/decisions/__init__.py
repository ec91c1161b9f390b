"""What a pool decides, and nothing else: no threads, no clocks, no I/O.

Events go in, effects come out (`scheduler.py`). Times and measured sizes are arguments, so that
every decision can be tested by plain calls. `pyproject.toml` states what may not be imported here.
"""
