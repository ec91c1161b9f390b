"""`with sojourn.audit()` in one process after another, nested, and around failures."""

import contextlib
import json
import sys
import threading

import tensorflow.compat.v1 as tf
from tensorflow.python.client import session as raw
from tensorflow.python.framework import stack

import sojourn.audit

tf.disable_eager_execution()
answer = tf.constant(42)


def forget():
    tf.Session().run(answer)


def methods():
    owners = (raw.BaseSession, raw.Session, raw.InteractiveSession, stack.DefaultStack)
    return [dict(vars(owner)) for owner in owners]


def threads():
    return sorted(thread.name for thread in threading.enumerate())  # TensorFlow's come and go


before = methods()
results = {}
with sojourn.audit.audit() as found, tf.Session() as session:
    session.run(answer)
results["closed"] = list(found.codes)
with sojourn.audit.audit() as found:
    forget()
results["forgotten"] = list(found.codes)
with sojourn.audit.audit() as found:
    kept = tf.Session()
results["left open"] = list(found.codes)
with sojourn.audit.audit() as outer:
    forget()
    with sojourn.audit.audit() as inner:
        forget()
    tf.Session(graph=answer.graph).close()
results["inner"] = list(inner.codes)
results["outer"] = list(outer.codes) * outer[0].count
with contextlib.suppress(ZeroDivisionError), sojourn.audit.audit() as found:
    forget()
    1 / 0  # noqa: B018
results["failed"] = list(found.codes)
with sojourn.audit.audit() as found:
    kept.run(answer)
    kept.close()
results["from before"] = list(found.codes)
number = threads()
with sojourn.audit() as found:
    pass
results["callable"] = repr(found) == "<Found nothing in 0 sessions>"
results["untouched"] = methods() == before and not any(
    "sojourn" in type(finder).__module__ for finder in sys.meta_path
)
results["threads"] = threads() == number
print(json.dumps(results))
