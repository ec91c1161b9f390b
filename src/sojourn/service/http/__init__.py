"""HTTP: the connection in `connection.py`, `router.py` finds who answers, the rest translates."""
