"""A session that is never closed ends when it is garbage-collected, or at the latest at exit.

Run with `python -W default` to see the warning that names the line which opened it.
"""

import tensorflow.compat.v1 as tf

import sojourn
from sojourn.compat.v1 import Session

tf.disable_eager_execution()


def tell(event: sojourn.events.Event) -> None:
    if event.kind == "session.receipt":
        clean = event.detail["receipt"]["clean"]
        print(f"{event.session}: closed, nothing left: {clean}", flush=True)


sojourn.events.subscribe(tell)

session = Session(name="forgotten")  # never closed below, on purpose  # noqa: SOJ001
print("value:", session.run(tf.constant(42)))
