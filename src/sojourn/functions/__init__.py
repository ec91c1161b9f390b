"""Isolated functions: each call runs in its own worker, which ends with the call.

`isolated.py` has the wrapper that users hold, `calling.py` one call from the fork to the receipt,
`streaming.py` a call that yields, `submitting.py` a call in the background; `sending.py` packs the
function and its arguments. `sweeping.py` makes many calls in parallel, for the items in
`items.py`; `stored.py` and `results_file.py` keep their results, `progress.py` shows the progress.
"""

from sojourn.functions.isolated import Isolated, isolated
from sojourn.functions.items import Keywords, grid
from sojourn.functions.sweeping import Done, Sweep

__all__ = ["Done", "Isolated", "Keywords", "Sweep", "grid", "isolated"]
