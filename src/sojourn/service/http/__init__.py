"""HTTP: `connection.py` reads and writes, `router.py` finds the route, the rest translates."""
