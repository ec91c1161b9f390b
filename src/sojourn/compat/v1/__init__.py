"""Drop-in for `tf.compat.v1.Session` and `InteractiveSession`.

Same arguments, same results, same exceptions, and `isinstance(s, tf.compat.v1.Session)` holds.
The graph stays with the caller; its steps run in a worker, whose end gives everything back.
"""

from sojourn.compat.v1.session import InteractiveSession, Session

__all__ = ["InteractiveSession", "Session"]
