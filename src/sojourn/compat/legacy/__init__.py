"""Run programs of the TensorFlow 1 era, unmodified, on today's TensorFlow.

`examine` finds out from the source what a program needs; `environment` provides it while the
program runs. In order from the program inwards: `imports` decides which `tensorflow` a module gets,
`tf1` is that module, `oldnames`, `layers`, `cells`, `flags`, `keras` and `contrib` are its parts,
and `sessions` chooses and counts the sessions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator

from sojourn.compat.legacy import imports
from sojourn.compat.legacy.account import Ledger
from sojourn.compat.legacy.detect import ProgramSyntaxError, Verdict, examine


def judge(target: str, is_module: bool = False, era: str | None = None) -> Verdict:
    """Return the verdict on a program or module; `era` overrides it. A missing file is "tf2"."""
    path, folders = (target, []) if not is_module else _module_file(target)
    if os.path.isdir(path):
        path = os.path.join(path, "__main__.py")
    if not os.path.isfile(path):
        return Verdict("tf2")
    verdict = examine(path, folders)
    if era == "tf1":
        return dataclasses.replace(verdict, era="tf1", graph=True)
    return dataclasses.replace(verdict, era="tf2", graph=False) if era == "tf2" else verdict


def _module_file(name: str) -> tuple[str, list[str]]:
    """Return the file that `python -m name` would run from here, without importing anything."""
    folder = os.getcwd()
    stem = os.path.join(folder, *name.split("."))
    for path in (stem + ".py", os.path.join(stem, "__main__.py")):
        if os.path.isfile(path):
            return path, [folder]
    # Only a top-level name can be looked up without importing its package.
    top = name.split(".")[0]
    spec = importlib.util.find_spec(top) if top not in sys.modules else None
    if spec is not None and spec.submodule_search_locations:
        base = os.path.dirname(next(iter(spec.submodule_search_locations)))
        stem = os.path.join(base, *name.split("."))
        for path in (stem + ".py", os.path.join(stem, "__main__.py")):
            if os.path.isfile(path):
                return path, [base]
    return (spec.origin or "", []) if spec is not None else ("", [])


@contextlib.contextmanager
def environment(
    verdict: Verdict, isolation: str = "process", strict_placement: bool = False
) -> Iterator[Ledger]:
    """Provide what `verdict` requires inside the block; the ledger counts the sessions.

    An op whose device is missing runs on another device, unless `strict_placement` is set.
    Graph mode, once on, stays on for the process: TensorFlow cannot turn it off again.
    """
    ledger = Ledger()
    if verdict.era == "tf2":
        yield ledger
        return
    if isolation == "process":
        # Start the zygote early: it imports TensorFlow while this process imports it too and
        # while the program builds its graph.
        from sojourn.probes.platform import require_process_isolation
        from sojourn.process.zygote import zygote

        require_process_isolation()
        zygote.start()
    importer = _prepare(verdict, isolation, ledger, strict_placement)
    with importer.active():
        try:
            yield ledger
        finally:
            ledger.close_what_is_open()


def _prepare(
    verdict: Verdict, isolation: str, ledger: Ledger, strict_placement: bool
) -> imports.Importer:
    _set_mode(verdict)
    from sojourn.compat.legacy import numpy_habits, numpy_names, sessions, tf1

    numpy_names.add_missing()
    _quiet()
    session = sessions.route(
        *sessions.make_classes(ledger, isolation, verdict.era, strict_placement)
    )
    second = tf1.tensorflow_2(session, verdict.graph)
    first = tf1.namespace(session, as_tensorflow=True)
    spaces = {"tf1": first, "compat": second}
    plain = spaces[verdict.era]
    overrides = {
        "tensorflow.python.client.session": session,
        "tensorflow.python.platform.flags": first.flags,
        "tensorflow.python.ops.rnn": first.nn.rnn_module,
        "tensorflow.models.rnn.rnn": first.nn.rnn_module,
        "tensorflow.python.estimator": tf1.estimator_modules(),
        "tensorflow.python.framework.device": tf1.devices(),
    }
    if verdict.graph:
        overrides["tensorflow.python.keras"] = plain.keras
    keras = plain.keras if verdict.graph else None
    importer = imports.Importer(verdict, spaces, overrides, keras)
    numpy_habits.give_back(importer.is_own)
    return importer


def _quiet() -> None:
    """Silence messages that the program did not cause.

    Deprecation warnings say nothing new: old calls are the reason to run the program this way.
    Log messages about sessions, if the program turns logging on, would repeat the final account.
    """
    from tensorflow.python.util import deprecation

    logger = logging.getLogger("sojourn")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)

    deprecation._PRINT_DEPRECATION_WARNINGS = False
    warnings.filterwarnings("ignore", message=r".*`((tf\.)?(layers?|nn)|[Mm]odel)\.")


def _set_mode(verdict: Verdict) -> None:
    import tensorflow.compat.v1 as tf

    if verdict.era == "compat" and verdict.dimensions:
        tf.disable_v2_tensorshape()
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


__all__ = ["Ledger", "ProgramSyntaxError", "Verdict", "environment", "examine", "judge"]
