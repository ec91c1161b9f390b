"""Any function in a worker of its own, which ends with the call.

`isolated.py` is what the user holds, `calling.py` is one call from the fork to the receipt,
`streaming.py` a call that yields, `submitting.py` one in the background, `sending.py` how the
function and its arguments get there. `sweeping.py` is many calls beside each other, of the items in
`items.py`; `stored.py` and `results_file.py` keep their results, `progress.py` shows how far it is.
"""

from sojourn.functions.isolated import Isolated, isolated
from sojourn.functions.items import Keywords, grid
from sojourn.functions.sweeping import Done, Sweep

__all__ = ["Done", "Isolated", "Keywords", "Sweep", "grid", "isolated"]
