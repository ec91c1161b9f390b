"""Run programs of the TensorFlow 1 era, unmodified, on the TensorFlow of today.

`detect` tells from the source what a program wants; `environment` gives it that for as long as it
runs. In order from the program inwards: `imports` decides who gets which `tensorflow`, `tf1` is
that module, `oldnames`, `layers`, `cells`, `flags`, `keras` and `contrib` are its parts, and
`sessions` chooses and counts the sessions.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from sojourn.compat.legacy import imports
from sojourn.compat.legacy.detect import ProgramSyntaxError, Verdict, detect
from sojourn.compat.legacy.sessions import ISOLATIONS, Ledger


@contextlib.contextmanager
def environment(verdict: Verdict, isolation: str = "process") -> Iterator[Ledger]:
    """The world that `verdict` asks for, inside the block; sessions are counted in the ledger.

    Graph mode, once on, stays on for the process: TensorFlow has no way back.
    """
    ledger = Ledger()
    if verdict.era == "tf2":
        yield ledger
        return
    importer = _prepare(verdict, isolation, ledger)
    with importer.active():
        try:
            yield ledger
        finally:
            ledger.close_what_is_open()


def _prepare(verdict: Verdict, isolation: str, ledger: Ledger) -> imports.Importer:
    _set_mode(verdict)
    from sojourn.compat.legacy import numpy_names, sessions, tf1

    numpy_names.add_missing()
    # The carried layers say that they are deprecated; the program's author cannot act on it.
    warnings.filterwarnings("ignore", message=r".*`(tf\.)?(layers?|nn)\.")
    session = sessions.route(*sessions.make_classes(ledger, isolation))
    second = tf1.tensorflow_2(session, verdict.graph)
    first = tf1.namespace(session, as_tensorflow=True)
    spaces = {"tf1": first, "compat": second}
    plain = spaces[verdict.era]
    overrides = {
        "tensorflow.python.client.session": session,
        "tensorflow.python.platform.flags": first.flags,
    }
    if verdict.graph:
        overrides["tensorflow.python.keras"] = plain.keras
    keras = plain.keras if verdict.graph else None
    return imports.Importer(verdict, spaces, overrides, keras)


def _set_mode(verdict: Verdict) -> None:
    import tensorflow.compat.v1 as tf

    if not verdict.graph:
        return
    before = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.ERROR)
    try:
        if verdict.era == "tf1":
            tf.disable_v2_behavior()
        else:
            tf.disable_eager_execution()
    finally:
        tf.logging.set_verbosity(before)


__all__ = ["ISOLATIONS", "Ledger", "ProgramSyntaxError", "Verdict", "detect", "environment"]
