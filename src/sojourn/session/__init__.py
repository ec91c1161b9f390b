"""One stay of one model: its state machine, its handles, its receipt.

`states.py` decides, `stay.py` carries out, `beginning.py` and `ending.py` begin and end the stay,
`session.py` is the handle that the user holds, `opening.py` turns the user's model into something
an engine can load, `feeding.py` checks the inputs.
"""

from sojourn.session.aopening import aopen
from sojourn.session.defaults import current
from sojourn.session.lease import Lease
from sojourn.session.metrics import metrics
from sojourn.session.opening import open
from sojourn.session.session import Session
from sojourn.session.states import State

__all__ = ["Lease", "Session", "State", "aopen", "current", "metrics", "open"]
