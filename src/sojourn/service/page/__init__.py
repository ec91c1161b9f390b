"""The server's page: what is resident, what is asked of it, and what came back, to look at.

`page.py` puts it together. `watching.py` listens to events, `snapshot.py` is what the page shows of
one moment, `stream.py` sends what changed, `points.py` and `history.py` are what was, `stays.py` the
receipts, `actions.py` what an administrator can do, `guard.py` who may ask, `routes.py` the paths.
"""
