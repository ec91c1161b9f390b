"""Drop-in for `tf.compat.v1.Session` and `InteractiveSession`.

Same arguments, same results, same exceptions, and `isinstance(s, tf.compat.v1.Session)` is true.
The graph stays with the caller; its steps run in a worker, whose end frees everything.
"""

from sojourn.compat.v1.session import InteractiveSession, Session

__all__ = ["InteractiveSession", "Session"]
