"""The server's page: what is resident, what is asked of it, and what came back, to look at.

`page.py` puts it together and `routes.py` has the paths. `snapshot.py` is what is shown of one
moment, from what `watching.py` hears and `numbers.py` counts; `stream.py` sends what changed.
`points.py` and `history.py` are what was, `stays.py` the receipts, `actions.py` what an
administrator can do, `guard.py` who may ask. `assets/` is what the browser gets.
"""
