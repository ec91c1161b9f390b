"""Any function in a worker of its own, which ends with the call.

`isolated.py` is what the user holds, `calling.py` is one call from the fork to the receipt,
`streaming.py` a call that yields, `sweeping.py` many calls beside each other, `sending.py` how
the function and its arguments get there.
"""

from sojourn.functions.isolated import Isolated, isolated

__all__ = ["Isolated", "isolated"]
