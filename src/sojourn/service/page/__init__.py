"""The server's web page: it shows resident models, requests, and memory that was given back.

`page.py` combines the parts and `routes.py` has the paths. `snapshot.py` builds the state shown at
one moment, from the events of `watching.py` and the counts of `numbers.py`; `stream.py` sends what
changed. `points.py` and `history.py` hold the past, `stays.py` the receipts, `actions.py` the
administrator's actions, `guard.py` the access checks. `assets/` has the files for the browser.
"""
